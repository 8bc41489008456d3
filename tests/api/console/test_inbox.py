"""The console's inbox over HTTP, on both engines: waiting jobs, and expiring sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gleanery.service.resources.groups import overview
from gleanery.service.resources.sessions import summaries
from tests.support.console import PERSON, ConsoleClient
from tests.support.outputs import output
from tests.support.service import Client, Service

HOUR = 3600


@pytest.fixture
def console(service: Service, client: Client) -> Iterator[ConsoleClient]:
    """A session of the client's token."""
    assert client.token is not None
    with closing(ConsoleClient(service.url, client.token)) as signed_in:
        yield signed_in


def inbox(console: ConsoleClient, after: str | None = None) -> dict[str, Any]:
    answer = console.get("/console/api/inbox", params={"after": after} if after else {})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def waiting_jobs(console: ConsoleClient) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = inbox(console)["waiting"]["jobs"]
    return jobs


def review(client: Client, status: str, **members: Any) -> None:
    body = {"job_id": "job", "status": status, **members}
    answer = client.post("/v1/reviews/group", json=body)
    assert answer.status_code == 200, answer.text


def changed(number: int) -> dict[str, Any]:
    return output(number, data={"number": -number})


def test_a_new_organization_has_an_empty_inbox(console: ConsoleClient) -> None:
    assert inbox(console) == {
        "waiting": {"jobs": [], "next": None},
        "sessions": {"sessions": [], "is_complete": True},
    }


def test_jobs_wait_oldest_first(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1, job_id="first"))
    client.store("other", output(1, job_id="second"))
    client.store("group", output(1, job_id="third"), output(2, job_id="first"))
    client.put("/v1/groups/other", json={"display_name": "Other things"})
    jobs = waiting_jobs(console)
    assert [job["group_name"] for job in jobs] == [None, "Other things", None]
    assert [(job["group_id"], job["job_id"]) for job in jobs] == [
        ("group", "first"),
        ("other", "second"),
        ("group", "third"),
    ]
    assert [job["outputs"] for job in jobs] == [2, 1, 1]
    assert jobs[0]["waits_since"] < jobs[1]["waits_since"] < jobs[2]["waits_since"]


def test_an_unreviewed_job_has_only_new_outputs(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1), output(2))
    [job] = waiting_jobs(console)
    assert job.pop("waits_since") > 0
    assert job == {
        "group_id": "group",
        "group_name": None,
        "job_id": "job",
        "outputs": 2,
        "approved": 0,
        "approved_at": None,
        "new": 2,
        "changed": {"count": 0, "has_more": False},
        "removed": {"count": 0, "has_more": False},
        "review": None,
    }


def test_an_approved_job_waits_again_after_a_change(client: Client, console: ConsoleClient) -> None:
    stored = client.store("group", *(output(number) for number in range(5)))
    review(client, "approved", comment="fine")
    assert waiting_jobs(console) == []
    client.store("group", output(0), output(1))
    assert waiting_jobs(console) == []  # the values are the same
    client.store("group", changed(1), changed(2), output(7))
    client.delete(f"/v1/outputs/group/{stored['results'][4]['output_id']}")
    [job] = waiting_jobs(console)
    assert (job["new"], job["changed"]["count"], job["removed"]["count"]) == (1, 2, 1)
    assert (job["outputs"], job["approved"]) == (5, 2)
    assert job["review"]["status"] == "approved"
    assert job["review"]["comment"] == "fine"
    assert job["approved_at"] < job["waits_since"]


@pytest.mark.parametrize("status", ["changes_requested", "rejected"])
def test_a_job_that_was_sent_back_waits_after_a_newer_value(
    client: Client, console: ConsoleClient, status: str
) -> None:
    client.store("group", output(1), output(2))
    review(client, status)
    assert waiting_jobs(console) == []
    client.store("group", output(1))
    assert waiting_jobs(console) == []
    client.store("group", changed(1))
    [job] = waiting_jobs(console)
    assert job["review"]["status"] == status


def test_a_decision_about_an_earlier_state_leaves_later_values(
    client: Client, console: ConsoleClient
) -> None:
    client.store("group", output(1), output(2))
    seen = client.get("/v1/groups/group").json()["cursor"]
    client.store("group", changed(2))
    review(client, "changes_requested", as_of=seen)
    assert len(waiting_jobs(console)) == 1
    review(client, "approved", as_of=seen)
    [job] = waiting_jobs(console)
    assert job["waits_since"] > seen
    assert (job["outputs"], job["approved"]) == (2, 1)


def test_a_job_in_review_still_waits(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1))
    review(client, "in_review")
    assert len(waiting_jobs(console)) == 1
    review(client, "rejected")
    assert waiting_jobs(console) == []
    review(client, "pending")
    assert len(waiting_jobs(console)) == 1


def test_approving_every_single_output_ends_the_wait(
    client: Client, console: ConsoleClient
) -> None:
    stored = client.store("group", output(1), output(2))
    first, second = (result["output_id"] for result in stored["results"])
    review(client, "approved", output_ids=[first])
    assert len(waiting_jobs(console)) == 1
    review(client, "approved", output_ids=[second])
    assert waiting_jobs(console) == []


def test_deleted_jobs_and_groups_do_not_wait(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1), output(2, job_id="other"))
    client.delete("/v1/outputs/group/jobs/other")
    client.delete("/v1/groups/group/jobs/other")
    assert [job["job_id"] for job in waiting_jobs(console)] == ["job"]
    client.delete("/v1/groups/group")
    assert waiting_jobs(console) == []


def test_waiting_jobs_are_paged(client: Client, console: ConsoleClient) -> None:
    client.store("group", *(output(1, job_id=f"job {number}") for number in range(60)))
    after, found, pages = None, [], 0
    while pages == 0 or after is not None:
        page = inbox(console, after)
        assert (page["sessions"] is None) == (after is not None)
        found += [job["job_id"] for job in page["waiting"]["jobs"]]
        after, pages = page["waiting"]["next"], pages + 1
    assert (len(found), len(set(found)), pages) == (60, 60, 3)
    assert console.get("/console/api/inbox", params={"after": "x"}).status_code == 422


def test_large_numbers_are_not_counted(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MAX_COUNT", 3)
    client.store("group", *(output(number) for number in range(8)))
    review(client, "approved")
    client.store("group", *(changed(number) for number in range(1, 8)))
    [job] = waiting_jobs(console)
    assert job["changed"] == {"count": 3, "has_more": True}
    assert job["new"] is None


def test_expiring_sessions_are_listed_by_domain_and_profile(
    client: Client, console: ConsoleClient
) -> None:
    now = int(time.time())
    times = {"gone.example": -HOUR, "soon.example": 50 * HOUR, "later.example": 80 * HOUR}
    cookies = [
        {"domain": domain, "name": "sid", "value": "secret", "path": "/", "expires": now + seconds}
        for domain, seconds in times.items()
    ]
    cookies.append({"domain": "soon.example", "name": "x", "value": "secret", "path": "/"})
    assert client.post("/v1/cookies", json=cookies).status_code == 200
    found = inbox(console)["sessions"]
    assert [(one["domain"], one["expired"], one["expiring"]) for one in found["sessions"]] == [
        ("gone.example", 1, 0),
        ("soon.example", 0, 1),
    ]
    assert found["sessions"][1]["profile"] == "default"
    assert found["is_complete"]
    assert "secret" not in str(found)


def test_many_expired_records_do_not_hide_those_that_expire_soon(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "MAX_EXPIRING", 3)
    now = int(time.time())
    cookies = [
        {"domain": f"{n}.example", "name": "sid", "value": "v", "expires": now + (n - 4) * HOUR}
        for n in range(8)
    ]
    assert client.post("/v1/cookies", json=cookies).status_code == 200
    found = inbox(console)["sessions"]
    assert [one["domain"] for one in found["sessions"]] == ["5.example", "6.example", "7.example"]
    assert not found["is_complete"]


def test_what_the_scopes_do_not_allow_is_left_out(service: Service) -> None:
    for scope, allowed in (("outputs:read", "waiting"), ("session:read", "sessions")):
        token = service.token(scopes=frozenset({scope}))
        with closing(ConsoleClient(service.url, token)) as console:
            found = inbox(console)
            assert [name for name, part in found.items() if part is not None] == [allowed]


def test_reviewers_are_named_only_to_those_who_may_read_reviews(service: Service) -> None:
    everything = service.token("reviewed")
    with service.client(everything) as client:
        client.store("group", output(1))
        body = {"job_id": "job", "status": "approved", "comment": "fine"}
        with closing(ConsoleClient(service.url, everything)) as console:
            assert console.post("/v1/reviews/group", json=body).status_code == 200
        client.store("group", changed(1))
    for scopes, shown in (
        ({"outputs:read", "reviews:read"}, ("approved", "fine", PERSON)),
        ({"outputs:read"}, ("approved", "", None)),
    ):
        token = service.token("reviewed", frozenset(scopes))
        with closing(ConsoleClient(service.url, token)) as other:
            [waits] = waiting_jobs(other)
            [listed] = other.get("/console/api/groups/group/jobs").json()["jobs"]
        for job in (waits, listed):
            found = job["review"]
            assert (found["status"], found["comment"], found["person"]) == shown


def test_the_inbox_needs_a_session(client: Client) -> None:
    for path in ("inbox", "groups", "groups/group/jobs"):
        assert client.get(f"/console/api/{path}").status_code == 401


def test_a_second_decision_about_an_old_state_keeps_a_job_with_a_later_value_in_the_inbox(
    client: Client, console: ConsoleClient
) -> None:
    """Approvals give outputs new positions, so the later value is not among the newest ones."""
    client.store("group", *(output(number, job_id="job") for number in range(1001)))
    seen = client.get("/v1/groups/group").json()["cursor"]
    client.store("group", output(0, job_id="job", data={"number": -1}))
    for _ in range(2):
        review(client, "approved", as_of=seen)
        assert [job["job_id"] for job in waiting_jobs(console)] == ["job"]
    review(client, "approved")
    assert waiting_jobs(console) == []


def test_a_late_decision_about_an_old_state_does_not_make_an_approved_job_wait(
    client: Client, console: ConsoleClient
) -> None:
    client.store("group", output(1, job_id="job"))
    seen = client.get("/v1/groups/group").json()["cursor"]
    client.store("group", changed(1) | {"job_id": "job"})
    review(client, "approved")
    review(client, "approved", as_of=seen)
    assert waiting_jobs(console) == []
