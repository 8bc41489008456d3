"""Rules and alerts with the client."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from gleanery import AsyncClient, Client
from gleanery.client import Alert, Conflict, Forbidden, Invalid, NotFound, Rule, SuggestedRule
from tests.support.service import Service

FEW = Rule("few_outputs", job_id="s4", minimum=10)


def run(client: Client, count: int, job: str = "s4") -> None:
    """Store a complete run of a job."""
    items = [{"url": f"https://{job}.example/{n}", "price": n} for n in range(count)]
    with client.run("prices", job_id=job) as started:
        started.push(items)


def open_alert(client: Client) -> Alert:
    """The alert about a run with fewer outputs than the rule expects."""
    run(client, 3)
    client.set_monitors("prices", [FEW])
    run(client, 3)
    [alert] = client.alerts(state="open")
    return alert


# --- rules --------------------------------------------------------------------------------------


def test_a_new_group_has_rules_which_can_be_replaced(gleanery: Client) -> None:
    run(gleanery, 1)
    defaults = gleanery.monitors("prices")
    assert [(rule.kind, rule.threshold) for rule in defaults] == [
        ("no_run", 2),
        ("few_outputs", 0.5),
        ("fill_rate", 0.2),
    ]
    stored = gleanery.set_monitors("prices", (rule for rule in [*defaults, FEW]))
    assert stored == [*defaults, Rule("few_outputs", "s4", None, 0.5, None, 10, True)]
    assert gleanery.monitors("prices") == stored
    hours = {"kind": "no_run", "hours": 26}
    assert gleanery.set_monitors("prices", [hours]) == [Rule("no_run", threshold=2, hours=26)]
    assert gleanery.set_monitors("prices", []) == gleanery.monitors("prices") == []


def test_suggestions_are_rules(gleanery: Client) -> None:
    for _ in range(3):
        run(gleanery, 3)
    found = gleanery.suggested_monitors("prices")
    assert all(isinstance(rule, SuggestedRule) and rule.reason for rule in found)
    assert {rule.kind for rule in found} >= {"failed_run"}
    assert all(rule.preview.runs >= rule.preview.alerts >= 0 for rule in found)
    stored = gleanery.set_monitors("prices", found)
    assert [rule.kind for rule in stored] == [rule.kind for rule in found]
    assert {type(rule) for rule in stored} == {Rule}


def test_wrong_rules_are_explained(gleanery: Client) -> None:
    run(gleanery, 1)
    for wrong, message in (
        (Rule("few"), "kind"),
        (Rule("few_outputs", threshold=2), "expected a number from 0 to 1"),
        (Rule("few_outputs", path="price"), "only rules of these kinds have a path"),
        ({"kind": "no_run", "treshold": 2}, "treshold"),
    ):
        with pytest.raises(Invalid, match=message):
            gleanery.set_monitors("prices", [wrong])
    with pytest.raises(TypeError, match="each rule must be a Rule"):
        gleanery.set_monitors("prices", "no_run")  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="no group"):
        gleanery.monitors("unknown")
    with pytest.raises(NotFound, match="no group"):
        gleanery.set_monitors("unknown", [])


# --- alerts -------------------------------------------------------------------------------------


def test_alerts_are_listed_and_shown(gleanery: Client) -> None:
    assert list(gleanery.alerts()) == []
    alert = open_alert(gleanery)
    assert alert.message == "s4 stored 3 outputs; at least 10 are expected."
    assert (alert.group_id, alert.job_id, alert.kind) == ("prices", "s4", "few_outputs")
    assert (alert.rule.minimum, alert.facts.value, alert.runs) == (10, 3, 1)
    assert gleanery.get_alert(alert.alert_id) == alert
    run(gleanery, 10)
    assert list(gleanery.alerts(state="open")) == []
    [closed] = gleanery.alerts(state="closed", group_id="prices", job_id="s4")
    assert (closed.alert_id, closed.close_reason) == (alert.alert_id, "over")
    assert closed.close_date is not None


def test_all_pages_of_alerts_are_read(gleanery: Client) -> None:
    open_alert(gleanery)
    gleanery.set_monitors("prices", [Rule("few_outputs", minimum=10)])
    for job in ("a", "b", "c"):
        run(gleanery, 1, job)
    found = gleanery.alerts(group_id="prices", page_size=1)
    assert [alert.job_id for alert in found] == ["c", "b", "a", "s4"]
    limited = gleanery.alerts(page_size=2, limit=3)
    assert [alert.job_id for alert in limited] == ["c", "b", "a"]
    assert len(list(gleanery.alerts().raw())) == 4


def test_persons_acknowledge_mute_and_accept(gleanery: Client) -> None:
    alert = open_alert(gleanery)
    assert gleanery.acknowledge_alert(alert.alert_id).acknowledged_date is not None
    assert gleanery.acknowledge_alert(alert.alert_id, False).acknowledged_date is None
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=7)
    assert gleanery.mute_alert(alert.alert_id, end).muted_until == end
    naive = end.replace(tzinfo=None)
    assert gleanery.mute_alert(alert.alert_id, naive).muted_until == end
    assert gleanery.mute_alert(alert.alert_id, None).muted_until is None
    accepted = gleanery.accept_alert(alert.alert_id)
    assert (accepted.state, accepted.close_reason) == ("closed", "normal")
    assert gleanery.accept_alert(alert.alert_id) == accepted


def test_an_alert_without_a_level_cannot_be_normal(gleanery: Client) -> None:
    run(gleanery, 1)
    gleanery.set_monitors("prices", [Rule("failed_run")])
    with pytest.raises(ZeroDivisionError), gleanery.run("prices", job_id="s4"):
        raise ZeroDivisionError
    [alert] = gleanery.alerts()
    with pytest.raises(Conflict, match="no normal level"):
        gleanery.accept_alert(alert.alert_id)
    run(gleanery, 1)
    with pytest.raises(Conflict, match="closed"):
        gleanery.accept_alert(alert.alert_id)


def test_what_does_not_exist_is_not_found(gleanery: Client) -> None:
    run(gleanery, 1)
    for call in (gleanery.get_alert, gleanery.acknowledge_alert, gleanery.accept_alert):
        with pytest.raises(NotFound, match="There is no alert with this id"):
            call("unknown")
    with pytest.raises(NotFound, match="no group"):
        list(gleanery.alerts(group_id="unknown"))
    with pytest.raises(NotFound, match="no job"):
        list(gleanery.alerts(group_id="prices", job_id="unknown"))
    with pytest.raises(Invalid, match="group"):
        list(gleanery.alerts(job_id="s4"))


def test_rules_and_alerts_have_their_scopes(service: Service) -> None:
    with Client(
        service.url, service.token(scopes=frozenset({"monitors:read"})), max_retries=0
    ) as reader:
        assert list(reader.alerts()) == []
        with pytest.raises(Forbidden, match="monitors:write"):
            reader.accept_alert("unknown")
    with Client(
        service.url, service.token(scopes=frozenset({"monitors:write"})), max_retries=0
    ) as writer:
        with pytest.raises(Forbidden, match="monitors:read"):
            list(writer.alerts())
        with pytest.raises(NotFound):
            writer.set_monitors("unknown", [])


def test_the_asynchronous_client_has_rules_and_alerts(service: Service) -> None:
    token = service.token()
    with Client(service.url, token) as made:
        alert = open_alert(made)

    async def read() -> None:
        async with AsyncClient(service.url, token) as client:
            rules = [*await client.monitors("prices"), Rule("failed_run")]
            assert len(await client.set_monitors("prices", rules)) == 2
            assert [one async for one in client.alerts(state="open")] == [alert]
            assert (await client.accept_alert(alert.alert_id)).close_reason == "normal"

    asyncio.run(read())
