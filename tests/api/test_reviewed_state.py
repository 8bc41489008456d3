"""Reviews of what their reviewer has seen: ``as_of`` over HTTP, on both engines."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.support.outputs import output, read_changes
from tests.support.process import database_options, run_successfully
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings


def cursor(client: Client) -> int:
    """The end of the group's change order."""
    found: int = client.get("/v1/groups/group").json()["cursor"]
    return found


def send(client: Client, status: str = "approved", **members: Any) -> httpx2.Response:
    body = {"job_id": "job", "status": status} | members
    return client.post("/v1/reviews/group", json=body)


def review(client: Client, status: str = "approved", **members: Any) -> dict[str, Any]:
    answer = send(client, status, **members)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def approvals(client: Client) -> dict[int, bool]:
    return {item["data"]["number"]: item["is_approved"] for item in client.items("group")}


def test_an_approval_skips_values_that_the_reviewer_has_not_seen(client: Client) -> None:
    client.store("group", output(1), output(2), output(3))
    seen = cursor(client)
    client.store("group", output(2, data={"number": 22}), output(4))
    made = review(client, as_of=seen)
    assert approvals(client) == {1: True, 3: True, 22: False, 4: False}
    [job] = client.get("/v1/groups/group").json()["jobs"]
    assert (job["approved"], job["latest_review"]) == (2, made)
    assert client.get(f"/v1/reviews/group/{made['review_id']}").json()["as_of"] == seen


def test_a_scrape_without_a_change_and_a_review_make_no_new_value(client: Client) -> None:
    client.store("group", output(1), output(2))
    seen = cursor(client)
    client.store("group", output(1))
    review(client)
    review(client, "changes_requested")
    assert cursor(client) > seen
    review(client, as_of=seen)
    assert approvals(client) == {1: True, 2: True}


def test_new_tags_are_not_approved_unseen(client: Client) -> None:
    client.store("group", output(1))
    seen = cursor(client)
    client.store("group", output(1, tags={"country": "DE"}))
    review(client, as_of=seen)
    assert approvals(client) == {1: False}


@pytest.mark.parametrize("status", ["changes_requested", "rejected"])
def test_a_withdrawal_skips_values_that_the_reviewer_has_not_seen(
    client: Client, status: str
) -> None:
    client.store("group", output(1), output(2))
    seen = cursor(client)
    client.store("group", output(2, data={"number": 22}))
    review(client)
    review(client, status, as_of=seen)
    assert approvals(client) == {1: False, 22: True}


def test_a_client_that_catches_up_reviews_what_it_has_received(client: Client) -> None:
    """Its cursors are smaller than every sequence number."""
    client.store("group", output(1), output(2))
    client.delete(f"/v1/outputs/group/{client.items('group')[1]['output_id']}")
    page = read_changes(client, limit=1)
    assert [change["output"]["data"] for change in page["changes"]] == [{"number": 1}]
    client.store("group", output(3))
    review(client, as_of=page["cursor"])
    assert approvals(client) == {1: True, 3: False}


def test_a_position_after_the_last_change_is_rejected(client: Client) -> None:
    client.store("group", output(1))
    end = cursor(client)
    answer = send(client, as_of=end + 1)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "as_of"]
    for invalid in (-1, 2**63, "1", 1.5, True):
        assert send(client, as_of=invalid).status_code == 422
    assert client.get("/v1/reviews/group").json() == []
    review(client, as_of=float(end))
    assert approvals(client) == {1: True}


def test_a_position_before_all_outputs_approves_nothing(client: Client) -> None:
    client.store("group", output(1))
    review(client, as_of=0)
    assert approvals(client) == {1: False}


def test_another_position_needs_another_idempotency_key(client: Client) -> None:
    client.store("group", output(1))

    def send_with_key(as_of: int) -> httpx2.Response:
        body = {"job_id": "job", "status": "approved", "as_of": as_of}
        return client.post("/v1/reviews/group", json=body, headers={"Idempotency-Key": "k"})

    seen = cursor(client)
    first = send_with_key(seen)
    assert first.content == send_with_key(seen).content
    assert send_with_key(seen - 1).status_code == 409


@pytest.mark.thorough
def test_a_position_from_before_a_restore_is_gone(
    engine: str, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    service = Service(settings)
    token = service.token()
    with service.client(token) as client:
        client.store("group", output(1))
        seen = cursor(client)
    service.stop()
    run_successfully("restored", "--yes", *database_options(settings))
    service = Service(settings)
    with service.client(token) as client:
        answer = send(client, as_of=seen)
        assert answer.status_code == 410
        assert answer.json()["detail"][0]["loc"] == ["body", "as_of"]
        review(client, as_of=cursor(client))
        assert approvals(client) == {1: True}
    service.stop()


@pytest.mark.parametrize("members", [{}, {"output_ids": True}])
def test_a_rejection_removes_the_approved_version_that_was_seen(
    client: Client, members: dict[str, Any]
) -> None:
    client.store("group", output(1), output(2), output(3))
    review(client)
    client.store("group", output(2, data={"number": 22}))
    seen = cursor(client)
    client.store("group", output(1, data={"number": 11}), output(2, data={"number": 222}))
    ids = [item["output_id"] for item in client.items("group")]
    named = {"output_ids": ids} if members else {}
    review(client, "rejected", as_of=seen, **named)
    assert client.items("group", view="approved") == []
    assert approvals(client) == {11: False, 222: False, 3: False}


def test_a_rejection_keeps_an_approved_version_that_was_not_seen(client: Client) -> None:
    client.store("group", output(1))
    seen = cursor(client)
    client.store("group", output(1, data={"number": 11}))
    review(client)
    client.store("group", output(1, data={"number": 111}))
    review(client, "rejected", as_of=seen)
    [item] = client.items("group", view="approved")
    assert item["data"] == {"number": 11}
