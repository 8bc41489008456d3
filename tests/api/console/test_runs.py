"""The console's runs over HTTP, on both engines: neighbours, pages, and removals that are held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gleanery.service.resources.runs import console as runs_console
from tests.support.console import ConsoleClient
from tests.support.console_runs import send_run
from tests.support.outputs import output
from tests.support.service import Client, Service

SETTINGS = {"missing": {"after_runs": 2, "max_share": 0.2}}


@pytest.fixture
def console(service: Service, client: Client) -> Iterator[ConsoleClient]:
    """A session of the client's token."""
    assert client.token is not None
    with closing(ConsoleClient(service.url, client.token)) as signed_in:
        yield signed_in


def read(console: ConsoleClient, path: str, **query: Any) -> dict[str, Any]:
    answer = console.get(f"/console/api/{path}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def run(client: Client, *numbers: int, job: str = "job", **members: Any) -> dict[str, Any]:
    outputs = [output(number, job_id=job) for number in numbers]
    return send_run(client, "group", job, outputs, **members)


def listed(console: ConsoleClient, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read(console, "runs/group", **query)["runs"]
    return found


def held_run(client: Client, group: str = "group") -> dict[str, Any]:
    """A run whose removal of the outputs 3 to 5 is held; the output 2 is missing since it."""
    assert client.put(f"/v1/groups/{group}", json=SETTINGS).status_code == 200
    for numbers in (range(6), range(3), range(2)):
        found = send_run(client, group, "job", [output(number) for number in numbers])
    assert (found["removal"], found["removable"]) == ("held", 3)
    return found


# --- runs of a group ----------------------------------------------------------------------------


def test_a_run_is_listed_as_the_api_shows_it(client: Client, console: ConsoleClient) -> None:
    made = run(client, 1, 2, message="all pages", labels={"country": "DE"})
    [found] = listed(console)
    assert found == made | {"scale": 2, "usual": None, "has_alert": False}


def test_runs_of_a_job_have_one_scale(client: Client, console: ConsoleClient) -> None:
    run(client, *range(8))
    run(client, *range(2))  # and 6 are missing
    run(client, job="empty")
    run(client, 1, 2, 3, job="other")
    found = [(one["job_id"], one["scale"]) for one in listed(console)]
    assert found == [("other", 3), ("empty", 0), ("job", 8), ("job", 8)]


def test_many_rejected_elements_do_not_hide_other_runs(
    client: Client, console: ConsoleClient
) -> None:
    run(client, *range(5))
    send_run(client, "group", "job", [output(1), *({} for _ in range(100))])
    assert {one["scale"] for one in listed(console)} == {10}
    send_run(client, "group", "other", [{}, {}, {}])
    assert listed(console, job_id="other")[0]["scale"] == 3


def test_an_older_run_can_be_the_largest(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_console, "_RUNS", 1)
    run(client, *range(5))
    run(client, 1, status="failed")
    page = read(console, "runs/group")
    assert [one["scale"] for one in page["runs"]] == [5]


def test_what_is_usual_is_the_median_of_complete_runs(
    client: Client, console: ConsoleClient
) -> None:
    for count in (10, 12, 11):
        run(client, *range(count))
    run(client, 1, status="failed")
    assert {one["usual"] for one in listed(console)} == {11}


def test_runs_with_other_labels_are_not_compared(client: Client, console: ConsoleClient) -> None:
    for _ in range(3):
        run(client, 1, 2, 3, 4, labels={"country": "DE", "kind": "all"})
        run(client, 1, labels={"country": "FR"})
    run(client, 1, labels={"kind": "all", "country": "DE"})
    usual = [(one["labels"]["country"], one["usual"]) for one in listed(console)]
    assert {*usual} == {("DE", 4), ("FR", 1)}


def test_few_runs_say_nothing_about_what_is_usual(client: Client, console: ConsoleClient) -> None:
    for _ in range(2):
        run(client, 1, 2)
    run(client, 1, status="partial")
    assert {one["usual"] for one in listed(console)} == {None}


def test_runs_are_filtered_and_paged(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_console, "_RUNS", 2)
    made = [run(client, job=job)["run_id"] for job in ("job", "other", "job", "other", "job")]
    failed = run(client, status="failed")["run_id"]
    before, found = None, []
    while before is not None or not found:
        page = read(console, "runs/group", **({"before": before} if before else {}))
        found += [one["run_id"] for one in page["runs"]]
        before = page["next"]
    assert found == [failed, *reversed(made)]
    assert [one["run_id"] for one in listed(console, job_id="other")] == [made[3], made[1]]
    assert [one["run_id"] for one in listed(console, status="failed")] == [failed]
    assert listed(console, job_id="unknown") == []
    assert console.get("/console/api/runs/group", params={"status": "odd"}).status_code == 422


def test_an_unknown_group_or_run_is_404(client: Client, console: ConsoleClient) -> None:
    made = run(client, 1)
    client.store("another", output(1))
    for path in (
        "runs/nobody",
        "runs/group/nothing",
        "runs/group/nothing/removal",
        f"runs/another/{made['run_id']}",
        f"runs/another/{made['run_id']}/removal",
    ):
        assert console.get(f"/console/api/{path}").status_code == 404, path


# --- one run, and its removal -------------------------------------------------------------------


def test_a_run_has_the_numbers_for_a_decision(client: Client, console: ConsoleClient) -> None:
    held = held_run(client)
    client.store("group", output(9))
    found = read(console, f"runs/group/{held['run_id']}")
    assert found.pop("run") == held | {"scale": 6, "usual": 3, "has_alert": False}
    assert found == {"outputs": 7, "compared": 6, "after_runs": 2, "alerts": []}


def removable(console: ConsoleClient, held: dict[str, Any], after: int = 0) -> dict[str, Any]:
    return read(console, f"runs/group/{held['run_id']}/removal", after=after)


def sources(found: dict[str, Any]) -> list[str]:
    return [one["source_url"][1][-1] for one in found["outputs"]]


def test_the_outputs_of_a_removal_are_what_it_removes(
    client: Client, console: ConsoleClient
) -> None:
    held = held_run(client)
    send_run(client, "group", "other", [output(3, job_id="other")])
    send_run(client, "group", "other", [])  # what is missing in other jobs stays
    found = removable(console, held)
    assert sources(found) == ["3", "4", "5"]
    assert found["columns"] == [{"path": "number", "kind": "number"}]
    assert [one["cells"] for one in found["outputs"]] == [[["n", n]] for n in ("3", "4", "5")]
    assert found["next"] is None
    client.store("group", output(4))  # it is back
    assert sources(removable(console, held)) == ["3", "5"]
    url = f"/v1/runs/group/{held['run_id']}/removal"
    decided = console.post(url, json={"decision": "remove"})
    assert decided.json()["counts"]["removed"] == 2
    assert removable(console, held) == {"outputs": [], "columns": [], "next": None}


def test_the_outputs_of_a_removal_are_paged(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_console, "_OUTPUTS", 2)
    held = held_run(client)
    first = removable(console, held)
    second = removable(console, held, first["next"])
    assert (sources(first), sources(second), second["next"]) == (["3", "4"], ["5"], None)
    shown = first["outputs"][0]
    [item] = client.items("group", url=output(3)["source_url"])
    assert shown["output_id"] == item["output_id"]


def test_a_removal_has_no_outputs_of_other_jobs(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them are missing, the first page has those of the removal."""
    monkeypatch.setattr(runs_console, "LOOKED_AT", 5)
    send_run(client, "group", "other", [output(number, job_id="other") for number in range(10)])
    send_run(client, "group", "other", [])
    held = held_run(client)
    shown = removable(console, held)
    assert (sources(shown), shown["next"]) == (["3", "4", "5"], None)


def test_outputs_that_came_back_do_not_hide_those_of_a_removal(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_console, "LOOKED_AT", 3)
    held = held_run(client)
    client.store("group", output(3), output(4))
    first = removable(console, held)
    assert first["outputs"] == []
    second = removable(console, held, first["next"])
    assert (sources(second), second["next"]) == (["5"], None)


# --- the inbox ----------------------------------------------------------------------------------


def test_held_removals_are_in_the_inbox_newest_first(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(console, "inbox/removals") == {"removals": [], "next": None}
    monkeypatch.setattr(runs_console, "_REMOVALS", 1)
    held_run(client, "another")
    held = held_run(client)
    client.put("/v1/groups/group", json={**SETTINGS, "display_name": "Prices"})
    first = read(console, "inbox/removals")
    [shown] = first["removals"]
    assert shown.pop("finished_at") > 0
    assert shown == {
        "run_id": held["run_id"],
        "group_id": "group",
        "group_name": "Prices",
        "job_id": "job",
        "removable": 3,
        "outputs": 6,
    }
    second = read(console, "inbox/removals", before=first["next"])
    assert [one["group_id"] for one in second["removals"]] == ["another"]
    assert second["next"] is None


@pytest.mark.parametrize("decision", ["remove", "keep"])
def test_a_decided_removal_leaves_the_inbox(
    client: Client, console: ConsoleClient, decision: str
) -> None:
    held = held_run(client)
    url = f"/v1/runs/group/{held['run_id']}/removal"
    assert console.post(url, json={"decision": decision}).status_code == 200
    assert read(console, "inbox/removals")["removals"] == []
    assert len(client.items("group")) == (3 if decision == "remove" else 6)


def test_removals_of_deleted_groups_and_other_organizations_are_not_shown(
    client: Client, console: ConsoleClient, service: Service
) -> None:
    held_run(client)
    with service.client() as other, closing(ConsoleClient(service.url, str(other.token))) as one:
        assert read(one, "inbox/removals")["removals"] == []
    client.delete("/v1/groups/group")
    assert read(console, "inbox/removals")["removals"] == []


def test_runs_need_their_scopes_and_a_session(client: Client, service: Service) -> None:
    everything = service.token("scoped")
    with service.client(everything) as owner:
        held = held_run(owner)
    paths = (
        "inbox/removals",
        "runs/group",
        f"runs/group/{held['run_id']}",
        f"runs/group/{held['run_id']}/removal",
    )
    for scope, status in (("outputs:read", 200), ("reviews:write", 403)):
        token = service.token("scoped", frozenset({scope}))
        with closing(ConsoleClient(service.url, token)) as console:
            answers = [console.get(f"/console/api/{path}").status_code for path in paths]
            assert answers == [status] * len(paths)
            url = f"/v1/runs/group/{held['run_id']}/removal"
            decided = console.post(url, json={"decision": "keep"})
            assert decided.status_code == (200 if scope == "reviews:write" else 403)
    for path in paths:
        assert client.get(f"/console/api/{path}").status_code == 401
