"""Reviews over HTTP, on both engines, and their effect on outputs."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.group_lock import LockedGroup
from tests.support.calls import note_calls
from tests.support.outputs import output
from tests.support.service import Client, Clock
from tests.support.waiting import wait_until


def review(client: Client, status: str, job: str = "job", comment: str = "") -> dict[str, Any]:
    answer = client.post(
        "/v1/reviews/group", json={"job_id": job, "status": status, "comment": comment}
    )
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def approvals(client: Client, **query: Any) -> dict[int, bool]:
    items = client.items("group", **query)
    return {item["data"]["number"]: item["is_approved"] for item in items}


def test_a_review_comes_back_in_the_shape_of_the_contract(client: Client) -> None:
    client.store("group", output(1))
    made = review(client, "approved", comment="fine – ü")
    assert made.keys() == {"job_id", "review_id", "review_date", "status", "comment"}
    assert all(isinstance(value, str) for value in made.values())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made["review_date"])
    assert client.get("/v1/reviews/group").json() == [made]


def test_the_latest_review_of_each_job_is_listed_newest_first(client: Client) -> None:
    client.store("group", *(output(1, job_id=job) for job in "abc"))
    for job, status in (("a", "pending"), ("b", "in_review"), ("a", "rejected")):
        review(client, status, job)
    latest = client.get("/v1/reviews/group").json()
    assert [(one["job_id"], one["status"]) for one in latest] == [
        ("a", "rejected"),
        ("b", "in_review"),
    ]


def test_a_group_without_reviews_has_an_empty_list(client: Client) -> None:
    client.store("group", output(1))
    assert client.get("/v1/reviews/group").json() == []


def test_a_comment_may_be_left_out(client: Client) -> None:
    client.store("group", output(1))
    answer = client.post("/v1/reviews/group", json={"job_id": "job", "status": "pending"})
    assert answer.json()["comment"] == ""


def test_reviewing_an_unknown_job_is_404(client: Client) -> None:
    body = {"job_id": "nobody", "status": "approved"}
    assert client.post("/v1/reviews/group", json=body).status_code == 404
    client.store("group", output(1))
    answer = client.post("/v1/reviews/group", json=body)
    assert answer.status_code == 404
    assert answer.json()["detail"][0]["loc"] == ["body", "job_id"]
    assert client.get("/v1/reviews/group").json() == []


def test_an_approval_covers_the_outputs_of_that_moment(client: Client) -> None:
    client.store("group", output(1), output(2), output(3, job_id="other"))
    review(client, "approved")
    client.store("group", output(4))
    assert approvals(client) == {1: True, 2: True, 3: False, 4: False}


@pytest.mark.parametrize("status", ["changes_requested", "rejected"])
def test_an_approval_can_be_withdrawn(client: Client, status: str) -> None:
    client.store("group", output(1), output(2))
    review(client, "approved")
    review(client, status)
    assert approvals(client) == {1: False, 2: False}


@pytest.mark.parametrize("status", ["pending", "in_review"])
def test_other_states_do_not_change_the_approval(client: Client, status: str) -> None:
    client.store("group", output(1))
    review(client, "approved")
    client.store("group", output(2))
    review(client, status)
    assert approvals(client) == {1: True, 2: False}


def test_only_a_new_value_needs_a_new_approval(client: Client) -> None:
    client.store("group", output(1), output(2))
    review(client, "approved")
    client.store("group", output(1), output(2, data={"number": 22}))
    assert approvals(client) == {1: True, 22: False}


def test_an_approval_moves_the_output_to_the_end_of_the_change_order(
    timed: Client, clock: Clock
) -> None:
    timed.store("group", output(1), output(2, job_id="other"))
    [first, _] = timed.items("group")
    clock.move(seconds=60)
    review(timed, "approved")
    [_, moved] = timed.items("group")
    assert moved["data"] == {"number": 1}
    assert moved["update_date"] > first["update_date"]
    assert moved["last_scraped_date"] == first["last_scraped_date"]
    assert approvals(timed, created_after=moved["update_date"]) == {1: True}
    clock.move(seconds=60)
    review(timed, "approved")  # no approval changes, so no output moves
    since = timestamps.render_microseconds(clock() - 30 * timestamps.SECOND)
    assert approvals(timed, created_after=since) == {}


def test_all_outputs_of_a_large_job_are_approved(client: Client) -> None:
    client.store("group", *(output(number) for number in range(3500)))
    review(client, "approved")
    items = client.items("group", limit=1000)
    assert len(items) == 3500
    assert all(item["is_approved"] for item in items)
    assert [item["data"]["number"] for item in items] == list(range(3500))


# --- Idempotency-Key ----------------------------------------------------------------------------

APPROVED = {"job_id": "job", "status": "approved", "comment": "fine"}


def send(client: Client, body: dict[str, Any], key: str, group: str = "group") -> httpx2.Response:
    return client.post(f"/v1/reviews/{group}", json=body, headers={"Idempotency-Key": key})


def history(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/reviews/group?history=true").json()
    return found


def test_a_repeated_review_gets_the_first_response(client: Client) -> None:
    client.store("group", output(1))
    first = send(client, APPROVED, "k")
    review(client, "rejected")
    again = send(client, dict(reversed(APPROVED.items())), "k")
    assert (again.status_code, again.content) == (200, first.content)
    assert [one["status"] for one in history(client)] == ["rejected", "approved"]
    assert approvals(client) == {1: False}
    other = send(client, APPROVED | {"comment": "other"}, "k")
    assert other.status_code == 409
    assert other.json()["detail"][0]["loc"] == ["header", "idempotency-key"]
    assert send(client, APPROVED, "k 2").status_code == 422
    client.store("second", output(1))
    assert send(client, APPROVED, "k", "second").json() != first.json()
    assert client.delete("/v1/groups/group").status_code == 200
    assert send(client, APPROVED, "k").content == first.content


def test_a_failed_review_does_not_use_its_key(client: Client) -> None:
    assert send(client, APPROVED, "k").status_code == 404
    client.store("group", output(1))
    assert send(client, APPROVED | {"job_id": "other"}, "k").status_code == 404
    assert send(client, APPROVED, "k").status_code == 200


def test_reviews_and_outputs_have_keys_of_their_own(client: Client) -> None:
    headers = {"Idempotency-Key": "k"}
    assert client.post("/v1/outputs/group", json=[output(1)], headers=headers).is_success
    assert send(client, APPROVED, "k").status_code == 200


@pytest.mark.thorough
def test_concurrent_repetitions_add_one_review(client: Client) -> None:
    client.store("group", *(output(number) for number in range(50)))
    with ThreadPoolExecutor(8) as threads:
        answers = [*threads.map(lambda _: send(client, APPROVED, "k"), range(16))]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(history(client)) == 1


@pytest.mark.thorough
def test_a_repeated_review_waits_until_the_outputs_are_approved(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of a large job may repeat its review because the first response takes too long."""
    client.store("group", *(output(number) for number in range(10_000)))
    steps = note_calls(monkeypatch, LockedGroup, "pending_bulk_job")
    with ThreadPoolExecutor() as threads:
        first = threads.submit(send, client, APPROVED, "k")
        wait_until(lambda: len(steps) > 2)  # the review is stored, and its bulk job has begun
        again = send(client, APPROVED, "k")
        unapproved = client.get("/v1/outputs/group?approved=false").json()["items"]
        assert first.result().content == again.content
    assert unapproved == []
