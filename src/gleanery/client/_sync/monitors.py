# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""Monitors: the rules of groups, and the alerts about runs that break them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gleanery.client._sync.pager import Pager
from gleanery.client._sync.requester import Requester
from gleanery.client.pages import AlertPages
from gleanery.client.requests import Parameter, Request, json_request, path, render
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from gleanery.client.monitor_models import Alert, AlertState, Rule, SuggestedRule

_NEWEST = 2**63 - 1  # position before every alert


class Monitors:
    """Methods of the client for the rules of groups, and for alerts."""

    _requester: Requester

    def monitors(self, group: str) -> list[Rule]:
        """Return the rules of a group. A group for which nobody has set any has the defaults."""
        from gleanery.client.monitor_models import Rule

        return self._requester.fetch(Request("GET", path("monitors", group)), list[Rule])

    def set_monitors(self, group: str, rules: Iterable[Rule | Mapping[str, Any]]) -> list[Rule]:
        """Replace all rules of a group, and return them. Alerts of rules that are gone close.

        To add one: ``client.set_monitors(group, [*client.monitors(group), Rule("failed_run")])``.
        """
        from gleanery.client.monitor_models import Rule

        documents = [_document(rule) for rule in rules]
        request = json_request("PUT", path("monitors", group), documents)
        return self._requester.fetch(request, list[Rule])

    def suggested_monitors(self, group: str) -> list[SuggestedRule]:
        """Return rules that fit the past runs, and that the group does not have.

        Nothing is switched on: ``set_monitors`` takes those that you want with the present ones.
        """
        from gleanery.client.monitor_models import SuggestedRule

        request = Request("GET", path("monitors", group, "suggested"))
        return self._requester.fetch(request, list[SuggestedRule])

    def alerts(
        self,
        *,
        state: AlertState | None = None,
        group_id: str | None = None,
        job_id: str | None = None,
        cursor: int = _NEWEST,
        page_size: int = 100,
        limit: int | None = None,
    ) -> Pager[Alert]:
        """Return the alerts of all groups, of a group or of a job, newest first.

        A job of a group has at most one open alert for each kind of rule and set of labels.
        """
        filters: dict[str, Parameter] = {"state": state, "group_id": group_id, "job_id": job_id}

        def read_page(position: int, size: int) -> Response:
            parameters = {**filters, "cursor": position, "limit": size}
            return self._requester.send(Request("GET", path("alerts"), parameters))

        return Pager(read_page, AlertPages(), cursor=cursor, page_size=page_size, limit=limit)

    def get_alert(self, alert_id: str) -> Alert:
        """Return one alert."""
        from gleanery.client.monitor_models import Alert

        return self._requester.fetch(Request("GET", path("alerts", alert_id)), Alert)

    def acknowledge_alert(self, alert_id: str, acknowledged: bool = True) -> Alert:
        """Say that somebody works on an alert, or with False that nobody does. It stays open."""
        return self._change_alert(alert_id, {"acknowledged": acknowledged})

    def mute_alert(self, alert_id: str, until: datetime | None) -> Alert:
        """Send no messages about the rule and the job until then. None sends messages again.

        It stays muted if it closes and opens again. A time without a zone is in UTC.
        """
        muted_until = None if until is None else render(until)
        return self._change_alert(alert_id, {"muted_until": muted_until})

    def accept_alert(self, alert_id: str) -> Alert:
        """Say that what the last run was like is normal now. The alert closes.

        Later runs are compared with that run. To repeat it is harmless. Alerts that compare a run
        with no other ones, such as ``failed_run``, raise Conflict.
        """
        return self._change_alert(alert_id, {"normal": True})

    def _change_alert(self, alert_id: str, change: Mapping[str, object]) -> Alert:
        from gleanery.client.monitor_models import Alert

        request = json_request("POST", path("alerts", alert_id), change)
        return self._requester.fetch(request, Alert)


def _document(rule: Rule | Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a rule, without those of a suggestion."""
    from gleanery.client.monitor_models import Rule

    if isinstance(rule, Rule):
        return {name: getattr(rule, name) for name in Rule.__struct_fields__}
    if not isinstance(rule, Mapping):
        raise TypeError(
            "each rule must be a Rule, or a dict with kind, job_id, threshold and so on"
        )
    return dict(rule)
