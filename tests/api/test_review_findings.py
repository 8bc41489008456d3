"""Findings of a review over HTTP, on both engines, and one review by its id."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.outputs import output
from tests.support.service import Client

LIST_MEMBERS = {"job_id", "review_id", "review_date", "status", "comment"}


def stored_ids(client: Client, *outputs: dict[str, Any]) -> list[str]:
    results = client.post("/v1/outputs/group", json=list(outputs)).json()["results"]
    return [result["output_id"] for result in results]


def add(client: Client, **members: Any) -> dict[str, Any]:
    body = {"job_id": "job", "status": "changes_requested"} | members
    answer = client.post("/v1/reviews/group", json=body)
    assert answer.status_code == 200, answer.text
    review: dict[str, Any] = answer.json()
    return review


def problems(client: Client, **members: Any) -> list[list[str]]:
    """Sends a review, which must be invalid, and returns the locations of its problems."""
    body = {"job_id": "job", "status": "rejected"} | members
    answer = client.post("/v1/reviews/group", json=body)
    assert answer.status_code == 422, answer.text
    return [problem["loc"] for problem in answer.json()["detail"]]


def test_a_review_returns_its_findings_in_their_order(client: Client) -> None:
    first, second = stored_ids(client, output(1), output(2))
    findings = [
        {"output_id": second, "path": "offer.price", "note": "in the wrong currency – £"},
        {"output_id": first, "path": None, "note": ""},
        {"output_id": second, "path": "images[0]", "note": 'a "thumbnail"'},
    ]
    sent = [findings[0], {"output_id": first}, findings[2]]
    review = add(client, findings=sent, comment="two outputs")
    assert review.keys() == LIST_MEMBERS
    details = client.get(f"/v1/reviews/group/{review['review_id']}").json()
    about = {"person": None, "as_of": None, "output_ids": None, "skipped_output_ids": None}
    assert details == review | about | {"findings": findings}


def test_the_lists_of_reviews_keep_their_members(client: Client) -> None:
    [output_id] = stored_ids(client, output(1))
    review = add(client, findings=[{"output_id": output_id, "path": "number", "note": "odd"}])
    for path in ("/v1/reviews/group", "/v1/reviews/group?history=true"):
        assert client.get(path).json() == [review]
    assert client.get("/v1/groups/group").json()["jobs"][0]["latest_review"] == review


def test_a_review_without_findings_has_an_empty_list(client: Client) -> None:
    stored_ids(client, output(1))
    review = add(client, findings=[])
    assert client.get(f"/v1/reviews/group/{review['review_id']}").json()["findings"] == []


def test_an_unknown_review_is_404(client: Client) -> None:
    stored_ids(client, output(1))
    review_id = add(client)["review_id"]
    client.store("other", output(1))
    for group, name, parameter in (
        ("group", "0" * 32, "review_id"),
        ("other", review_id, "review_id"),
        ("none", review_id, "group_id"),
    ):
        answer = client.get(f"/v1/reviews/{group}/{name}")
        assert answer.status_code == 404
        assert answer.json()["detail"][0]["loc"] == ["path", parameter]


def test_a_finding_names_an_output_of_the_job(client: Client) -> None:
    known, other = stored_ids(client, output(1), output(2, job_id="other"))
    findings = [{"output_id": name} for name in (known, "0" * 32, other)]
    assert problems(client, findings=findings) == [
        ["body", "findings", "1", "output_id"],
        ["body", "findings", "2", "output_id"],
    ]
    assert client.get("/v1/reviews/group").json() == []


@pytest.mark.parametrize(
    ("finding", "member"),
    [
        ({"output_id": "X" * 32}, "output_id"),
        ({"path": "number"}, "output_id"),
        ({"output_id": "0" * 32, "path": "x" * 1001}, "path"),
        ({"output_id": "0" * 32, "note": "x" * 2001}, "note"),
        ({"output_id": "0" * 32, "comment": "x"}, "comment"),
    ],
)
def test_an_invalid_finding_is_reported(
    client: Client, finding: dict[str, Any], member: str
) -> None:
    stored_ids(client, output(1))
    assert problems(client, findings=[finding]) == [["body", "findings", "0", member]]


@pytest.mark.thorough
def test_a_review_has_at_most_a_thousand_findings(client: Client) -> None:
    [output_id] = stored_ids(client, output(1))
    finding = {"output_id": output_id, "note": "ü" * 100}
    assert problems(client, findings=[finding] * 1001) == [["body", "findings"]]
    review_id = add(client, findings=[finding] * 1000)["review_id"]
    assert len(client.get(f"/v1/reviews/group/{review_id}").json()["findings"]) == 1000


def test_another_finding_needs_another_idempotency_key(client: Client) -> None:
    [output_id] = stored_ids(client, output(1))

    def send(note: str) -> Any:
        findings = [{"output_id": output_id, "note": note}]
        body = {"job_id": "job", "status": "rejected", "findings": findings}
        return client.post("/v1/reviews/group", json=body, headers={"Idempotency-Key": "k"})

    assert send("one").content == send("one").content
    assert send("two").status_code == 409
    assert len(client.get("/v1/reviews/group?history=true").json()) == 1


def test_findings_are_not_in_the_audit_log(client: Client) -> None:
    [output_id] = stored_ids(client, output(1))
    add(client, findings=[{"output_id": output_id, "note": "said in confidence"}])
    assert "confidence" not in client.get("/v1/audit").text


def test_the_findings_of_a_deleted_job_are_deleted(client: Client) -> None:
    [output_id] = stored_ids(client, output(1))
    review_id = add(client, findings=[{"output_id": output_id}])["review_id"]
    assert client.delete("/v1/groups/group/jobs/job").status_code == 200
    assert client.get(f"/v1/reviews/group/{review_id}").status_code == 404
