"""Webhooks with the client: their settings, their secrets, and deliveries to a real receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import httpx2
import pytest
from rich.pretty import pretty_repr

from gleanery import AsyncClient, Client
from gleanery.client import (
    Conflict,
    ConnectionFailed,
    Delivery,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    TimedOut,
    Unavailable,
)
from gleanery.client.webhooks import InvalidWebhook, verify
from tests.support import faulty_server as faults
from tests.support.faulty_server import Step, faulty_server, respond
from tests.support.process import free_port
from tests.support.receiver import FAIL, GONE, Answer, Receiver, receiver
from tests.support.service import Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

URL = "https://receiver.example/hook"
_ACCEPTED = Answer(204, b"")
_DETAIL = {"detail": [{"loc": [], "msg": "Wait", "type": "x"}]}


@pytest.fixture(scope="module")
def sending(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service that may send events to this machine."""
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp(engine))
    service = Service(replace(settings, webhook_allow=("127.0.0.1",)))
    yield service
    service.stop()


@pytest.fixture
def sender(sending: Service) -> Iterator[Client]:
    """A client of that service, of a new organization."""
    with Client(sending.url, sending.token(), max_retries=1) as made:
        yield made


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def finished(client: Client, webhook_id: str, sent: Delivery) -> Delivery:
    """The delivery after an attempt that was added to those that it has."""

    def find() -> Delivery:
        listed = client.deliveries(webhook_id)
        return next(one for one in listed if one.delivery_id == sent.delivery_id)

    wait_until(lambda: len(find().attempts) > len(sent.attempts))
    return find()


# --- settings -----------------------------------------------------------------------------------


def test_a_webhook_is_created_changed_and_deleted(gleanery: Client) -> None:
    assert gleanery.webhooks() == []
    created = gleanery.create_webhook(URL, ["run.finished"])
    assert created.secret.startswith("whsec_")
    assert (created.url, created.events, created.groups) == (URL, ["run.finished"], None)
    assert (created.description, created.format, created.status) == ("", "standard", "enabled")
    changed = gleanery.set_webhook(
        created.id,
        url=f"{URL}2",
        events=iter(["review.created", "test"]),
        groups={"prices"},
        description="for the team",
        format="slack",
    )
    assert [changed] == gleanery.webhooks() == [gleanery.get_webhook(created.id)]
    assert (changed.id, changed.url, changed.format) == (created.id, f"{URL}2", "slack")
    assert (changed.events, changed.groups) == (["review.created", "test"], ["prices"])
    assert changed.update_date >= changed.create_date == created.create_date
    reset = gleanery.set_webhook(created.id, url=URL, events=changed.events)
    assert (reset.groups, reset.description, reset.format) == (None, "", "standard")
    gleanery.delete_webhook(created.id)
    assert gleanery.webhooks() == []


def test_headers_are_sent_and_kept(sender: Client, hook: Receiver) -> None:
    headers = {"Authorization": "Bearer secret-1", "X-Api-Key": "secret-2"}
    webhook = sender.create_webhook(hook.url(), ["test"], headers=headers)
    assert webhook.headers == dict.fromkeys(headers)
    assert "secret-" not in repr(webhook) + repr(sender.webhooks())
    kept = sender.set_webhook(
        webhook.id, url=f"{hook.url()}x", events=["test"], headers=webhook.headers
    )
    assert kept.headers == webhook.headers
    sender.test_webhook(webhook.id)
    [received] = hook.wait_for(1, "/x")
    assert received.headers["authorization"] == "Bearer secret-1"
    assert received.headers["x-api-key"] == "secret-2"
    with pytest.raises(Invalid, match="give the value again") as caught:
        sender.set_webhook(webhook.id, url=URL, events=["test"], headers=webhook.headers)
    assert caught.value.detail[0].loc == ("body", "headers", "Authorization")
    assert sender.set_webhook(webhook.id, url=URL, events=["test"]).headers == {}


def test_webhooks_are_listed_in_the_order_of_their_creation(gleanery: Client) -> None:
    made = [gleanery.create_webhook(f"{URL}/{n}", ["test"]).id for n in range(3)]
    assert [webhook.id for webhook in gleanery.webhooks()] == made


def test_what_does_not_exist_is_not_found(gleanery: Client) -> None:
    for call in (
        gleanery.get_webhook,
        gleanery.delete_webhook,
        gleanery.test_webhook,
        gleanery.rotate_webhook_secret,
        gleanery.enable_webhook,
    ):
        with pytest.raises(NotFound, match="There is no webhook with this id"):
            call("unknown")
    with pytest.raises(NotFound):
        list(gleanery.deliveries("unknown"))
    webhook = gleanery.create_webhook(URL, ["test"])
    with pytest.raises(NotFound, match="delivery"):
        gleanery.redeliver(webhook.id, "unknown")


def test_wrong_settings_are_explained(gleanery: Client) -> None:
    with pytest.raises(Invalid, match="url"):
        gleanery.create_webhook("http://127.0.0.1/", ["test"])
    with pytest.raises(Invalid, match="events"):
        gleanery.create_webhook(URL, [])
    with pytest.raises(Invalid, match="events"):
        gleanery.create_webhook(URL, ["unknown"])
    with pytest.raises(TypeError, match="events must be a list"):
        gleanery.create_webhook(URL, "test")
    with pytest.raises(TypeError, match="groups must be a list"):
        gleanery.create_webhook(URL, ["test"], "prices")
    assert gleanery.webhooks() == []


def test_a_missing_scope_is_named(service: Service) -> None:
    reader = service.token("readers", frozenset({"webhooks:read"}))
    writer = service.token("readers", frozenset({"webhooks:write"}))
    with Client(service.url, reader) as reads, Client(service.url, writer) as writes:
        created = writes.create_webhook(URL, ["test"])
        assert [webhook.id for webhook in reads.webhooks()] == [created.id]
        with pytest.raises(Forbidden, match="webhooks:write"):
            reads.create_webhook(URL, ["test"])
        with pytest.raises(Forbidden, match="webhooks:read"):
            writes.webhooks()


def test_no_representation_has_the_secret(gleanery: Client) -> None:
    created = gleanery.create_webhook(URL, ["test"])
    rotated = gleanery.rotate_webhook_secret(created.id)
    for webhook in (created, rotated):
        for shown in (repr(webhook), str(webhook), pretty_repr(webhook), f"{[webhook]}"):
            assert webhook.secret not in shown
            assert "whsec_" not in shown
            assert created.id in shown


# --- deliveries ---------------------------------------------------------------------------------


def test_a_receiver_verifies_what_the_service_sends(sender: Client, hook: Receiver) -> None:
    webhook = sender.create_webhook(hook.url("/hook"), ["run.finished", "outputs.changed"])
    sent = sender.test_webhook(webhook.id)
    assert (sent.event, sent.status, sent.attempts) == ("test", "waiting", [])
    [received] = hook.wait_for(1, "/hook")
    event = verify(received.headers, received.body, webhook.secret)
    assert (event.id, event.type) == (sent.delivery_id, "test")
    assert event.data == {"webhook_id": webhook.id}
    assert event.timestamp == sent.create_date
    done = finished(sender, webhook.id, sent)
    assert (done.status, done.next_attempt_date, done.group_id) == ("delivered", None, None)
    [attempt] = done.attempts
    assert (attempt.status_code, attempt.response, attempt.error) == (200, "ok", None)
    with sender.run("prices", job_id="shop") as run:
        run.push([{"url": "https://shop.example/1", "price": 1}])
    [received] = hook.wait_for(1, "/hook", "run.finished")
    assert verify(received.headers, received.body, webhook.secret).data["run_id"] == run.run_id
    received, *_ = hook.wait_for(1, "/hook", "outputs.changed")
    changed = verify(received.headers, received.body, webhook.secret)
    assert changed.data["group_id"] == "prices"


def test_both_secrets_verify_during_a_rotation(sender: Client, hook: Receiver) -> None:
    created = sender.create_webhook(hook.url(), ["test"])
    rotated = sender.rotate_webhook_secret(created.id)
    assert (rotated.id, rotated.secret != created.secret) == (created.id, True)
    assert rotated.old_secret_expires is not None
    assert sender.get_webhook(created.id).old_secret_expires == rotated.old_secret_expires
    sender.test_webhook(created.id)
    [received] = hook.wait_for(1)
    for secret in (created.secret, rotated.secret):
        assert verify(received.headers, received.body, secret).type == "test"
    with pytest.raises(InvalidWebhook):
        verify(received.headers, received.body + b" ", rotated.secret)


def test_deliveries_are_listed_and_sent_again(sender: Client, hook: Receiver) -> None:
    hook.answer("/", FAIL)
    webhook = sender.create_webhook(hook.url(), ["test"])
    failed = finished(sender, webhook.id, sender.test_webhook(webhook.id))
    assert failed.status == "waiting"
    assert failed.next_attempt_date is not None
    attempt = failed.attempts[0]
    assert (attempt.status_code, attempt.response) == (500, "broken")
    assert "500" in (attempt.error or "")
    assert sender.get_webhook(webhook.id).failing_since is not None
    hook.answer("/", _ACCEPTED)
    again = finished(sender, webhook.id, sender.redeliver(webhook.id, failed.delivery_id))
    assert (again.status, again.attempts[-1].status_code) == ("delivered", 204)
    assert len(again.attempts) >= 2
    assert {received.id for received in hook.received()} == {failed.delivery_id}
    latest = finished(sender, webhook.id, sender.test_webhook(webhook.id))
    assert [*sender.deliveries(webhook.id, page_size=1)] == [latest, again]
    assert [*sender.deliveries(webhook.id, limit=1)] == [latest]
    assert [*sender.deliveries(webhook.id, status="failed")] == []
    assert len([*sender.deliveries(webhook.id, status="delivered", event="test").raw()]) == 2
    pager = sender.deliveries(webhook.id, page_size=1, limit=1)
    assert [*pager] == [latest]
    assert [*sender.deliveries(webhook.id, cursor=pager.cursor)] == [again]


def test_a_disabled_webhook_is_enabled(sender: Client, hook: Receiver) -> None:
    hook.answer("/", GONE)
    webhook = sender.create_webhook(hook.url(), ["test"])
    sender.test_webhook(webhook.id)
    wait_until(lambda: sender.get_webhook(webhook.id).status == "disabled")
    disabled = sender.get_webhook(webhook.id)
    assert disabled.disabled_date is not None
    assert "410" in (disabled.disabled_reason or "")
    with pytest.raises(Conflict, match="enable it first"):
        sender.test_webhook(webhook.id)
    hook.answer("/", _ACCEPTED)
    enabled = sender.enable_webhook(webhook.id)
    assert (enabled.status, enabled.disabled_date) == ("enabled", None)
    hook.wait_for(2)  # what waited is sent


def test_the_asynchronous_client_does_the_same(sending: Service, hook: Receiver) -> None:
    async def use() -> None:
        async with AsyncClient(sending.url, sending.token()) as client:
            created = await client.create_webhook(hook.url(), ["test"], description="async")
            sent = await client.test_webhook(created.id)
            await asyncio.to_thread(hook.wait_for, 1)
            assert [one.delivery_id async for one in client.deliveries(created.id)] == [
                sent.delivery_id
            ]
            assert [one.description for one in await client.webhooks()] == ["async"]
            await client.rotate_webhook_secret(created.id)
            await client.delete_webhook(created.id)

    asyncio.run(use())


# --- retries ------------------------------------------------------------------------------------


class _LosesResponses(httpx2.BaseTransport):
    """Passes requests on to the service, and loses the first response to each of them."""

    def __init__(self) -> None:
        self._inner = httpx2.HTTPTransport(verify=False)
        self._seen: set[str] = set()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        key = f"{request.method} {request.url}"
        response = self._inner.handle_request(request)
        if request.method == "GET" or key in self._seen:
            return response
        self._seen.add(key)
        response.read()
        raise httpx2.ReadError("connection reset")


@pytest.fixture
def unreliable(sending: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", lambda _: None)
    with httpx2.Client(transport=_LosesResponses()) as http_client:
        yield Client(sending.url, sending.token(), http_client=http_client)


def test_a_lost_response_creates_no_second_webhook_and_no_second_secret(
    unreliable: Client, hook: Receiver
) -> None:
    with pytest.raises(ConnectionFailed) as raised:
        unreliable.create_webhook(hook.url(), ["test"])
    assert (raised.value.attempts, raised.value.was_connected) == (1, True)
    [webhook] = unreliable.webhooks()
    with pytest.raises(ConnectionFailed):
        unreliable.rotate_webhook_secret(webhook.id)
    sent = unreliable.test_webhook(webhook.id)  # the event is sent twice, which does no harm
    assert sent.event == "test"
    signatures = hook.wait_for(2)[0].headers["webhook-signature"].split()
    assert len(signatures) == 2  # of the first secret and of one rotation
    unreliable.set_webhook(webhook.id, url=hook.url(), events=["test"])
    unreliable.enable_webhook(webhook.id)
    unreliable.redeliver(webhook.id, sent.delivery_id)
    unreliable.delete_webhook(webhook.id)
    assert unreliable.webhooks() == []


UNCERTAIN = {
    **{f"status {status}": respond(status, _DETAIL) for status in (408, 500, 502, 503, 504)},
    "closed": faults.CLOSE,
    "closed in the body": faults.CLOSE_IN_BODY,
    "stalled": faults.STALL,
    "page": respond(200, b"<html>Please wait</html>", content_type="text/html"),
}


@pytest.mark.parametrize("fault", UNCERTAIN.values(), ids=UNCERTAIN.keys())
def test_what_the_service_may_have_done_is_not_repeated(fault: Step) -> None:
    async def rotate(url: str) -> None:
        async with AsyncClient(url, "token", timeout=0.2) as client:
            await client.rotate_webhook_secret("w")

    with faulty_server(fault) as server:
        with Client(server.url, "token", timeout=0.2) as client, pytest.raises(Exception):  # noqa: B017, PT011
            client.create_webhook(URL, ["test"])
        assert len(server.heads) == 1
        with pytest.raises(Exception):  # noqa: B017, PT011
            asyncio.run(rotate(server.url))
        assert len(server.heads) == 2


def test_a_request_that_was_refused_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", delays.append)
    refused = respond(429, _DETAIL, retry_after="3")
    with faulty_server(refused, refused, respond(503, _DETAIL)) as server:
        with Client(server.url, "token") as client, pytest.raises(Unavailable) as raised:
            client.create_webhook(URL, ["test"])
        assert (raised.value.attempts, len(server.heads), delays) == (3, 3, [3.0, 3.0])
    with (
        faulty_server(refused) as server,
        Client(server.url, "token", max_retries=1) as client,
        pytest.raises(RateLimited),
    ):
        client.create_webhook(URL, ["test"])


def test_a_service_that_is_not_there_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", lambda _: None)
    with (
        Client(f"http://127.0.0.1:{free_port()}", "token", max_retries=2) as client,
        pytest.raises((ConnectionFailed, TimedOut)) as raised,
    ):
        client.create_webhook(URL, ["test"])
    assert (raised.value.attempts, raised.value.was_connected) == (3, False)
