"""The console's monitors over HTTP, on both engines: alerts in the inbox, rules, and previews."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gleanery.service.resources.monitors import console as monitors_console
from tests.support.console import PERSON, ConsoleClient
from tests.support.console_alerts import change, empty_field, few_outputs, run, usual_runs
from tests.support.console_runs import send_run
from tests.support.outputs import output
from tests.support.service import Client, Service

FAR = "2999-01-01T00:00:00Z"
PAST = "2020-01-01T00:00:00Z"
PREVIEW = "/console/api/monitors/group/preview"


@pytest.fixture
def console(service: Service, client: Client) -> Iterator[ConsoleClient]:
    """A session of the client's token."""
    assert client.token is not None
    with closing(ConsoleClient(service.url, client.token)) as signed_in:
        yield signed_in


def inbox(console: ConsoleClient, **query: Any) -> dict[str, Any]:
    answer = console.get("/console/api/inbox/alerts", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def jobs(found: dict[str, Any]) -> list[str]:
    return [alert["job_id"] for alert in found["alerts"]]


# --- alerts in the inbox ------------------------------------------------------------------------


def test_a_new_organization_has_no_alerts(console: ConsoleClient) -> None:
    counts = {"new": 0, "acknowledged": 0, "muted": 0, "has_more": False}
    assert inbox(console) == {"alerts": [], "counts": counts, "next": None}


def test_an_alert_comes_with_its_group_and_the_last_runs(
    client: Client, console: ConsoleClient
) -> None:
    made = few_outputs(client, "group", "s4")
    client.put("/v1/groups/group", json={"display_name": "Prices"})
    [found] = inbox(console)["alerts"]
    recent = found.pop("recent")
    assert found == made | {"group_name": "Prices"}
    sent = [one["counts"]["created"] + one["counts"]["unchanged"] for one in recent]
    assert sent == [20, 20, 20, 20, 5]
    assert [one["has_alert"] for one in recent] == [False] * 4 + [True]
    assert recent[-1]["counts"]["missing"] == 15
    assert recent[-1]["run_id"] == made["run_id"]
    assert recent[0]["started_at"] < recent[-1]["started_at"]


def test_acknowledged_alerts_come_last_and_muted_ones_are_another_list(
    client: Client, console: ConsoleClient
) -> None:
    made = {job: few_outputs(client, "group", job) for job in ("a", "b", "c", "d", "e")}
    assert jobs(inbox(console)) == ["e", "d", "c", "b", "a"]
    acknowledged = change(console, made["e"], acknowledged=True)
    assert acknowledged["acknowledged_by"] == PERSON
    change(client, made["c"], acknowledged=True)
    change(client, made["d"], muted_until=FAR)
    change(client, made["b"], muted_until=PAST)
    found = inbox(console)
    assert jobs(found) == ["b", "a", "e", "c"]
    assert found["counts"] == {"new": 2, "acknowledged": 2, "muted": 1, "has_more": False}
    assert jobs(inbox(console, muted="true")) == ["d"]
    run(client, "group", "a", 20)
    assert jobs(inbox(console)) == ["b", "e", "c"]


def test_alerts_are_listed_in_pages(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {job: few_outputs(client, "group", job) for job in ("a", "b", "c", "d", "e")}
    for job in ("b", "d"):
        change(client, made[job], acknowledged=True)
    monkeypatch.setattr(monitors_console, "_ALERTS", 2)
    after, found = None, []
    for _ in range(3):
        page = inbox(console, **({} if after is None else {"after": after}))
        found.append(jobs(page))
        after = page["next"]
    assert (found, after) == ([["e", "c"], ["a", "d"], ["b"]], None)
    monkeypatch.setattr(monitors_console, "_MAX_OPEN", 3)
    page = inbox(console)
    assert jobs(page) == ["e", "c"]
    assert page["counts"] == {"new": 2, "acknowledged": 1, "muted": 0, "has_more": True}
    answer = console.get("/console/api/inbox/alerts", params={"after": "2.1"})
    assert answer.status_code == 422


def test_the_chart_has_only_runs_that_the_alert_compares(
    client: Client, console: ConsoleClient
) -> None:
    def send(country: str, count: int) -> None:
        outputs = [output(number, job_id="job") for number in range(count)]
        send_run(client, "group", "job", outputs, labels={"country": country})

    for _ in range(4):
        send("DE", 20)
        send("LU", 2)
    send("DE", 4)
    [found] = inbox(console)["alerts"]
    assert found["labels"] == {"country": "DE"}
    sent = [one["counts"]["created"] + one["counts"]["unchanged"] for one in found["recent"]]
    assert sent == [20, 20, 20, 20, 4]


def test_the_inbox_of_alerts_needs_scopes(service: Service, client: Client) -> None:
    token = service.token("watched")
    with service.client(token) as other:
        few_outputs(other, "group", "job")
    for scopes, status in (({"monitors:read"}, 200), ({"outputs:read"}, 403)):
        limited = service.token("watched", frozenset(scopes))
        with closing(ConsoleClient(service.url, limited)) as console:
            answer = console.get("/console/api/inbox/alerts")
            assert answer.status_code == status
            if status == 200:
                assert [one["recent"] for one in answer.json()["alerts"]] == [[]]
            assert console.get("/console/api/monitors/group").status_code == status
    assert client.get("/console/api/inbox/alerts").status_code == 401


# --- alerts of runs -----------------------------------------------------------------------------


def test_a_run_names_the_alerts_that_it_opened(
    service: Service, client: Client, console: ConsoleClient
) -> None:
    made = few_outputs(client, "group", "job")
    last = run(client, "group", "job", 4)
    for run_id in (made["run_id"], last["run_id"]):
        found = console.get(f"/console/api/runs/group/{run_id}").json()
        assert found["run"]["has_alert"]
        assert [one["alert_id"] for one in found["alerts"]] == [made["alert_id"]]
    listed = console.get("/console/api/runs/group").json()["runs"]
    assert [one["has_alert"] for one in listed] == [True, True, False, False, False, False]
    quiet = console.get(f"/console/api/runs/group/{listed[-1]['run_id']}").json()
    assert (quiet["run"]["has_alert"], quiet["alerts"]) == (False, [])


def test_a_run_names_no_alerts_without_their_scope(service: Service) -> None:
    with service.client(service.token("half")) as client:
        made = few_outputs(client, "group", "job")
    limited = service.token("half", frozenset({"outputs:read"}))
    with closing(ConsoleClient(service.url, limited)) as console:
        found = console.get(f"/console/api/runs/group/{made['run_id']}").json()
        assert (found["run"]["has_alert"], found["alerts"]) == (True, [])


# --- rules and previews -------------------------------------------------------------------------


def test_the_rules_come_with_the_defaults_and_thresholds(
    client: Client, console: ConsoleClient
) -> None:
    client.store("group", output(1))
    found = console.get("/console/api/monitors/group").json()
    assert found["rules"] == found["defaults"] == client.get("/v1/monitors/group").json()
    assert found["thresholds"]["few_outputs"] == {"default": 0.5, "smallest": 0, "largest": 1}
    assert len(found["thresholds"]) == 10
    client.put("/v1/monitors/group", json=[{"kind": "failed_run"}])
    found = console.get("/console/api/monitors/group").json()
    assert [rule["kind"] for rule in found["rules"]] == ["failed_run"]
    assert len(found["defaults"]) == 3
    assert console.get("/console/api/monitors/none").status_code == 404


def preview(console: ConsoleClient, *rules: dict[str, Any], position: int = 0) -> dict[str, Any]:
    answer = console.post(PREVIEW, json={"rules": [*rules], "position": position})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_preview_says_what_a_rule_would_have_done(client: Client, console: ConsoleClient) -> None:
    usual_runs(client, "group", "job", data={"price": 1, "name": "a"})
    for count in (15, 20, 15, 14):
        run(client, "group", "job", count, data={"price": None, "name": "a"})
    few = {"kind": "few_outputs"}
    assert preview(console, few) == {"runs": 4, "alerts": 0}
    assert preview(console, few | {"threshold": 0.8}) == {"runs": 4, "alerts": 2}
    # A rule without usual values judges every run.
    assert preview(console, few | {"threshold": 0, "minimum": 15}) == {"runs": 8, "alerts": 1}
    price = {"kind": "fill_rate", "path": "price"}
    assert preview(console, {"kind": "fill_rate"}) == {"runs": 4, "alerts": 1}
    assert preview(console, {"kind": "fill_rate"}, price, position=1) == {"runs": 4, "alerts": 1}
    name = {"kind": "fill_rate", "path": "name"}
    assert preview(console, name) == {"runs": 4, "alerts": 0}
    assert client.get("/v1/monitors/group").json()[1]["threshold"] == 0.5  # nothing is stored


def test_a_preview_counts_only_the_jobs_of_the_rule(client: Client, console: ConsoleClient) -> None:
    for job in ("a", "b"):
        few_outputs(client, "group", job)
    few = {"kind": "few_outputs"}
    assert preview(console, few) == {"runs": 2, "alerts": 2}
    assert preview(console, few | {"job_id": "a"}) == {"runs": 1, "alerts": 1}
    assert preview(console, few, few | {"job_id": "a", "enabled": False}) == {
        "runs": 1,
        "alerts": 1,
    }


def test_a_preview_refuses_rules_that_a_group_cannot_have(
    client: Client, console: ConsoleClient
) -> None:
    client.store("group", output(1))
    few = {"kind": "few_outputs"}
    for rules, position, about in (
        ([few], 1, "no rule at this position"),
        ([few, few], 0, "another rule has the same kind"),
        ([few | {"threshold": 2}], 0, "expected a number from 0 to 1"),
    ):
        answer = console.post(PREVIEW, json={"rules": rules, "position": position})
        assert answer.status_code == 422
        assert about in answer.text
    none = PREVIEW.replace("/group/", "/none/")
    assert console.post(none, json={"rules": [few], "position": 0}).status_code == 404


def test_fields_that_are_empty_are_facts_of_an_alert(
    client: Client, console: ConsoleClient
) -> None:
    empty_field(client, "group", "job")
    [found] = inbox(console)["alerts"]
    fields = [(one["path"], one["usual"], one["value"]) for one in found["facts"]["fields"]]
    assert fields == [("name", 1.0, 0.0), ("price", 1.0, 0.0)]
