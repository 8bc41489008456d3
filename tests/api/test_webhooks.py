"""Webhooks over HTTP, on both engines: settings, secrets, events, signatures and doorbells."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from standardwebhooks import WebhookVerificationError

from gleanery.service.resources.webhooks import deliveries as stored_deliveries
from tests.support import runs
from tests.support.outputs import output
from tests.support.receiver import CLOSE, ENDLESS, FAIL, GONE, Answer, Receiver, redirect
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until
from tests.support.webhooks import (
    ALLOWED,
    FAR,
    act,
    change,
    create,
    delivered,
    deliveries,
    nudge,
    rings,
    show,
    signatures,
    verify,
    wait_for_attempts,
    wait_for_ring,
    wait_until_delivered,
)

MEMBERS = {
    *("id", "url", "events", "groups", "description", "format", "headers", "status"),
    *(
        "create_date",
        "update_date",
        "disabled_date",
        "disabled_reason",
        "failing_since",
        "old_secret_expires",
    ),
}
KIB = 1024
_paths = itertools.count(1)


@pytest.fixture(scope="module")
def service(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service that may send to the receiver."""
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp("webhooks"))
    settings = replace(settings, webhook_allow=ALLOWED, shutdown_seconds=1)
    running = Service(settings)
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


# --- settings -----------------------------------------------------------------------------------


def test_a_webhook_is_created_read_changed_and_deleted(client: Client) -> None:
    events = ["run.finished", "outputs.changed"]
    webhook = create(client, FAR, *events, groups=["a", "b"], description="Warehouse")
    secret = webhook.pop("secret")
    assert secret.startswith("whsec_")
    assert webhook.keys() == MEMBERS
    assert (webhook["url"], webhook["events"], webhook["groups"]) == (FAR, events, ["a", "b"])
    assert (webhook["description"], webhook["format"]) == ("Warehouse", "standard")
    assert (webhook["status"], webhook["failing_since"]) == ("enabled", None)
    assert show(client, webhook) == webhook
    page = client.get("/v1/webhooks").json()
    last = {"next_url": None, "next_cursor": None}
    assert page == {"metadata": last, "webhooks": [webhook]}
    body = {"url": FAR + "new", "events": ["test"]}
    changed = client.put(f"/v1/webhooks/{webhook['id']}", json=body).json()
    assert changed["update_date"] >= webhook["update_date"]
    expected = webhook | body | {"groups": None, "description": ""}
    assert changed | {"update_date": ""} == expected | {"update_date": ""}
    assert client.delete(f"/v1/webhooks/{webhook['id']}").json() == {"deleted": 1}
    assert client.get("/v1/webhooks").json()["webhooks"] == []
    assert client.get(f"/v1/webhooks/{webhook['id']}").status_code == 404
    assert client.delete(f"/v1/webhooks/{webhook['id']}").status_code == 404


def test_webhooks_are_listed_oldest_first(client: Client) -> None:
    ids = [create(client, FAR + str(number))["id"] for number in range(3)]
    assert [one["id"] for one in client.get("/v1/webhooks").json()["webhooks"]] == ids


def test_what_is_given_twice_is_kept_once(client: Client) -> None:
    webhook = create(client, FAR, "test", "test", groups=["b", "a", "b"])
    assert (webhook["events"], webhook["groups"]) == (["test"], ["b", "a"])


@pytest.mark.parametrize(
    "members",
    [
        {"url": ""},
        {"url": "x" * 2001},
        {"url": f"https://a.example/{'x' * 2000}"},
        {"events": []},
        {"events": ["unknown"]},
        {"events": None},
        {"groups": []},
        {"groups": [""]},
        {"groups": ["g"] * 101},
        {"format": "email"},
        {"description": "x" * 501},
    ],
    ids=str,
)
def test_settings_that_are_not_valid_are_refused(client: Client, members: dict[str, Any]) -> None:
    webhook = create(client, FAR)
    body = {"url": FAR, "events": ["test"], **members}
    refused = client.post("/v1/webhooks", json=body)
    assert refused.status_code == 422, refused.text
    [name] = members
    assert refused.json()["detail"][0]["loc"][:2] == ["body", name]
    assert client.put(f"/v1/webhooks/{webhook['id']}", json=body).status_code == 422
    assert client.get("/v1/webhooks").json()["webhooks"] == [show(client, webhook)]


def test_an_organization_has_at_most_100_webhooks(client: Client) -> None:
    created = [create(client, FAR) for _ in range(100)]
    refused = client.post("/v1/webhooks", json={"url": FAR, "events": ["test"]})
    assert refused.status_code == 409
    assert refused.json()["detail"][0]["type"] == "webhook_conflict"
    assert len(client.get("/v1/webhooks").json()["webhooks"]) == 100
    client.delete(f"/v1/webhooks/{created[0]['id']}")
    create(client, FAR)


# --- secrets ------------------------------------------------------------------------------------


def test_a_secret_is_shown_once(
    client: Client, service: Service, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path), "test", "review.created")
    rotated = act(client, webhook, "rotate")
    secrets = [webhook["secret"], rotated["secret"]]
    assert len(set(secrets)) == 2
    act(client, webhook, "test")
    [received] = delivered(receiver, path, rotated["secret"], 1)
    wait_until_delivered(client, webhook)
    answers = [
        client.get("/v1/webhooks"),
        client.get(f"/v1/webhooks/{webhook['id']}"),
        client.get(f"/v1/webhooks/{webhook['id']}/deliveries"),
        client.put(
            f"/v1/webhooks/{webhook['id']}", json={"url": webhook["url"], "events": ["test"]}
        ),
        client.post(f"/v1/webhooks/{webhook['id']}/enable"),
        client.post(f"/v1/webhooks/{webhook['id']}/test"),
        client.post(f"/v1/webhooks/{webhook['id']}/deliveries/{received.id}/redeliver"),
        client.get("/v1/audit"),
        client.get("/metrics"),
    ]
    shown = "".join(answer.text for answer in answers) + received.body.decode()
    for secret in secrets:
        assert secret.removeprefix("whsec_") not in shown
        assert secret.removeprefix("whsec_") not in str(received.headers)


def test_both_secrets_verify_a_delivery_during_a_rotation(
    client: Client, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path))
    secrets = [webhook["secret"], *(act(client, webhook, "rotate")["secret"] for _ in range(2))]
    act(client, webhook, "test")
    [received] = receiver.wait_for(1, path)
    verify(received, *secrets)
    assert len(signatures(received)) == 3
    with pytest.raises(WebhookVerificationError):
        verify(received._replace(body=received.body + b" "), secrets[0])


# --- scopes, isolation, audit -------------------------------------------------------------------


def routes(webhook_id: str, delivery_id: str) -> list[tuple[str, str, bool]]:
    """Method, path, and whether the route writes."""
    one = f"/v1/webhooks/{webhook_id}"
    return [
        ("GET", one, False),
        ("GET", f"{one}/deliveries", False),
        ("PUT", one, True),
        ("POST", f"{one}/test", True),
        ("POST", f"{one}/rotate", True),
        ("POST", f"{one}/enable", True),
        ("POST", f"{one}/deliveries/{delivery_id}/redeliver", True),
        ("DELETE", one, True),
    ]


def test_reading_and_writing_have_their_scopes(service: Service, client: Client) -> None:
    token_of = {
        scope: service.token(scopes=frozenset({scope}))
        for scope in ("webhooks:read", "webhooks:write", "outputs:write")
    }
    body = {"url": FAR, "events": ["test"]}
    for scope, token in token_of.items():
        with service.client(token) as limited:
            may_write, may_read = scope == "webhooks:write", scope == "webhooks:read"
            assert (limited.post("/v1/webhooks", json=body).status_code == 200) == may_write
            assert (limited.get("/v1/webhooks").status_code == 200) == may_read
            for method, route, writes in routes("0" * 32, "msg_x"):
                sent: dict[str, Any] = {"json": body} if method == "PUT" else {}
                status = limited.request(method, route, **sent).status_code
                assert status == (404 if (may_write if writes else may_read) else 403)


def test_a_foreign_webhook_looks_unknown(
    service: Service, client: Client, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path))
    delivery = act(client, webhook, "test")
    unknown = routes("0" * 32, "msg_" + "0" * 32)
    foreign = routes(webhook["id"], delivery["delivery_id"])
    body = {"url": FAR, "events": ["test"]}
    with service.client() as stranger:
        own = create(stranger, FAR)
        for pair in zip(unknown, foreign, strict=True):
            answers = []
            for method, route, _ in pair:
                sent: dict[str, Any] = {"json": body} if method == "PUT" else {}
                answers.append(stranger.request(method, route, **sent))
            assert [answer.status_code for answer in answers] == [404, 404]
            assert answers[0].content == answers[1].content
        redeliver = f"/v1/webhooks/{own['id']}/deliveries/{{}}/redeliver"
        first = stranger.post(redeliver.format("msg_" + "0" * 32))
        second = stranger.post(redeliver.format(delivery["delivery_id"]))
        assert (first.status_code, first.content) == (404, second.content)
        assert [one["id"] for one in stranger.get("/v1/webhooks").json()["webhooks"]] == [own["id"]]
    assert show(client, webhook)["url"] == receiver.url(path)
    assert len(receiver.wait_for(1, path)) == 1


def test_a_delivery_of_another_webhook_of_the_organization_is_unknown(
    client: Client, receiver: Receiver, path: str
) -> None:
    first, second = create(client, receiver.url(path)), create(client, FAR)
    delivery = act(client, first, "test")
    route = f"/v1/webhooks/{second['id']}/deliveries/{delivery['delivery_id']}/redeliver"
    assert client.post(route).status_code == 404


def test_events_stay_in_their_organization(
    service: Service, client: Client, receiver: Receiver, path: str
) -> None:
    every = ("outputs.changed", "run.finished", "review.created")
    mine = create(client, receiver.url(f"{path}/a"), *every)
    with service.client() as stranger:
        create(stranger, receiver.url(f"{path}/b"), *every)
        client.store("group", output(1))
        runs.complete(client, 1)
        client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
        delivered(receiver, f"{path}/a", mine["secret"], 3)
        own = create(stranger, receiver.url(f"{path}/c"))
        act(stranger, own, "test")
        receiver.wait_for(1, f"{path}/c")
    assert receiver.received(f"{path}/b") == []


def test_changes_are_audited_without_the_url_and_the_secret(client: Client) -> None:
    webhook = create(client, FAR + "path-of-the-url", description="a-description")
    delivery = act(client, webhook, "test")
    change(client, webhook, url=FAR + "new-url")
    act(client, webhook, "rotate")
    act(client, webhook, f"deliveries/{delivery['delivery_id']}/redeliver")
    act(client, webhook, "enable")
    client.delete(f"/v1/webhooks/{webhook['id']}")
    log = client.get("/v1/audit")
    about = {"webhook_id": webhook["id"]}
    assert [(one["action"], one["about"]) for one in log.json()["entries"][1:]] == [
        ("create_webhook", about),
        ("test_webhook", about),
        ("set_webhook", about),
        ("rotate_webhook_secret", about),
        ("redeliver", about | {"delivery_id": delivery["delivery_id"]}),
        ("enable_webhook", about),
        ("delete_webhook", about),
    ]
    for text in (webhook["secret"], "whsec", "path-of-the-url", "new-url", "a-description"):
        assert text not in log.text


def test_a_refused_change_is_not_audited(client: Client) -> None:
    client.post("/v1/webhooks", json={"url": "https://127.0.0.2/", "events": ["test"]})
    client.post("/v1/webhooks/unknown/rotate")
    [only] = client.get("/v1/audit").json()["entries"]
    assert only["action"] == "create_token"


# --- deliveries ---------------------------------------------------------------------------------


def test_a_delivery_shows_its_attempt(client: Client, receiver: Receiver, path: str) -> None:
    receiver.answer(path, Answer(201, b"accepted"))
    webhook = create(client, receiver.url(path))
    stored = act(client, webhook, "test")
    assert (stored["status"], stored["event"], stored["attempts"]) == ("waiting", "test", [])
    assert stored["next_attempt_date"] is not None
    [received] = delivered(receiver, path, webhook["secret"], 1)
    assert (received.id, received.headers["content-type"]) == (
        stored["delivery_id"],
        "application/json",
    )
    assert received.headers["user-agent"].startswith("Gleanery/")
    assert received.json["timestamp"] == stored["create_date"]
    assert received.data == {"webhook_id": webhook["id"]}
    [shown] = wait_until_delivered(client, webhook)
    [attempt] = shown["attempts"]
    assert (attempt["status_code"], attempt["response"]) == (201, "accepted")
    assert attempt["error"] is None
    assert attempt["duration_ms"] >= 0
    assert (shown["status"], shown["next_attempt_date"]) == ("delivered", None)


def test_deliveries_are_filtered_and_paged(client: Client, receiver: Receiver, path: str) -> None:
    webhook = create(client, receiver.url(path), "test", "review.created")
    client.store("group", output(1))
    ids = []
    for number in range(5):
        if number % 2:
            client.post("/v1/reviews/group", json={"job_id": "job", "status": "pending"})
        else:
            act(client, webhook, "test")
    wait_until(lambda: len(deliveries(client, webhook, status="delivered")) == 5)
    ids = [one["delivery_id"] for one in deliveries(client, webhook)]
    assert [one.id for one in receiver.received(path)] == ids
    tests = [one["delivery_id"] for one in deliveries(client, webhook, event="test")]
    assert tests == ids[::2]
    assert deliveries(client, webhook, status="failed") == []
    reviews = deliveries(client, webhook, event="review.created", status="delivered")
    assert [one["group_id"] for one in reviews] == ["group", "group"]
    filters: list[dict[str, Any]] = [{}, {"event": "test"}, {"status": "delivered"}]
    for query in filters:
        for limit in (1, 2, 3, 5, 6):
            expected = tests if "event" in query else ids
            assert paged(client, webhook, limit=limit, **query) == expected[::-1]
    base = f"/v1/webhooks/{webhook['id']}/deliveries"
    for wrong in ("limit=0", "limit=1001", "status=x", "event=x", "cursor=-1", "cursor=x"):
        assert client.get(f"{base}?{wrong}").status_code == 422


def paged(client: Client, webhook: dict[str, Any], **query: Any) -> list[str]:
    """The ids on all pages, newest first."""
    answer = client.get(f"/v1/webhooks/{webhook['id']}/deliveries", params=query)
    found = []
    for _ in range(20):
        page = answer.json()
        assert len(page["deliveries"]) <= query["limit"]
        found += [one["delivery_id"] for one in page["deliveries"]]
        if page["metadata"]["next_url"] is None:
            assert page["metadata"]["next_cursor"] is None
            return found
        answer = client.get(page["metadata"]["next_url"])
    raise AssertionError("the pages do not end")


def test_a_page_of_deliveries_with_large_responses_is_not_large(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 deliveries with 20 responses each would have 60 MB."""
    webhook = create(client, FAR)
    ids = [act(client, webhook, "test")["delivery_id"] for _ in range(4)]
    sizes = [len(deliveries(client, webhook))]
    monkeypatch.setattr(stored_deliveries, "_PAGE_BYTES", 1)
    for query in ({}, {"event": "test"}):
        sizes.append(len(deliveries(client, webhook, **query)))
        assert paged(client, webhook, limit=3, **query) == ids[::-1]
    assert sizes == [4, 1, 1]


def test_an_event_is_sent_again_with_the_same_id(
    client: Client, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path))
    delivery = act(client, webhook, "test")
    wait_for_attempts(client, webhook, 1)
    again = act(client, webhook, f"deliveries/{delivery['delivery_id']}/redeliver")
    assert (again["delivery_id"], again["status"]) == (delivery["delivery_id"], "waiting")
    first, second = delivered(receiver, path, webhook["secret"], 2)
    assert (first.id, first.body) == (second.id, second.body)
    shown = wait_for_attempts(client, webhook, 2)
    assert (shown["status"], len(shown["attempts"])) == ("delivered", 2)


def test_a_deleted_webhook_gets_nothing_more(client: Client, receiver: Receiver, path: str) -> None:
    receiver.answer(path, FAIL)
    webhook = create(client, receiver.url(path), "test", "outputs.changed")
    act(client, webhook, "test")
    wait_for_attempts(client, webhook, 1)
    client.delete(f"/v1/webhooks/{webhook['id']}")
    client.store("group", output(1))
    other = create(client, receiver.url(f"{path}/other"))
    act(client, other, "test")
    receiver.wait_for(1, f"{path}/other")
    assert len(receiver.received(path)) == 1


def test_a_changed_address_gets_what_waits(client: Client, receiver: Receiver, path: str) -> None:
    receiver.answer(f"{path}/old", FAIL)
    webhook = create(client, receiver.url(f"{path}/old"))
    delivery = act(client, webhook, "test")
    wait_for_attempts(client, webhook, 1)
    assert show(client, webhook)["failing_since"] is not None
    changed = change(client, webhook, url=receiver.url(f"{path}/new"))
    assert changed["failing_since"] is None
    [received] = delivered(receiver, f"{path}/new", webhook["secret"], 1)
    assert received.id == delivery["delivery_id"]


# --- events -------------------------------------------------------------------------------------


def test_a_finished_run_is_sent_with_its_final_counts(
    client: Client, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path), "run.finished")
    expected = []
    for status in ("complete", "partial", "failed"):
        run_id = runs.start(client, labels={"country": "DE"})
        runs.push(client, run_id, 1, 2)
        expected.append(runs.finish(client, run_id, status, message="all pages"))
        assert runs.finish(client, run_id, status, message="all pages") == expected[-1]
    received = delivered(receiver, path, webhook["secret"], 3)
    assert [one.data for one in received] == expected
    assert [one.type for one in received] == ["run.finished"] * 3
    wait_until_delivered(client, webhook)
    assert len(receiver.received(path)) == 3


def test_a_review_is_sent_once_it_is_stored(client: Client, receiver: Receiver, path: str) -> None:
    webhook = create(client, receiver.url(path), "review.created")
    client.store("group", output(1))
    refused = client.post("/v1/reviews/group", json={"job_id": "x", "status": "approved"})
    assert refused.status_code == 404
    review = {"job_id": "job", "status": "in_review", "comment": "Prices <look> good"}
    stored = client.post("/v1/reviews/group", json=review).json()
    [received] = delivered(receiver, path, webhook["secret"], 1)
    assert received.type == "review.created"
    assert received.data == {"group_id": "group", **stored}


def test_bodies_stay_below_20_kb(client: Client, receiver: Receiver, path: str) -> None:
    webhook = create(client, receiver.url(path), "run.finished", "review.created")
    for character in ("x", "\U0001f600", '"', "\n"):
        labels = {f"{number:02}".ljust(64, "€"): character * 256 for number in range(16)}
        run_id = runs.start(client, labels=labels)
        runs.finish(client, run_id, "failed", message=character * 2000)
    client.store("group", output(1))
    for character in ("x", "\U0001f600", '"'):
        review = {"job_id": "job", "status": "rejected", "comment": character * 50_000}
        assert client.post("/v1/reviews/group", json=review).status_code == 200
    for one in delivered(receiver, path, webhook["secret"], 7):
        assert len(one.body) < 20_000
        assert one.data["job_id"] == "job"
    failed = receiver.received(path, "run.finished")[0]
    assert failed.data["labels"] == {
        f"{number:02}".ljust(64, "€"): "x" * 256 for number in range(16)
    }


def test_events_of_other_groups_are_not_sent(client: Client, receiver: Receiver, path: str) -> None:
    every = ("outputs.changed", "run.finished", "review.created", "test")
    webhook = create(client, receiver.url(path), *every, groups=["wanted"])
    for group in ("other", "wanted"):
        run_id = client.post(f"/v1/runs/{group}", json={"job_id": "job"}).json()["run_id"]
        client.store(group, output(1))
        client.post(f"/v1/runs/{group}/{run_id}/finish", json={"status": "partial"})
        client.post(f"/v1/reviews/{group}", json={"job_id": "job", "status": "pending"})
    act(client, webhook, "test")
    wait_until(lambda: len({one.type for one in receiver.received(path)}) == 4)
    wait_until_delivered(client, webhook)
    groups = [one.data.get("group_id") for one in delivered(receiver, path, webhook["secret"], 4)]
    assert set(groups) == {"wanted", None}


def test_events_arrive_in_the_order_of_their_causes(
    client: Client, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path), "run.finished")
    ids = [runs.start(client) for _ in range(30)]
    for run_id in ids:
        runs.finish(client, run_id, "failed")
    received = delivered(receiver, path, webhook["secret"], 30)
    assert [one.data["run_id"] for one in received] == ids
    assert len({one.id for one in received}) == 30


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "response", "error"),
    [
        (FAIL, 500, "broken", "status 500"),
        (Answer(199 + 5), 204, None, None),
        (Answer(404, b""), 404, "", "status 404"),
        (CLOSE, None, None, "closed before its end"),
        (ENDLESS, 200, "x" * KIB, None),
        (Answer(200, b"y" * 100_000), 200, "y" * KIB, None),
        (Answer(200, b"\x00\xff\x1b[31m ok"), 200, "\ufffd\ufffd\ufffd[31m ok", None),
        (
            Answer(500, "é".encode() * 2000, {"content-type": "text/plain"}),
            500,
            "é" * 512,
            "status 500",
        ),
    ],
    ids=["500", "204", "404", "closed", "endless", "large", "binary", "text"],
)
def test_what_an_answer_means(
    client: Client,
    receiver: Receiver,
    path: str,
    answer: Answer,
    status: int | None,
    response: str | None,
    error: str | None,
) -> None:
    receiver.answer(path, answer._replace(body=b"") if answer.status == 204 else answer)
    webhook = create(client, receiver.url(path))
    act(client, webhook, "test")
    shown = wait_for_attempts(client, webhook, 1)
    [attempt] = shown["attempts"]
    assert attempt["status_code"] == status
    assert (attempt["response"] or "") == (response or "")
    assert shown["status"] == ("delivered" if error is None else "waiting")
    assert (error or "") in (attempt["error"] or "")
    assert (error is None) == (attempt["error"] is None)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(
    client: Client, receiver: Receiver, path: str, status: int
) -> None:
    with_listener = Receiver()
    receiver.answer(path, redirect(with_listener.url("/internal"), status))
    webhook = create(client, receiver.url(path))
    act(client, webhook, "test")
    [attempt] = wait_for_attempts(client, webhook, 1)["attempts"]
    with_listener.stop()
    assert attempt["status_code"] == status
    assert "redirect" in attempt["error"]
    assert with_listener.connections == 0


def test_a_refused_connection_is_a_failure(client: Client, path: str) -> None:
    stopped = Receiver()
    stopped.stop()
    webhook = create(client, stopped.url(path))
    act(client, webhook, "test")
    shown = wait_for_attempts(client, webhook, 1)
    [attempt] = shown["attempts"]
    assert (attempt["status_code"], attempt["response"]) == (None, None)
    assert attempt["error"] == "the connection was refused"
    assert show(client, webhook)["failing_since"] is not None


def test_a_name_without_an_address_is_a_failure(client: Client) -> None:
    webhook = create(client, FAR)
    act(client, webhook, "test")
    [attempt] = wait_for_attempts(client, webhook, 1)["attempts"]
    assert "the host was not found" in attempt["error"]


def test_a_slow_receiver_does_not_delay_another_one(
    client: Client, service: Service, receiver: Receiver, path: str
) -> None:
    may_answer = threading.Event()
    receiver.answer(f"{path}/slow", Answer(until=may_answer))
    slow = create(client, receiver.url(f"{path}/slow"), "run.finished")
    fast = create(client, receiver.url(f"{path}/fast"), "run.finished")
    for _ in range(3):
        runs.finish(client, runs.start(client), "failed")
    with service.client() as stranger:
        other = create(stranger, receiver.url(f"{path}/other"))
        act(stranger, other, "test")
        receiver.wait_for(1, f"{path}/other")
    delivered(receiver, f"{path}/fast", fast["secret"], 3)
    assert len(receiver.received(f"{path}/slow")) == 1
    may_answer.set()
    received = delivered(receiver, f"{path}/slow", slow["secret"], 3)
    assert [one.data for one in received] == [one.data for one in receiver.received(f"{path}/fast")]


def test_410_disables_and_other_webhooks_learn_of_it(
    client: Client, receiver: Receiver, path: str
) -> None:
    receiver.answer(f"{path}/gone", GONE)
    gone = create(
        client, receiver.url(f"{path}/gone"), "test", "webhook.disabled", description="Old"
    )
    watching = create(client, receiver.url(f"{path}/watching"), "webhook.disabled", groups=["x"])
    act(client, gone, "test")
    [event] = delivered(receiver, f"{path}/watching", watching["secret"], 1)
    shown = show(client, gone)
    assert (shown["status"], shown["disabled_date"] is not None) == ("disabled", True)
    assert "410" in shown["disabled_reason"]
    assert event.type == "webhook.disabled"
    assert event.data == {
        "webhook_id": gone["id"],
        "description": "Old",
        "reason": shown["disabled_reason"],
    }
    for action in ("test", f"deliveries/{deliveries(client, gone)[0]['delivery_id']}/redeliver"):
        refused = client.post(f"/v1/webhooks/{gone['id']}/{action}")
        assert refused.status_code == 409
        assert "enable it first" in refused.json()["detail"][0]["msg"]
    receiver.answer(f"{path}/gone", Answer())
    enabled = act(client, gone, "enable")
    assert (enabled["status"], enabled["disabled_reason"], enabled["failing_since"]) == (
        "enabled",
        None,
        None,
    )
    wait_until_delivered(client, gone)
    assert len(receiver.received(f"{path}/gone")) == 2


def test_a_webhook_that_is_enabled_can_be_enabled_again(client: Client) -> None:
    webhook = create(client, FAR)
    assert act(client, webhook, "enable")["status"] == "enabled"


# --- doorbells ----------------------------------------------------------------------------------


def test_every_kind_of_change_rings(client: Client, receiver: Receiver, path: str) -> None:
    webhook = create(client, receiver.url(path), "outputs.changed")
    stored = client.store("group", output(1), output(2))
    wait_for_ring(client, receiver, path)
    client.store("group", output(1, data={"number": 7}))
    wait_for_ring(client, receiver, path)
    client.delete(f"/v1/outputs/group/{stored['results'][0]['output_id']}")
    wait_for_ring(client, receiver, path)
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    wait_for_ring(client, receiver, path)
    for one in delivered(receiver, path, webhook["secret"], 4):
        assert one.data.keys() == {"group_id", "cursor"}


def test_nothing_rings_that_has_not_changed(client: Client, receiver: Receiver, path: str) -> None:
    client.store("before", output(1))
    webhook = create(client, receiver.url(path), "outputs.changed", "test")
    client.store("group", output(1))
    wait_for_ring(client, receiver, path)
    client.store("group", output(1))  # as it is
    runs.start(client)
    act(client, webhook, "test")
    receiver.wait_for(2, path)
    assert len(rings(receiver, path)) == 1


def test_a_filter_of_groups_holds_for_doorbells(
    client: Client, receiver: Receiver, path: str
) -> None:
    create(client, receiver.url(path), "outputs.changed", groups=["group"])
    client.store("other", output(1))
    client.store("group", output(1))
    wait_for_ring(client, receiver, path)
    assert [group for group, _ in rings(receiver, path)] == ["group"]


def test_a_new_group_in_the_filter_rings(client: Client, receiver: Receiver, path: str) -> None:
    webhook = create(client, receiver.url(path), "outputs.changed", groups=["other"])
    client.store("group", output(1))
    change(client, webhook, groups=["other", "group"])
    wait_for_ring(client, receiver, path)


def test_many_changes_ring_few_times_and_the_last_one_is_rung(
    client: Client, receiver: Receiver, path: str
) -> None:
    may_answer = threading.Event()
    receiver.answer(path, Answer(until=may_answer))
    webhook = create(client, receiver.url(path), "outputs.changed")
    client.store("group", output(1))
    receiver.wait_for(1, path)
    for number in range(2, 30):
        client.store("group", output(number))
    assert len(rings(receiver, path)) == 1
    may_answer.set()
    wait_for_ring(client, receiver, path)
    assert len(rings(receiver, path)) <= 3  # the dispatcher may see the last changes later
    wait_until_delivered(client, webhook)
    [shown] = deliveries(client, webhook)  # of the delivered ones, the last is kept
    assert (shown["event"], shown["group_id"]) == ("outputs.changed", "group")


def test_changes_while_it_was_disabled_ring_when_it_is_enabled(
    client: Client, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path), "outputs.changed", "test", "run.finished")
    client.store("group", output(1))
    wait_for_ring(client, receiver, path)
    receiver.answer(path, GONE)
    act(client, webhook, "test")
    wait_until(lambda: show(client, webhook)["status"] == "disabled")
    client.store("group", output(2))
    runs.finish(client, runs.start(client), "failed")
    count = len(receiver.received(path))
    receiver.answer(path, Answer())
    act(client, webhook, "enable")
    wait_for_ring(client, receiver, path)
    wait_until_delivered(client, webhook)
    new = [one.type for one in receiver.received(path)[count:]]
    assert sorted(new) == ["outputs.changed", "test"]  # the run ended while it was disabled


def test_a_group_that_the_filter_leaves_out_now_does_not_ring(
    client: Client, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path), "outputs.changed", format="slack")
    client.store("left", output(1))
    receiver.wait_for(1, path)
    client.store("left", output(2))  # a chat gets the next message after five minutes
    nudge(client)
    changed = change(client, webhook, format="standard", groups=["group"])
    assert changed["groups"] == ["group"]
    for number in range(3):  # each a second after the one before
        client.store("group", output(number))
        wait_until(lambda count=number + 1: standard(receiver, path).count("group") == count)
    assert set(standard(receiver, path)) == {"group"}


def standard(receiver: Receiver, path: str) -> list[str]:
    """The groups of the doorbells that are not messages for a chat."""
    found = receiver.received(path)
    return [one.data["group_id"] for one in found if "type" in json.loads(one.body)]
