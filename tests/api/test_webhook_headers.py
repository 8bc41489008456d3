"""Headers of webhooks over HTTP, on both engines: their rules, their secrecy and their sending."""

from __future__ import annotations

import asyncio
import html
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus

import pytest

from gleanery.common.settings import Settings
from gleanery.service.resources.webhooks.models import MAX_HEADER_VALUE, MAX_HEADERS
from gleanery.service.storage.engines import open_engine
from tests.support.outputs import output
from tests.support.receiver import FAIL, Answer, Received, Receiver
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until
from tests.support.webhooks import (
    ALLOWED,
    FAR,
    act,
    change,
    create,
    deliveries,
    show,
    verify,
    wait_for_attempts,
    wait_until_delivered,
)

VALUE = "Xq2mB7fRz0aL"
BEARER = "Bearer abcdefghijklmnopqrstuvwxyz"
_paths = itertools.count(1)


@pytest.fixture(scope="module")
def service(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service that may send to the receiver."""
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp("headers"))
    running = Service(replace(settings, webhook_allow=ALLOWED, shutdown_seconds=1))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture
def path() -> str:
    """A path of the receiver that no other test uses."""
    return f"/{next(_paths)}"


def refused(client: Client, headers: Any, webhook: dict[str, Any] | None = None) -> Any:
    """Return the problems of headers that are refused, with POST or PUT."""
    body = {"url": FAR, "events": ["test"], "headers": headers}
    answer = client.post("/v1/webhooks", json=body)
    if webhook is not None:
        answer = client.put(f"/v1/webhooks/{webhook['id']}", json=body | {"url": webhook["url"]})
    assert answer.status_code == 422, answer.text
    return answer.json()["detail"]


def sent(client: Client, webhook: dict[str, Any], receiver: Receiver, path: str) -> Received:
    """Send a test, and return the request."""
    count = len(receiver.received(path))
    act(client, webhook, "test")
    return receiver.wait_for(count + 1, path)[-1]


def stored_headers(settings: Settings, webhook: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Name and encrypted value of each header in the database."""

    async def read() -> list[tuple[str, bytes]]:
        async with open_engine(settings) as engine:
            sql = "SELECT name, encrypted_value FROM webhook_headers WHERE webhook_id = $1"
            rows = await engine.for_all_tenants().read(f"{sql} ORDER BY name", webhook["id"])
            return [(row[0], bytes(row[1])) for row in rows]

    return asyncio.run(read())


# --- sending ------------------------------------------------------------------------------------


def test_each_request_has_the_headers(client: Client, receiver: Receiver, path: str) -> None:
    receiver.answer(path, FAIL, Answer())
    headers = {"Authorization": BEARER, "x-key": "a b\tc", "X!#$%&'*+.^_`|~-9": "~"}
    webhook = create(client, receiver.url(path), "test", "outputs.changed", headers=headers)
    act(client, webhook, "test")
    wait_for_attempts(client, webhook, 1)
    client.store("group", output(1))
    change(client, webhook)  # ends the rest after the failure
    requests = receiver.wait_for(3, path)
    assert {one.type for one in requests} == {"test", "outputs.changed"}
    for one in requests:
        verify(one, webhook["secret"])
        assert {name: one.headers[name.lower()] for name in headers} == headers


@pytest.mark.parametrize("format_", ["slack", "discord", "teams"])
def test_a_message_has_the_headers(
    client: Client, receiver: Receiver, path: str, format_: str
) -> None:
    headers = {"X-Api-Key": VALUE}
    webhook = create(client, receiver.url(path), format=format_, headers=headers)
    act(client, webhook, "test")
    [one] = receiver.wait_for(1, path)
    assert one.headers["x-api-key"] == VALUE


def test_user_agent_and_accept_are_replaced(client: Client, receiver: Receiver, path: str) -> None:
    headers = {"user-Agent": "mine/1", "ACCEPT": "text/plain"}
    webhook = create(client, receiver.url(path), headers=headers)
    counted: list[tuple[list[str], ...]] = []
    receiver.on_request(lambda one: counted.append((one.headers["user-agent"].split(","),)))
    try:
        received = sent(client, webhook, receiver, path)
    finally:
        receiver.on_request(lambda _: None)
    assert (received.headers["user-agent"], received.headers["accept"]) == ("mine/1", "text/plain")
    assert counted == [(["mine/1"],)]
    plain = sent(client, create(client, receiver.url(path)), receiver, path)
    assert plain.headers["user-agent"].startswith("Gleanery/")
    assert plain.headers["accept"] == "*/*"


def test_a_redirect_does_not_get_the_headers(client: Client, receiver: Receiver, path: str) -> None:
    receiver.answer(path, Answer(307, b"", {"location": receiver.url(f"{path}/other")}))
    webhook = create(client, receiver.url(path), headers={"X-Api-Key": VALUE})
    act(client, webhook, "test")
    wait_for_attempts(client, webhook, 1)
    assert receiver.received(f"{path}/other") == []


def test_headers_never_go_to_another_url(client: Client, receiver: Receiver, path: str) -> None:
    """Each request has the URL and the headers of the same settings."""
    targets = {f"{path}/{name}": {"X-Api-Key": f"value-of-{name}"} for name in "ab"}
    first, second = targets
    webhook = create(client, receiver.url(first), headers=targets[first])
    for number in range(6):
        target = (second, first)[number % 2]
        act(client, webhook, "test")
        webhook = change(client, webhook, url=receiver.url(target), headers=targets[target])
        act(client, webhook, "test")
        count = 2 * number
        wait_until(lambda count=count: sum(len(receiver.received(p)) for p in targets) > count)
    wait_until_delivered(client, webhook)
    found = [(p, one.headers["x-api-key"]) for p in targets for one in receiver.received(p)]
    assert len(found) >= 12
    assert set(found) == {(p, headers["X-Api-Key"]) for p, headers in targets.items()}


# --- what is accepted ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("webhook-id", "Webhook-Signature", "WEBHOOK-TIMESTAMP", "webhook-x", "host", "Host"),
        *("content-length", "Content-Type", "Content-Encoding", "transfer-encoding", "connection"),
        *("te", "Trailer", "upgrade", "keep-alive", "Proxy-Authorization", "proxy-x", "expect"),
        *("webhook_signature", "Webhook.Id", "content_length", "Transfer_Encoding"),
    ],
)
def test_headers_of_the_service_are_refused(client: Client, name: str) -> None:
    [problem] = refused(client, {name: VALUE})
    assert problem["loc"] == ["body", "headers", name]
    assert problem["msg"] == "the service sets this header itself: leave it out"


@pytest.mark.parametrize(
    "name",
    [*("", "a b", "a:", "a\n", "\na", "a\0", "ä", "\u212aey", "(a)", "a" * 101)],
    ids=repr,
)
def test_names_that_are_not_valid_are_refused(client: Client, name: str) -> None:
    [problem] = refused(client, {name: VALUE})
    assert problem["loc"] == ["body", "headers", name[:100]]
    assert "expected a name" in problem["msg"]


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", " a", "a ", "\ta", "a\t", "a\r\nwebhook-id: 1", "a\n", "a\0b", "a\x7f", "ä"),
        *("\ud7ff", "x" * (MAX_HEADER_VALUE + 1), 1, True, ["a"], {"a": "b"}),
    ],
    ids=ascii,
)
def test_values_that_are_not_valid_are_refused(client: Client, value: Any) -> None:
    headers = {"X-Ok": "fine", "X-Api-Key": value}
    for webhook in (None, create(client, FAR)):
        [problem] = refused(client, headers, webhook)
        assert problem["loc"] == ["body", "headers", "X-Api-Key"]


def test_a_refused_value_is_not_repeated(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"url": FAR, "events": ["test"]}
    for headers in ({"X-Api-Key": f"{VALUE}\n"}, {"host": VALUE}, {"a b": VALUE}, {"X": [VALUE]}):
        answer = client.post("/v1/webhooks", json=body | {"headers": headers})
        assert answer.status_code == 422
        assert VALUE not in answer.text
    answer = client.post("/v1/webhooks", json=body | {"headers": VALUE})
    assert (answer.status_code, VALUE in answer.text) == (422, False)
    assert VALUE not in caplog.text


def test_all_problems_are_named(client: Client) -> None:
    found = refused(client, {"host": "a", "X-A": "\n", "X-B": "fine", "b b": "c"})
    assert [one["loc"][2] for one in found] == ["host", "X-A", "b b"]


def test_a_name_in_two_cases_is_refused(client: Client) -> None:
    [problem] = refused(client, {"X-Api-Key": "a", "x-api-key": "b"})
    assert problem["loc"] == ["body", "headers", "x-api-key"]
    assert "given twice" in problem["msg"]


def test_the_limits_are_accepted(client: Client, receiver: Receiver, path: str) -> None:
    names = [f"{number}{'n' * 99}" for number in range(MAX_HEADERS)]
    headers = dict.fromkeys(names, "v" * MAX_HEADER_VALUE)
    webhook = create(client, receiver.url(path), headers=headers)
    received = sent(client, webhook, receiver, path)
    assert headers.items() <= received.headers.items()
    [problem] = refused(client, headers | {"one-more": "v"})
    assert (problem["loc"], problem["type"]) == (["body", "headers"], "too_long")


# --- secrecy ------------------------------------------------------------------------------------


def test_values_are_never_shown(
    client: Client,
    service: Service,
    receiver: Receiver,
    path: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = f'{{"Authorization": "{BEARER}", "key": "{VALUE}"}}{" " * 940}{VALUE}'.encode()
    receiver.answer(path, Answer(500, echo), Answer(200, echo))
    headers = {"Authorization": BEARER, "X-Api-Key": VALUE}
    webhook = create(client, receiver.url(path), "test", "delivery.failed", headers=headers)
    assert webhook["headers"] == dict.fromkeys(headers)
    assert [*webhook["headers"]] == [*headers]
    received = sent(client, webhook, receiver, path)
    changed = change(client, webhook)
    wait_until_delivered(client, webhook)
    [delivery] = deliveries(client, webhook)
    assert len(delivery["attempts"]) == 2
    assert all("key" in one["response"] for one in delivery["attempts"])
    answers = [
        client.get("/v1/webhooks"),
        client.get(f"/v1/webhooks/{webhook['id']}"),
        client.get(f"/v1/webhooks/{webhook['id']}/deliveries"),
        client.post(f"/v1/webhooks/{webhook['id']}/rotate"),
        client.post(f"/v1/webhooks/{webhook['id']}/enable"),
        client.post(f"/v1/webhooks/{webhook['id']}/test"),
        client.post(f"/v1/webhooks/{webhook['id']}/deliveries/{received.id}/redeliver"),
        client.delete(f"/v1/webhooks/{webhook['id']}"),
        client.get("/v1/audit"),
        client.get("/metrics"),
    ]
    assert all(answer.status_code == 200 for answer in answers)
    shown = "".join([*(one.text for one in answers), str(webhook), str(changed), caplog.text])
    for secret in (VALUE, VALUE[:8], BEARER.split()[1], BEARER.split()[1][:12]):
        assert secret not in shown
    assert received.headers["x-api-key"] == VALUE
    assert stored_headers(service.settings, webhook) == []  # it is deleted


def escape_as_php(value: str) -> str:
    return value.replace("/", "\\/")


def escape_as_net(value: str) -> str:
    return value.replace("+", "\\u002B")


@pytest.mark.parametrize("repeat", [escape_as_php, escape_as_net, quote_plus, html.escape])
def test_a_value_is_hidden_in_a_response_that_escapes_it(
    client: Client, receiver: Receiver, path: str, repeat: Callable[[str], str]
) -> None:
    parts = ["c2VjcmV0LW9mLQ", "Zm9yLXRoZS1nYXRl", "d2F5LXRoYXQtaXM"]
    value = f"Basic {parts[0]}/{parts[1]}+{parts[2]}=="
    receiver.answer(path, Answer(401, f"wrong: {repeat(value)}".encode()))
    webhook = create(client, receiver.url(path), headers={"Authorization": value})
    act(client, webhook, "test")
    [attempt] = wait_for_attempts(client, webhook, 1)["attempts"]
    assert attempt["response"].startswith("wrong: ")
    assert not [part for part in parts if part in attempt["response"]]


def test_values_are_encrypted_at_rest(client: Client, service: Service) -> None:
    webhook = create(client, FAR, headers={"X-Api-Key": VALUE, "authorization": BEARER})
    rows = stored_headers(service.settings, webhook)
    assert [name for name, _ in rows] == ["authorization", "x-api-key"]
    other = create(client, FAR, headers={"X-Api-Key": VALUE})
    values = [value for _, value in rows + stored_headers(service.settings, other)]
    assert len({*values}) == 3
    files = service.settings.data.glob("*.db*") if service.settings.database is None else ()
    for content in (*values, *(file.read_bytes() for file in files)):
        assert VALUE.encode() not in content
        assert BEARER.encode() not in content


def test_a_value_of_another_webhook_or_name_is_not_sent(
    client: Client, service: Service, receiver: Receiver, path: str
) -> None:
    """Somebody who can write to the database, and has no key, cannot move a value."""
    webhook = create(client, receiver.url(path), headers={"X-Api-Key": VALUE})
    other = create(client, FAR, headers={"X-Api-Key": "other", "X-Mine": "mine"})

    async def move() -> None:
        async with open_engine(service.settings) as engine:
            database = engine.for_all_tenants()
            sql = (
                "UPDATE webhook_headers SET encrypted_value = (SELECT encrypted_value "
                "FROM webhook_headers WHERE webhook_id = $2 AND name = 'x-api-key') "
                "WHERE webhook_id = $1"
            )
            await database.write(
                lambda transaction: transaction.fetch(sql, webhook["id"], other["id"])
            )

    asyncio.run(move())
    act(client, webhook, "test")
    [attempt] = wait_for_attempts(client, webhook, 1)["attempts"]
    assert attempt["error"] == (
        "the value of the header X-Api-Key cannot be decrypted: set it again"
    )
    assert receiver.received(path) == []
    change(client, webhook, headers={"X-Api-Key": "new"})
    assert receiver.wait_for(1, path)[0].headers["x-api-key"] == "new"


# --- changes ------------------------------------------------------------------------------------


def test_null_keeps_a_value(
    client: Client, service: Service, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path), headers={"X-A": "a", "X-B": "b", "X-C": "c"})
    before = dict(stored_headers(service.settings, webhook))
    changed = change(client, webhook, headers={"x-a": None, "X-B": "new", "X-D": "d"})
    assert changed["headers"] == show(client, webhook)["headers"]
    assert [*changed["headers"]] == ["x-a", "X-B", "X-D"]
    after = dict(stored_headers(service.settings, webhook))
    assert after.keys() == {"x-a", "x-b", "x-d"}
    assert after["x-a"] == before["x-a"]
    received = sent(client, webhook, receiver, path)
    own = {name: value for name, value in received.headers.items() if name.startswith("x-")}
    assert own == {"x-a": "a", "x-b": "new", "x-d": "d"}


def test_what_get_returns_can_be_put_back(client: Client, receiver: Receiver, path: str) -> None:
    webhook = create(client, receiver.url(path), headers={"X-Api-Key": VALUE})
    names = ("url", "events", "groups", "description", "format", "headers")
    body = {name: value for name, value in show(client, webhook).items() if name in names}
    assert client.put(f"/v1/webhooks/{webhook['id']}", json=body).status_code == 200
    assert sent(client, webhook, receiver, path).headers["x-api-key"] == VALUE


@pytest.mark.parametrize("members", [{}, {"headers": None}, {"headers": {}}], ids=str)
def test_without_headers_all_are_removed(
    client: Client, service: Service, receiver: Receiver, path: str, members: dict[str, Any]
) -> None:
    webhook = create(client, receiver.url(path), headers={"X-Api-Key": VALUE})
    body = {"url": webhook["url"], "events": ["test"], **members}
    changed = client.put(f"/v1/webhooks/{webhook['id']}", json=body).json()
    assert changed["headers"] == {}
    assert stored_headers(service.settings, webhook) == []
    assert "x-api-key" not in sent(client, webhook, receiver, path).headers


def test_null_without_a_value_is_refused(
    client: Client, service: Service, receiver: Receiver, path: str
) -> None:
    [problem] = refused(client, {"X-Api-Key": None})
    assert problem["loc"] == ["body", "headers", "X-Api-Key"]
    webhook = create(client, receiver.url(path), headers={"X-Api-Key": VALUE})
    found = refused(client, {"X-A": None, "X-Api-Key": "other", "X-B": None}, webhook)
    assert [one["loc"] for one in found] == [["body", "headers", name] for name in ("X-A", "X-B")]
    assert {one["type"] for one in found} == {"webhook_header"}
    assert show(client, webhook)["headers"] == {"X-Api-Key": None}
    assert sent(client, webhook, receiver, path).headers["x-api-key"] == VALUE
    with service.client() as stranger:  # a name of another organization or webhook is no value
        other = create(stranger, webhook["url"])
        assert refused(stranger, {"X-Api-Key": None}, other) == [
            problem | {"loc": ["body", "headers", "X-Api-Key"]}
        ]


def test_a_value_does_not_follow_the_url_to_another_host(
    client: Client, receiver: Receiver, path: str
) -> None:
    """Otherwise a client could read the value, by naming a receiver of its own."""
    webhook = create(client, receiver.url(path), headers={"X-Api-Key": VALUE})
    route = f"/v1/webhooks/{webhook['id']}"
    port = receiver.port
    for url in (
        f"http://127.0.0.1:{port + 1}{path}",
        f"http://127.0.0.2:{port}{path}",
        f"https://127.0.0.1:{port}{path}",
        FAR,
    ):
        body = {"url": url, "events": ["test"], "headers": {"x-api-key": None}}
        answer = client.put(route, json=body)
        assert answer.status_code == 422
        [problem] = answer.json()["detail"]
        if problem["loc"] != ["body", "url"]:  # the target itself is refused
            assert problem["loc"] == ["body", "headers", "x-api-key"]
            assert "give the value again" in problem["msg"]
    assert show(client, webhook)["url"] == webhook["url"]
    moved = change(client, webhook, url=receiver.url(f"{path}/new?a=b"))
    act(client, moved, "test")
    assert receiver.wait_for(1, f"{path}/new?a=b")[0].headers["x-api-key"] == VALUE
    elsewhere = change(client, webhook, url=FAR, headers={"X-Api-Key": "new"})
    assert elsewhere["url"] == FAR


def test_a_deleted_webhook_has_no_headers(client: Client, service: Service) -> None:
    webhook = create(client, FAR, headers={"X-Api-Key": VALUE})
    assert len(stored_headers(service.settings, webhook)) == 1
    client.delete(f"/v1/webhooks/{webhook['id']}")
    assert stored_headers(service.settings, webhook) == []


def test_the_audit_log_has_no_headers(client: Client) -> None:
    webhook = create(client, FAR, headers={"X-Api-Key": VALUE})
    change(client, webhook, headers={"X-Other": VALUE})
    log = client.get("/v1/audit")
    entries = log.json()["entries"][1:]
    assert [one["action"] for one in entries] == ["create_webhook", "set_webhook"]
    assert all(one["about"] == {"webhook_id": webhook["id"]} for one in entries)
    assert VALUE not in log.text


def test_a_repeated_creation_has_the_same_response(client: Client) -> None:
    body = {"url": FAR, "events": ["test"], "headers": {"X-Api-Key": VALUE}}
    key = {"Idempotency-Key": "key"}
    first, second = (client.post("/v1/webhooks", json=body, headers=key) for _ in range(2))
    assert (first.status_code, VALUE in first.text + second.text) == (200, False)
