"""``gleanery check`` and ``gleanery alerts``: open problems of jobs, and answers of persons."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import click

from gleanery.cli.data.command import (
    FAILURE,
    AsJson,
    UserError,
    data_command,
    epilog,
    is_narrow,
    print_blocks,
    print_json,
    print_json_array,
    print_members,
    print_rows,
    show_date,
)
from gleanery.cli.data.connection import (
    GroupName,
    TokenFile,
    Url,
    known_group,
    known_job,
    open_client,
)
from gleanery.cli.declaration import Argument, CommandGroup, Option
from gleanery.cli.terminal import printable

if TYPE_CHECKING:
    from gleanery.client import Alert

app = CommandGroup()
alerts_app = CommandGroup(
    help="List, show, acknowledge, mute and accept alerts about the runs of jobs.",
    epilog=epilog(
        (
            "gleanery alerts list shop-prices",
            "gleanery alerts mute ALERT_ID --for 7d",
        )
    ),
)
app.add_command(alerts_app, "alerts")

_COLUMNS = ("Opened", "Group", "Message", "Runs", "Remark", "Alert")
_UNBROKEN = ("Opened", "Alert")
_TABLE_WIDTH = 140  # characters that the columns need, with some for the message
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_TABLE_DATE = re.compile(r"(?<=^\d{4}-\d\d-\d\d) (?=\d)")
"""Space in a date-time as ``show_date`` prints it."""
_REASONS = {
    "over": "its condition is over",
    "normal": "the level is normal now",
    "rule_removed": "the rule was removed",
}

StateName = Literal["open", "closed", "all"]
AlertId = Annotated[str, Argument(metavar="ALERT_ID", help="Alert, as gleanery alerts list shows.")]


# --- check --------------------------------------------------------------------------------------


@data_command(
    app,
    "check",
    examples=(
        "gleanery check shop-prices",
        "gleanery check shop-prices shop.example --quiet",
        "gleanery check shop-prices --json | jq -r '.[].message'",
    ),
)
def check(
    group: GroupName,
    job: Annotated[
        str | None, Argument(metavar="[JOB]", help="Only alerts of this job. Default: of all jobs.")
    ] = None,
    as_json: AsJson = False,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Print nothing if the exit status is 0.")
    ] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Exit with 1 if a group or a job has open alerts, and print a sentence for each.

    It is for cron and CI. Alerts that are muted are printed, but do not count: if all are muted,
    the exit status is 0. Acknowledged ones count. The token needs the scope monitors:read.
    """
    with (
        open_client(url, token_file) as client,
        known_group(client, group),
        known_job(client, group, job),
    ):
        found = list(client.alerts(state="open", group_id=group, job_id=job))
    is_failure = not all(map(_is_muted, found))
    if as_json:
        print_json(found)
    elif is_failure or not quiet:
        for alert in found:
            click.echo(printable(_describe(alert)))
        if not is_failure:
            click.echo("All open alerts are muted." if found else "no open alerts", err=True)
    if is_failure:
        sys.stdout.flush()  # reports a full disk or a closed pipe here, not at the exit
        raise click.exceptions.Exit(FAILURE)


def _is_muted(alert: Alert) -> bool:
    return alert.muted_until is not None and alert.muted_until > datetime.now(UTC)


def _describe(alert: Alert) -> str:
    """Return what is wrong, and what persons have said to it."""
    remark = _remark(alert)
    return f"{alert.message} ({remark})" if remark else alert.message


def _remark(alert: Alert) -> str:
    parts = []
    if alert.state == "closed":
        reason = _REASONS.get(alert.close_reason or "", alert.close_reason)
        parts.append(f"closed {show_date(alert.close_date)}: {reason}")
    if alert.acknowledged_date is not None:
        parts.append(f"acknowledged by {alert.acknowledged_by}")
    if _is_muted(alert):
        parts.append(f"muted until {show_date(alert.muted_until)}")
    return ", ".join(parts)


# --- list and show ------------------------------------------------------------------------------


@data_command(
    alerts_app,
    "list",
    examples=(
        "gleanery alerts list",
        "gleanery alerts list shop-prices --job shop.example --state all",
        "gleanery alerts list --json | jq -r '.[].message'",
    ),
)
def list_alerts(
    group: Annotated[
        str | None, Argument(metavar="[GROUP]", help="Only alerts of this group.")
    ] = None,
    job: Annotated[
        str | None, Option("--job", metavar="JOB", help="Only alerts of this job of the group.")
    ] = None,
    state: Annotated[
        StateName, Option("--state", help="Only alerts in this state, or all.")
    ] = "open",
    limit: Annotated[
        int, Option("--limit", "-n", metavar="N", min=1, help="At most N alerts.")
    ] = 20,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the open alerts, newest first. The token needs the scope monitors:read."""
    if job is not None and group is None:
        raise UserError("--job is a job of a group: give the GROUP")
    with (
        open_client(url, token_file) as client,
        known_group(client, group or ""),
        known_job(client, group or "", job),
    ):
        found = client.alerts(
            state=None if state == "all" else state, group_id=group, job_id=job, limit=limit
        )
        if as_json:
            print_json_array(found.raw())
            return
        empty = "no open alerts" if state == "open" else "There is no such alert."
        if is_narrow(_TABLE_WIDTH):
            print_blocks(map(_block, found), empty)
        else:
            print_rows(_COLUMNS, map(_row, found), empty, unbroken=_UNBROKEN)


def _block(alert: Alert) -> tuple[str, str]:
    """Return the lines of an alert on a narrow terminal."""
    head = f"{show_date(alert.open_date)}  {alert.group_id}  alert {alert.alert_id}"
    return head, f"  {_describe(alert)}"


def _row(alert: Alert) -> tuple[str, ...]:
    return (
        show_date(alert.open_date),
        alert.group_id,
        alert.message,
        f"{alert.runs:,}",
        _remark(alert),
        alert.alert_id,
    )


@data_command(
    alerts_app,
    "show",
    examples=("gleanery alerts show ALERT_ID", "gleanery alerts show ALERT_ID --json | jq .facts"),
)
def show(
    alert_id: AlertId, as_json: AsJson = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Show one alert, with its rule and its runs. The token needs the scope monitors:read."""
    with open_client(url, token_file) as client:
        alert = client.get_alert(alert_id)
    if as_json:
        print_json(alert)
        return
    members = {
        "Alert": alert.alert_id,
        "Group": alert.group_id,
        "Job": alert.job_id,
        "Kind": alert.kind,
        "Message": alert.message,
        "Labels": ", ".join(f"{name}={value}" for name, value in alert.labels.items()),
        "Fields": ", ".join(field.path for field in alert.facts.fields),
        "Opened": show_date(alert.open_date),
        "First run": alert.run_id,
        "Last run": alert.last_run_id,
        "Runs": f"{alert.runs:,}",
        "Remark": _remark(alert),
    }
    print_members(members)


# --- what persons say ---------------------------------------------------------------------------


@data_command(
    alerts_app,
    "acknowledge",
    examples=(
        "gleanery alerts acknowledge ALERT_ID",
        "gleanery alerts acknowledge ALERT_ID --undo",
    ),
)
def acknowledge(
    alert_id: AlertId,
    undo: Annotated[bool, Option("--undo", help="Nobody works on it.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Say that somebody works on an alert. It stays open, and gleanery check still exits with 1.

    The token needs the scope monitors:write.
    """
    with open_client(url, token_file) as client:
        alert = client.acknowledge_alert(alert_id, not undo)
    _print(alert, as_json)


@data_command(
    alerts_app,
    "mute",
    examples=(
        "gleanery alerts mute ALERT_ID --for 7d",
        "gleanery alerts mute ALERT_ID --until 2026-12-24T08:00:00Z",
        "gleanery alerts mute ALERT_ID --undo",
    ),
)
def mute(
    alert_id: AlertId,
    duration: Annotated[
        str | None,
        Option("--for", metavar="DURATION", help="From now on, such as 90m, 12h or 7d."),
    ] = None,
    until: Annotated[
        str | None,
        Option("--until", metavar="TIME", help="A date or a date-time; without a zone, in UTC."),
    ] = None,
    undo: Annotated[bool, Option("--undo", help="Messages are sent again.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Send no messages about a rule and a job for some time, even if the alert opens again.

    gleanery check does not count muted alerts. The token needs the scope monitors:write.
    """
    if [duration is None, until is None, not undo].count(False) != 1:
        raise UserError("Give one of --for, --until and --undo")
    end = None if undo else _end(duration, until)
    with open_client(url, token_file) as client:
        alert = client.mute_alert(alert_id, end)
    _print(alert, as_json)


def _end(duration: str | None, until: str | None) -> datetime:
    """Return the end of a time that is given in one of two ways."""
    if duration is not None:
        match = _DURATION.fullmatch(duration)
        if match is None:
            raise UserError("--for must be a number and m, h or d, such as 12h or 7d")
        return datetime.now(UTC) + int(match[1]) * _UNITS[match[2]]
    try:
        end = datetime.fromisoformat(_TABLE_DATE.sub("T", until or ""))
    except ValueError:
        raise UserError("--until must be a date or a date-time, such as 2026-12-24") from None
    return end if end.tzinfo is not None else end.replace(tzinfo=UTC)


@data_command(alerts_app, "accept", examples=("gleanery alerts accept ALERT_ID",))
def accept(
    alert_id: AlertId, as_json: AsJson = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Say that what the last run was like is normal now. The alert closes.

    Later runs are compared with that run. The token needs the scope monitors:write.
    """
    with open_client(url, token_file) as client:
        alert = client.accept_alert(alert_id)
    _print(alert, as_json)


def _print(alert: Alert, as_json: bool) -> None:
    if as_json:
        print_json(alert)
    else:
        click.echo(printable(_describe(alert)))
