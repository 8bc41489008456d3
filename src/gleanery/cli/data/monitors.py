"""``gleanery monitors``: the rules that the runs of a group must keep."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from gleanery.cli.data.command import (
    AsJson,
    UserError,
    data_command,
    epilog,
    print_json,
    print_rows,
)
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.declaration import Argument, CommandGroup, Option
from gleanery.client.errors import Invalid

if TYPE_CHECKING:
    from gleanery.client import Rule, SuggestedRule

app = CommandGroup()
monitors_app = CommandGroup(
    help="Show, set and suggest the rules that the runs of a group must keep.",
    epilog=epilog(
        (
            "gleanery monitors show shop-prices",
            "gleanery monitors add shop-prices few_outputs --job s4 --threshold 0.7",
        )
    ),
)
app.add_command(monitors_app, "monitors")

_COLUMNS = ("Kind", "Job", "Field", "An alert opens if")
_SUGGESTED_COLUMNS = (*_COLUMNS, "Past runs", "Reason")
_OF_SUGGESTION = ("reason", "preview")
_OPTIONS = {"job_id": "--job"}
_EMPTY = "The group has no rule: gleanery monitors add creates one."

KindName = Literal[
    "no_run",
    "failed_run",
    "few_outputs",
    "fill_rate",
    "kind_change",
    "rejected",
    "missing",
    "number_shift",
    "duplicates",
    "held_removal",
]
Kind = Annotated[
    KindName,
    Argument(
        metavar="KIND",
        help="no_run, failed_run, few_outputs, fill_rate, kind_change, rejected, missing, "
        "number_shift, duplicates or held_removal.",
    ),
]
Job = Annotated[
    str | None, Option("--job", metavar="JOB", help="Only this job. Default: all jobs.")
]
Field = Annotated[
    str | None,
    Option(
        "--path",
        metavar="PATH",
        help="Only this field, of fill_rate, kind_change and number_shift. Default: all fields.",
    ),
]


# --- show and suggest ---------------------------------------------------------------------------


@data_command(
    monitors_app,
    "show",
    examples=(
        "gleanery monitors show shop-prices",
        "gleanery monitors show shop-prices --json > rules.json",
    ),
)
def show(
    group: GroupName, as_json: AsJson = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Show the rules of a group. A new group has three. The token needs the scope monitors:read."""
    with open_client(url, token_file) as client, known_group(client, group):
        found = client.monitors(group)
    _print(found, as_json)


def _print(found: Sequence[Rule], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        print_rows(_COLUMNS, map(_row, found), _EMPTY)


def _row(rule: Rule) -> tuple[str, ...]:
    return (rule.kind, rule.job_id or "all", rule.path or "", _describe(rule))


def _describe(rule: Rule) -> str:
    """Return the condition of a rule, for people."""
    if not rule.enabled:
        return "never: the rule is off"
    threshold = rule.threshold or 0
    share = f"{100 * threshold:g} %"
    if rule.kind == "no_run" and rule.hours is not None:
        return f"there is no run for {rule.hours:g} hours"
    if rule.kind == "failed_run":
        return "a run fails" if threshold <= 1 else f"{threshold:g} runs in a row fail"
    minimum = "" if rule.minimum is None else f", or fewer than {rule.minimum:,}"
    texts = {
        "no_run": f"there is no run for {threshold:g} times the usual interval",
        "few_outputs": f"a run sends at most {share} of the usual outputs{minimum}",
        "fill_rate": f"a field is filled less often by {100 * threshold:g} percentage points",
        "kind_change": f"{share} of the values have another kind",
        "rejected": f"{share} of the elements are not valid",
        "missing": f"{share} of the outputs are missing",
        "number_shift": f"the median is {threshold:g} times larger or smaller",
        "duplicates": f"{share} of the outputs have the same data",
        "held_removal": "a removal waits for a decision",
    }
    return texts.get(rule.kind, f"the threshold is {threshold:g}")


@data_command(
    monitors_app,
    "suggest",
    examples=(
        "gleanery monitors suggest shop-prices",
        "gleanery monitors suggest shop-prices --json | jq '.[].preview'",
    ),
)
def suggest(
    group: GroupName, as_json: AsJson = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Suggest rules that fit the past runs, with the alerts that they would have opened.

    It changes nothing: gleanery monitors add adds a rule. The token needs the scope monitors:read.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        found = client.suggested_monitors(group)
    if as_json:
        print_json(found)
        return
    empty = "There is no suggestion: the group has all rules that fit its runs."
    print_rows(_SUGGESTED_COLUMNS, map(_suggested_row, found), empty)


def _suggested_row(rule: SuggestedRule) -> tuple[str, ...]:
    preview = rule.preview
    if not preview.runs:
        return (*_row(rule), "none to judge yet", rule.reason)
    alerts = "1 alert" if preview.alerts == 1 else f"{preview.alerts:,} alerts"
    runs = "1 run" if preview.runs == 1 else f"{preview.runs:,} runs"
    return (*_row(rule), f"{alerts} in {runs}", rule.reason)


# --- change -------------------------------------------------------------------------------------


@data_command(
    monitors_app,
    "set",
    examples=(
        "gleanery monitors set shop-prices --file rules.json",
        "gleanery monitors set shop-prices --file - < rules.json",
    ),
)
def set_(
    group: GroupName,
    file: Annotated[
        str,
        Option(
            "--file",
            metavar="FILE",
            help="JSON array of rules, as gleanery monitors show --json prints it; - is standard "
            "input.",
        ),
    ],
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Replace all rules of a group, and print them. Alerts of rules that are gone close.

    The token needs the scope monitors:write.
    """
    if file == token_file == "-":
        raise UserError("--file and --token-file cannot both be standard input")
    wanted = _read(file)
    with open_client(url, token_file) as client, known_group(client, group):
        try:
            stored = client.set_monitors(group, wanted)
        except Invalid as error:
            raise _explain(error, of_file=True) from None
    _print(stored, as_json)


def _read(file: str) -> list[dict[str, Any]]:
    """Return the rules of a file. Suggestions are rules without what is said about them."""
    import json

    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        rules = json.loads(content)
    except ValueError as error:
        raise UserError(f"--file must be JSON: {error}") from None
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise UserError("--file must be a JSON array of rules: gleanery monitors show --json")
    return [
        {name: value for name, value in rule.items() if name not in _OF_SUGGESTION}
        for rule in rules
    ]


def _explain(error: Invalid, *, of_file: bool) -> UserError:
    """Return the messages about rules, with their numbers in a file, or with options."""
    problems = []
    for detail in error.detail:
        body, number, member, *_ = (*detail.loc, "", "", "")
        words = []
        if body == "body" and number.isdecimal():
            words = [f"rule {int(number) + 1}"] if of_file else []
            words += [member if of_file else _OPTIONS.get(member, f"--{member}")] if member else []
        problems.append(": ".join([*words, detail.msg]))
    return UserError("; ".join(problems))


@data_command(
    monitors_app,
    "add",
    examples=(
        "gleanery monitors add shop-prices failed_run",
        "gleanery monitors add shop-prices few_outputs --job s4 --threshold 0.7 --minimum 100",
        "gleanery monitors add shop-prices fill_rate --path price --threshold 0.05",
        "gleanery monitors add shop-prices no_run --job s5 --off",
    ),
)
def add(
    group: GroupName,
    kind: Kind,
    job: Job = None,
    path: Field = None,
    threshold: Annotated[
        float | None,
        Option(
            "--threshold",
            metavar="NUMBER",
            help="When an alert opens, such as 0.7: at most 70 % of the usual outputs. Each kind "
            "has a default.",
        ),
    ] = None,
    hours: Annotated[
        float | None,
        Option("--hours", metavar="NUMBER", help="Of no_run: hours without a run."),
    ] = None,
    minimum: Annotated[
        int | None,
        Option(
            "--minimum",
            metavar="N",
            min=0,
            help="Of few_outputs: fewer outputs open an alert, whatever is usual.",
        ),
    ] = None,
    off: Annotated[
        bool,
        Option("--off", help="This job or field has no such rule, although all others have it."),
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Add a rule to those of a group, and print all. It replaces one of the same kind and place.

    A rule for a job or a field replaces the same rule for all. The token needs the scopes
    monitors:read and monitors:write.
    """
    from gleanery.client import Rule

    added = Rule(kind, job, path, threshold, hours, minimum, not off)
    with open_client(url, token_file) as client, known_group(client, group):
        kept = [rule for rule in client.monitors(group) if not _is_at(rule, kind, job, path)]
        try:
            stored = client.set_monitors(group, [*kept, added])
        except Invalid as error:
            raise _explain(error, of_file=False) from None
    _print(stored, as_json)


def _is_at(rule: Rule, kind: str, job: str | None, path: str | None) -> bool:
    return (rule.kind, rule.job_id, rule.path) == (kind, job, path)


@data_command(
    monitors_app,
    "remove",
    examples=(
        "gleanery monitors remove shop-prices fill_rate",
        "gleanery monitors remove shop-prices few_outputs --job s4",
    ),
)
def remove(
    group: GroupName,
    kind: Kind,
    job: Job = None,
    path: Field = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Remove a rule of a group, and print the others. If it is the last of its kind, alerts close.

    The token needs the scopes monitors:read and monitors:write.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        present = client.monitors(group)
        kept = [rule for rule in present if not _is_at(rule, kind, job, path)]
        if len(kept) == len(present):
            raise UserError("There is no such rule: gleanery monitors show lists them")
        stored = client.set_monitors(group, kept)
    _print(stored, as_json)
