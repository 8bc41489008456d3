"""Reviews of single outputs: ``output_ids`` over HTTP, on both engines."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.support.outputs import follow_changes, output, stored_outputs
from tests.support.service import Client


def store(client: Client, *outputs: dict[str, Any]) -> list[str]:
    results = client.post("/v1/outputs/group", json=list(outputs)).json()["results"]
    return [result["output_id"] for result in results]


def send(
    client: Client, output_ids: list[str], status: str = "approved", **members: Any
) -> httpx2.Response:
    body = {"job_id": "job", "status": status, "output_ids": output_ids} | members
    return client.post("/v1/reviews/group", json=body)


def review(
    client: Client, output_ids: list[str], status: str = "approved", **members: Any
) -> dict[str, Any]:
    answer = send(client, output_ids, status, **members)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def approvals(client: Client) -> dict[int, bool]:
    return {item["data"]["number"]: item["is_approved"] for item in client.items("group")}


def problems(answer: httpx2.Response) -> list[list[str]]:
    assert answer.status_code == 422, answer.text
    return [problem["loc"] for problem in answer.json()["detail"]]


def test_single_outputs_are_approved_and_sent_back(client: Client) -> None:
    ids = store(client, *(output(number) for number in range(4)))
    made = review(client, [ids[2], ids[0]])
    assert made["skipped_output_ids"] == []
    assert approvals(client) == {0: True, 1: False, 2: True, 3: False}
    review(client, [ids[2], ids[3]], "changes_requested")
    assert approvals(client) == {0: True, 1: False, 2: False, 3: False}
    assert client.get("/v1/groups/group").json()["jobs"][0]["approved"] == 1


def test_a_client_that_follows_the_group_receives_single_approvals(client: Client) -> None:
    ids = store(client, output(1), output(2))
    copy: dict[str, Any] = {}
    cursor = follow_changes(client, copy)
    review(client, ids[:1])
    follow_changes(client, copy, cursor)
    assert copy == stored_outputs(client)
    assert copy[ids[0]]["is_approved"]


def test_the_approved_view_follows_single_reviews(client: Client) -> None:
    ids = store(client, output(1), output(2), output(3))
    review(client, ids[:2])
    store(client, output(2, data={"number": 22}))
    view = client.items("group", view="approved")
    assert sorted(item["data"]["number"] for item in view) == [1, 2]
    cursor = client.get("/v1/groups/group").json()["cursor"]
    review(client, ids, "rejected")
    assert client.items("group", view="approved") == []
    query = {"view": "approved", "cursor": cursor}
    changes = client.get("/v1/changes/group", params=query).json()["changes"]
    assert sorted((change["change"], change["output_id"]) for change in changes) == sorted(
        ("delete", output_id) for output_id in ids[:2]
    )


def test_a_review_of_single_outputs_is_not_the_latest_review_of_the_job(client: Client) -> None:
    ids = store(client, output(1), output(2))
    whole = client.post("/v1/reviews/group", json={"job_id": "job", "status": "in_review"}).json()
    single = review(client, ids[:1])
    assert client.get("/v1/reviews/group").json() == [whole]
    assert client.get("/v1/groups/group").json()["jobs"][0]["latest_review"] == whole
    del single["skipped_output_ids"]
    assert client.get("/v1/reviews/group?history=true").json() == [single, whole]
    details = client.get(f"/v1/reviews/group/{single['review_id']}").json()
    about = {
        "person": None,
        "as_of": None,
        "output_ids": ids[:1],
        "skipped_output_ids": [],
        "findings": [],
    }
    assert details == single | about


def test_outputs_with_a_later_value_are_skipped(client: Client) -> None:
    ids = store(client, output(1), output(2), output(3))
    seen = client.get("/v1/groups/group").json()["cursor"]
    store(client, output(2, data={"number": 22}))
    made = review(client, ids, as_of=seen)
    assert made["skipped_output_ids"] == [ids[1]]
    assert approvals(client) == {1: True, 3: True, 22: False}
    details = client.get(f"/v1/reviews/group/{made['review_id']}").json()
    assert (details["as_of"], details["output_ids"]) == (seen, ids)
    assert details["skipped_output_ids"] == [ids[1]]


@pytest.mark.parametrize("status", ["pending", "in_review"])
def test_other_states_do_not_change_the_approval(client: Client, status: str) -> None:
    ids = store(client, output(1), output(2))
    review(client, ids[:1])
    review(client, ids, status)
    assert approvals(client) == {1: True, 2: False}


def test_an_unknown_output_is_reported_and_nothing_is_stored(client: Client) -> None:
    first, other = store(client, output(1), output(2, job_id="other"))
    answer = send(client, [first, "0" * 32, other])
    assert problems(answer) == [["body", "output_ids", "1"], ["body", "output_ids", "2"]]
    assert approvals(client) == {1: False, 2: False}
    assert client.get("/v1/reviews/group?history=true").json() == []


def test_invalid_lists_of_outputs_are_rejected(client: Client) -> None:
    [known] = store(client, output(1))
    assert problems(send(client, [])) == [["body", "output_ids"]]
    assert problems(send(client, [known, known])) == [["body", "output_ids"]]
    assert problems(send(client, [f"{n:032x}" for n in range(1001)])) == [["body", "output_ids"]]
    assert problems(send(client, [known, "X"])) == [["body", "output_ids", "1"]]


@pytest.mark.thorough
def test_a_review_names_outputs_of_a_limited_size(client: Client) -> None:
    """One transaction changes them, and other writers of the group wait for it."""
    large = {"text": "x" * 6 * 1024**2}
    ids = store(client, *(output(n, data=large | {"number": n}) for n in range(4)))
    assert problems(send(client, ids)) == [["body", "output_ids", "2"]]
    review(client, ids[:2])
    assert approvals(client) == {0: True, 1: True, 2: False, 3: False}


def test_a_repeated_review_of_outputs_gets_the_first_response(client: Client) -> None:
    ids = store(client, output(1), output(2))

    def send_with_key(output_ids: list[str]) -> httpx2.Response:
        body = {"job_id": "job", "status": "approved", "output_ids": output_ids}
        return client.post("/v1/reviews/group", json=body, headers={"Idempotency-Key": "k"})

    first = send_with_key(ids[:1])
    review(client, ids[:1], "rejected")
    assert send_with_key(ids[:1]).content == first.content
    assert send_with_key(ids).status_code == 409
    assert approvals(client) == {1: False, 2: False}
    assert len(client.get("/v1/reviews/group?history=true").json()) == 2


def test_the_audit_log_has_the_number_of_outputs(client: Client) -> None:
    ids = store(client, output(1), output(2))
    review_id = review(client, ids)["review_id"]
    entry = client.get("/v1/audit").json()["entries"][-1]
    assert entry["action"] == "add_review"
    assert entry["about"] == {
        "group_id": "group",
        "job_id": "job",
        "review_id": review_id,
        "status": "approved",
        "outputs": 2,
    }
