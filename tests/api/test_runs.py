"""Runs over HTTP, on both engines: start, push, finish, missing outputs and their removal."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.support.outputs import output, read_changes
from tests.support.runs import (
    complete,
    counts,
    finish,
    missing,
    push,
    remove_after,
    runs,
    show,
    start,
)
from tests.support.service import DAY, Client, Clock, Service

MINUTE = 60


def test_a_run_is_started_filled_and_finished(client: Client) -> None:
    begun = client.post("/v1/runs/group", json={"job_id": "job", "labels": {"country": "DE"}})
    run = begun.json()
    assert (run["status"], run["job_id"], run["labels"]) == ("running", "job", {"country": "DE"})
    assert run["finish_date"] is None
    push(client, run["run_id"], 1, 2)
    assert counts(show(client, run["run_id"])) == {"created": 2}
    ended = finish(client, run["run_id"], message="all pages")
    assert (ended["status"], ended["message"]) == ("complete", "all pages")
    assert ended["finish_date"] is not None
    assert ended["comparison"] == "done"
    assert runs(client) == [ended]


def test_the_group_and_the_job_exist_with_the_first_run(client: Client) -> None:
    run_id = start(client)
    group = client.get("/v1/groups/group").json()
    assert [(job["job_id"], job["outputs"]) for job in group["jobs"]] == [("job", 0)]
    assert counts(finish(client, run_id)) == {}


def test_an_output_counts_once_with_its_strongest_change(client: Client) -> None:
    complete(client, 1, 2, 3)
    run_id = start(client)
    push(client, run_id, 1, 2)
    push(client, run_id, 2, data={"price": 2})
    push(client, run_id, 2, data={"price": 2})
    push(client, run_id, 4)
    push(client, run_id, 4, data={"price": 4})
    assert counts(finish(client, run_id)) == {
        "created": 1,
        "updated": 1,
        "unchanged": 1,
        "missing": 1,
    }


def test_overlapping_runs_count_what_each_has_sent(client: Client) -> None:
    client.store("group", output(1), output(2))
    first, second = start(client), start(client)
    push(client, first, 1, 3)
    push(client, second, 1, 3)
    push(client, first, 1, 3)
    push(client, second, 3, data={"price": 3})
    push(client, first, 3, data={"price": 3})
    assert counts(finish(client, first, "partial")) == {"created": 1, "unchanged": 1}
    assert counts(finish(client, second, "partial")) == {"updated": 1, "unchanged": 1}


def test_an_output_that_is_deleted_and_returns_counts_once(client: Client) -> None:
    run_id = start(client)
    [result] = push(client, run_id, 1)["results"]
    client.delete(f"/v1/outputs/group/{result['output_id']}")
    push(client, run_id, 1)
    assert counts(finish(client, run_id)) == {"created": 1}


def test_a_repeated_batch_with_a_key_counts_once(client: Client) -> None:
    run_id = start(client)
    batch, key = [output(1), output(2)], {"Idempotency-Key": "one"}
    url = f"/v1/outputs/group?run_id={run_id}"
    first = client.post(url, json=batch, headers=key)
    finish(client, run_id)
    again = client.post(url, json=batch, headers=key)  # its response was lost
    assert (again.status_code, again.json()) == (200, first.json())
    assert counts(show(client, run_id)) == {"created": 2}
    other = start(client)
    conflict = client.post(f"/v1/outputs/group?run_id={other}", json=batch, headers=key)
    assert conflict.status_code == 409


def test_a_repeated_start_with_a_key_is_one_run(client: Client) -> None:
    key = {"Idempotency-Key": "start"}
    first = client.post("/v1/runs/group", json={"job_id": "job"}, headers=key).json()
    again = client.post("/v1/runs/group", json={"job_id": "job"}, headers=key).json()
    assert first == again
    assert len(runs(client)) == 1
    other = client.post("/v1/runs/group", json={"job_id": "other"}, headers=key)
    assert other.status_code == 409


def test_a_repeated_start_is_a_new_run_if_the_group_was_deleted(client: Client) -> None:
    begin = partial(
        client.post, "/v1/runs/group", json={"job_id": "job"}, headers={"Idempotency-Key": "key"}
    )
    first = begin().json()
    assert client.delete("/v1/groups/group").status_code == 200
    second = begin().json()
    assert second["run_id"] != first["run_id"]
    assert begin().json() == second
    assert show(client, second["run_id"])["status"] == "running"


def test_concurrent_workers_share_a_run(client: Client) -> None:
    run_id = start(client)
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(lambda n: push(client, run_id, n, n + 1), range(40))]
    assert counts(finish(client, run_id)) == {"created": 41}


def test_lines_and_bare_items_belong_to_a_run(client: Client) -> None:
    run_id = start(client)
    lines = '{"url": "https://a.example/1"}\n{"url": "https://a.example/2"}\n'
    response = client.post(
        f"/v1/outputs/group?run_id={run_id}&job_id=job&url_field=url",
        content=lines,
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert response.json()["created"] == 2
    assert counts(finish(client, run_id)) == {"created": 2}


@pytest.mark.parametrize("count", [0, 1000, 1001, 2000])
def test_lines_of_full_batches_belong_to_a_run(client: Client, count: int) -> None:
    run_id = start(client)
    lines = "".join(f'{{"url": "https://a.example/{n}"}}\n' for n in range(count))
    response = client.post(
        f"/v1/outputs/group?run_id={run_id}&job_id=job&url_field=url",
        content=f"{lines}\n",
        headers={"Content-Type": "application/x-ndjson", "Idempotency-Key": "one"},
    )
    assert response.status_code == 200, response.text
    assert (response.json()["created"], response.json()["lines"]) == (count, count + 1)
    assert finish(client, run_id)["counts"]["created"] == count


def test_invalid_elements_are_counted_as_rejected(client: Client) -> None:
    run_id = start(client)
    url = f"/v1/outputs/group?run_id={run_id}"
    batch = [output(1), {"job_id": "job"}, output(2)]
    assert client.post(f"{url}&on_error=skip", json=batch).json()["skipped"] == 1
    assert client.post(url, json=batch).status_code == 422
    assert client.post(f"{url}&on_error=skip", json=[{}]).json()["skipped"] == 1
    assert counts(finish(client, run_id)) == {"created": 2, "rejected": 3}


@pytest.mark.parametrize("status", ["complete", "partial", "failed"])
def test_a_run_that_has_ended_takes_no_outputs(client: Client, status: str) -> None:
    run_id = start(client)
    finish(client, run_id, status)
    response = client.post(f"/v1/outputs/group?run_id={run_id}", json=[output(1)])
    assert response.status_code == 409
    assert status in response.json()["detail"][0]["msg"]
    assert client.items("group") == []


def test_a_run_takes_only_outputs_of_its_job(client: Client) -> None:
    run_id = start(client)
    batch = [output(1), output(2, job_id="other")]
    response = client.post(f"/v1/outputs/group?run_id={run_id}", json=batch)
    assert response.status_code == 409
    assert client.items("group") == []


def test_finishing_again_is_harmless_but_another_status_is_a_conflict(client: Client) -> None:
    run_id = start(client)
    first = finish(client, run_id, message="one")
    assert finish(client, run_id, message="two") == first
    url = f"/v1/runs/group/{run_id}/finish"
    assert client.post(url, json={"status": "failed"}).status_code == 409
    assert client.post(url, json={"status": "running"}).status_code == 422


def test_unknown_runs_are_not_found(client: Client) -> None:
    start(client)
    assert client.get("/v1/runs/group/unknown").status_code == 404
    assert client.get("/v1/runs/other").status_code == 404
    response = client.post("/v1/outputs/group?run_id=unknown", json=[output(1)])
    assert response.status_code == 404
    assert (
        client.post("/v1/runs/group/unknown/finish", json={"status": "failed"}).status_code == 404
    )


def test_a_run_of_another_organization_or_group_is_not_found(
    client: Client, service: Service
) -> None:
    run_id = start(client)
    with service.client() as other:
        other.store("group", output(1))
        assert other.get(f"/v1/runs/group/{run_id}").status_code == 404
    client.store("another", output(1))
    assert client.get(f"/v1/runs/another/{run_id}").status_code == 404
    response = client.post(f"/v1/outputs/another?run_id={run_id}", json=[output(2)])
    assert response.status_code == 404


# --- implicit runs, and runs that are silent ----------------------------------------------------


def test_outputs_without_a_run_belong_to_an_implicit_one(timed: Client, clock: Clock) -> None:
    timed.store("group", output(1), output(2))
    clock.move(seconds=29 * MINUTE)
    timed.store("group", output(1), output(3))
    [run] = runs(timed)
    assert (run["status"], run["is_implicit"]) == ("running", True)
    assert counts(run) == {"created": 3}
    clock.move(seconds=31 * MINUTE)
    [run] = runs(timed, status="unknown")
    assert run["finish_date"] is not None
    timed.store("group", output(1))
    newest, ended = runs(timed)
    assert (newest["status"], counts(newest)) == ("running", {"unchanged": 1})
    assert (ended["status"], counts(ended)) == ("unknown", {"created": 3})


def test_a_silent_run_is_abandoned(timed: Client, clock: Clock) -> None:
    timed.put("/v1/groups/group", json={"run_timeout_minutes": 10})
    run_id = start(timed)
    clock.move(seconds=9 * MINUTE)
    push(timed, run_id, 1)
    clock.move(seconds=9 * MINUTE)
    assert show(timed, run_id)["status"] == "running"
    clock.move(seconds=2 * MINUTE)
    assert show(timed, run_id)["status"] == "abandoned"
    response = timed.post(f"/v1/outputs/group?run_id={run_id}", json=[output(2)])
    assert response.status_code == 409
    url = f"/v1/runs/group/{run_id}/finish"
    assert timed.post(url, json={"status": "complete"}).status_code == 409


def test_the_sweep_ends_silent_runs(timed_service: Service, clock: Clock) -> None:
    with timed_service.client() as client:
        client.store("group", output(1))
        run_id = start(client, "other")
        clock.move(seconds=DAY)
        timed_service.sweep(clock)
        clock.move(seconds=-DAY)  # only what is stored remains
        assert {run["status"] for run in runs(client)} == {"unknown", "abandoned"}
        assert show(client, run_id)["status"] == "abandoned"


def test_each_page_of_runs_begins_after_the_one_before(client: Client) -> None:
    made = [start(client) for _ in range(5)]
    listed, url = [], "/v1/runs/group?limit=1"
    while url is not None:
        page = client.get(url).json()
        listed += [run["run_id"] for run in page["runs"]]
        url = page["metadata"]["next_url"]
        assert len(listed) <= len(made)
    assert listed == made[::-1]


def test_runs_are_listed_newest_first_in_pages(client: Client) -> None:
    made = [start(client, job) for job in ("job", "other", "job", "other")]
    finish(client, made[0], "failed")
    page = client.get("/v1/runs/group", params={"limit": 3}).json()
    assert [run["run_id"] for run in page["runs"]] == made[:0:-1]
    rest = client.get(page["metadata"]["next_url"]).json()
    assert [run["run_id"] for run in rest["runs"]] == made[:1]
    assert rest["metadata"] == {"next_url": None, "next_cursor": None}
    assert [run["run_id"] for run in runs(client, job_id="other")] == [made[3], made[1]]
    assert [run["run_id"] for run in runs(client, status="failed")] == made[:1]
    assert runs(client, job_id="unknown") == []


@pytest.mark.parametrize("query", [{}, {"job_id": "job"}])
def test_runs_are_listed_over_many_pages(client: Client, query: dict[str, str]) -> None:
    """Requests on one connection that differ only in the cursor share their query."""
    made = [start(client) for _ in range(5)]
    found, cursor = [], 10**9
    for _ in made:
        page = client.get("/v1/runs/group", params={**query, "limit": 1, "cursor": cursor}).json()
        found += [run["run_id"] for run in page["runs"]]
        cursor = page["metadata"]["next_cursor"]
    assert found == made[::-1]
    assert cursor is None


# --- missing outputs ----------------------------------------------------------------------------


def test_outputs_that_a_complete_run_does_not_send_are_missing(client: Client) -> None:
    complete(client, 1, 2, 3)
    complete(client, 4, job="other")
    run = complete(client, 1)
    assert counts(run) == {"unchanged": 1, "missing": 2}
    assert missing(client) == {"2", "3"}
    assert missing(client, job_id="job", limit=1) == {"2", "3"}
    assert missing(client, job_id="other") == set()
    assert counts(complete(client, 1, 2)) == {"unchanged": 2, "missing": 1}
    assert missing(client) == {"3"}


@pytest.mark.parametrize("status", ["partial", "failed"])
def test_only_complete_runs_make_outputs_missing(client: Client, status: str) -> None:
    complete(client, 1, 2)
    run_id = start(client)
    push(client, run_id, 1)
    assert counts(finish(client, run_id, status)) == {"unchanged": 1}
    assert missing(client) == set()


def test_an_output_that_an_overlapping_run_sends_is_not_missing(client: Client) -> None:
    complete(client, 1, 2, 3)
    run_id = start(client)
    push(client, run_id, 1)
    client.store("group", output(2))
    assert counts(finish(client, run_id)) == {"unchanged": 1, "missing": 1}
    assert missing(client) == {"3"}


def test_a_run_starts_after_the_last_batch_of_an_old_run_that_goes_on(
    timed: Client, clock: Clock
) -> None:
    """Even if the clock goes back, and many runs are newer than the old one."""
    timed.store("group", output(1), output(2))
    for _ in range(10):
        complete(timed)
    timed.store("group", output(1))
    clock.jump(seconds=-MINUTE)
    assert counts(complete(timed, 2)) == {"unchanged": 1, "missing": 1}
    assert missing(timed) == {"1"}


def test_a_clock_that_goes_back_before_the_end_changes_nothing(timed: Client, clock: Clock) -> None:
    """As if another node finishes the run, and its clock is slow."""
    complete(timed, 1, 2)
    assert counts(complete(timed, 1)) == {"unchanged": 1, "missing": 1}
    run_id = start(timed)
    push(timed, run_id, 1, 2)
    clock.jump(seconds=-MINUTE)
    assert counts(finish(timed, run_id)) == {"unchanged": 2}
    assert missing(timed) == set()
    assert counts(complete(timed, 2)) == {"unchanged": 1, "missing": 1}
    assert missing(timed) == {"1"}


def test_missing_outputs_are_not_removed_by_default(client: Client) -> None:
    complete(client, 1, 2)
    for _ in range(3):
        assert complete(client, 1)["removal"] is None
    assert len(client.items("group")) == 2


def test_outputs_are_removed_after_complete_runs_in_a_row(client: Client) -> None:
    remove_after(client, 2)
    complete(client, 1, 2, 3)
    complete(client, 1, 3)
    complete(client, 1, 2)
    assert len(client.items("group")) == 3
    cursor = read_changes(client)["cursor"]
    run = complete(client, 1, 2)
    assert counts(run) == {"unchanged": 2, "missing": 1, "removed": 1}
    assert (run["removal"], run["removable"]) == ("done", 1)
    [change] = read_changes(client, cursor)["changes"]
    assert (change["change"], change["reason"]) == ("delete", "missing")
    assert missing(client) == set()


def test_a_comeback_is_a_creation_under_the_same_id_with_its_history(client: Client) -> None:
    remove_after(client, 1)
    [result, _] = push(client, (first := start(client)), 1, 2)["results"]
    finish(client, first)
    complete(client, 2)
    cursor = read_changes(client)["cursor"]
    run = complete(client, 1, 2)
    assert counts(run) == {"created": 1, "unchanged": 1}
    [change] = read_changes(client, cursor)["changes"]
    assert (change["change"], change["output_id"]) == ("create", result["output_id"])
    history = client.get(f"/v1/outputs/group/{result['output_id']}/history").json()
    changes = [(version["change"], version.get("reason")) for version in history["versions"]]
    assert changes == [("create", None), ("delete", "missing"), ("create", None)]


def test_an_approved_output_that_vanishes_leaves_the_view(client: Client) -> None:
    remove_after(client, 1)
    complete(client, 1, 2)
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved", "comment": ""})
    cursor = read_changes(client, view="approved")["cursor"]
    complete(client, 2)
    [change] = read_changes(client, cursor, view="approved")["changes"]
    assert (change["change"], change["reason"]) == ("delete", "missing")
    assert len(client.items("group", view="approved")) == 1


def test_a_large_removal_is_held_until_a_person_decides(client: Client) -> None:
    remove_after(client, 1, max_share=0.5)
    complete(client, 1, 2, 3)
    run = complete(client, 1)
    assert (run["removal"], run["removable"]) == ("held", 2)
    assert len(client.items("group")) == 3
    url = f"/v1/runs/group/{run['run_id']}/removal"
    decided = client.post(url, json={"decision": "remove"}).json()
    assert (decided["removal"], counts(decided)["removed"]) == ("done", 2)
    assert len(client.items("group")) == 1
    assert client.post(url, json={"decision": "remove"}).json() == decided
    refused = client.post(url, json={"decision": "keep"})
    assert (refused.status_code, refused.json()["detail"][0]["msg"]) == (
        409,
        "This run has no removal that waits for a decision: its missing outputs are removed",
    )


def test_an_output_that_came_back_is_not_removed_by_a_late_decision(client: Client) -> None:
    remove_after(client, 1, max_share=0.0)
    complete(client, 1, 2, 3)
    run = complete(client, 1)
    client.store("group", output(2))
    url = f"/v1/runs/group/{run['run_id']}/removal"
    assert counts(client.post(url, json={"decision": "remove"}).json())["removed"] == 1
    assert len(client.items("group")) == 2


def test_kept_outputs_are_removed_only_after_as_many_runs_again(client: Client) -> None:
    remove_after(client, 2, max_share=0.0)
    complete(client, 1, 2)
    complete(client, 1)
    run = complete(client, 1)
    assert run["removal"] == "held"
    url = f"/v1/runs/group/{run['run_id']}/removal"
    assert client.post(url, json={"decision": "keep"}).json()["removal"] == "kept"
    remove_after(client, 2)
    assert complete(client, 1)["removal"] is None
    assert counts(complete(client, 1))["removed"] == 1


def test_a_later_run_replaces_a_held_removal(client: Client) -> None:
    remove_after(client, 1, max_share=0.0)
    complete(client, 1, 2)
    first, second = complete(client, 1), complete(client, 1)
    assert second["removal"] == "held"
    assert show(client, first["run_id"])["removal"] == "replaced"
    url = f"/v1/runs/group/{first['run_id']}/removal"
    assert client.post(url, json={"decision": "remove"}).status_code == 409


def test_a_job_that_has_no_outputs_any_more(client: Client) -> None:
    remove_after(client, 1)
    complete(client, 1, 2)
    assert counts(complete(client)) == {"missing": 2, "removed": 2}
    assert counts(complete(client)) == {}
