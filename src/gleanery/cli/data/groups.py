"""``gleanery group``: show and change the settings of a group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from gleanery.cli.data.command import (
    AsJson,
    UserError,
    data_command,
    epilog,
    is_about_group,
    print_json,
    print_rows,
    shorten,
)
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.declaration import Argument, CommandGroup, Option
from gleanery.client.errors import NotFound

if TYPE_CHECKING:
    from gleanery.client import Client, Group

app = CommandGroup()
group_app = CommandGroup(
    help="Show and change the settings of a group.",
    epilog=epilog(
        (
            "gleanery group show shop-prices",
            "gleanery group set shop-prices --missing-after-runs 3",
        )
    ),
)
app.add_command(group_app, "group")

_RULE = "missing"
_SETTINGS = (
    "display_name",
    "key_fields",
    "schema",
    "retain_days",
    "keep_versions",
    "keep_days",
    "run_timeout_minutes",
    _RULE,
)
_NOT_SET = "not set"


@data_command(
    group_app,
    "show",
    examples=("gleanery group show shop-prices", "gleanery group show shop-prices --json"),
)
def show(
    group: GroupName, as_json: AsJson = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Show the settings of a group."""
    with open_client(url, token_file) as client, known_group(client, group):
        found = client.group(group)
    _print(found, as_json)


@data_command(
    group_app,
    "set",
    examples=(
        "gleanery group set shop-prices --missing-after-runs 3 --missing-max-share 0.2",
        "gleanery group set shop-prices --run-timeout-minutes 60",
        "gleanery group set shop-prices --reset missing",
    ),
)
def set_(
    group: Annotated[str, Argument(metavar="GROUP", help="Group; a new one is created.")],
    missing_after_runs: Annotated[
        int | None,
        Option(
            "--missing-after-runs",
            metavar="N",
            min=1,
            help="Remove an output after it was missing in N complete runs in a row. Default: "
            "outputs are never removed.",
        ),
    ] = None,
    missing_max_share: Annotated[
        float | None,
        Option(
            "--missing-max-share",
            metavar="SHARE",
            min=0,
            max=1,
            help="A removal of more than this share of a job waits for a decision. Default: 0.3.",
        ),
    ] = None,
    run_timeout_minutes: Annotated[
        int | None,
        Option(
            "--run-timeout-minutes",
            metavar="N",
            min=1,
            help="A run that was started is abandoned after N minutes without outputs. Default: "
            "360.",
        ),
    ] = None,
    retain_days: Annotated[
        int | None,
        Option(
            "--retain-days",
            metavar="N",
            min=1,
            help="Delete an output that no scraper has sent for N days. Default: never.",
        ),
    ] = None,
    keep_versions: Annotated[
        int | None,
        Option(
            "--keep-versions",
            metavar="N",
            min=0,
            help="Earlier versions that each output keeps. Default: 20.",
        ),
    ] = None,
    keep_days: Annotated[
        int | None,
        Option(
            "--keep-days",
            metavar="N",
            min=1,
            help="Keep an earlier version for N days after another has replaced it. Default: 90.",
        ),
    ] = None,
    key_fields: Annotated[
        list[str] | None,
        Option(
            "--key-field",
            metavar="FIELD",
            help="Member of the data that makes the key of an output. Repeat it for more. Default: "
            "the URL is the key.",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        Option("--schema", metavar="FILE", help="File with the JSON Schema that data must meet."),
    ] = None,
    display_name: Annotated[
        str | None,
        Option("--display-name", metavar="TEXT", help="Name of the group for people."),
    ] = None,
    reset: Annotated[
        list[str] | None,
        Option(
            "--reset",
            metavar="SETTING",
            help="Setting that gets its default again, such as retain_days or missing. Repeat it "
            "for more.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Change settings of a group, and print all of them. The other settings stay as they are.

    The token needs the scopes outputs:read and outputs:write.
    """
    given: dict[str, Any] = {
        "display_name": display_name,
        "key_fields": key_fields or None,
        "schema": None if schema is None else _read_schema(schema),
        "retain_days": retain_days,
        "keep_versions": keep_versions,
        "keep_days": keep_days,
        "run_timeout_minutes": run_timeout_minutes,
    }
    rule = {"after_runs": missing_after_runs, "max_share": missing_max_share}
    changes = {name: value for name, value in given.items() if value is not None}
    rule_changes = {name: value for name, value in rule.items() if value is not None}
    _check(changes, rule_changes, reset or [])
    with open_client(url, token_file) as client:
        before = _read_settings(client, group)
        settings = {**(before or {}), **changes}
        if rule_changes:
            settings[_RULE] = {**settings.get(_RULE, {}), **rule_changes}
        for name in reset or ():
            settings.pop(name, None)
        changed = client.set_group(group, **settings)
    if before is None:
        click.echo("Created the group.", err=True)
    _print(changed, as_json)


def _check(changes: dict[str, Any], rule: dict[str, Any], reset: list[str]) -> None:
    """Raise UserError if nothing is to be changed, or the same setting in two ways."""
    if not (changes or rule or reset):
        raise UserError("Give a setting to change, such as --missing-after-runs 3: see --help")
    for name in reset:
        if name not in _SETTINGS:
            raise UserError(f"--reset must be {', '.join(_SETTINGS[:-1])} or {_RULE}")
        if name in changes or (name == _RULE and rule):
            raise UserError(f"--reset {name} contradicts another option: leave out one of them")


def _read_schema(file: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(Path(file).read_bytes())
    except msgspec.DecodeError as error:
        raise UserError(f"{file} must contain a JSON Schema: {error}") from None


def _read_settings(client: Client, group: str) -> dict[str, Any] | None:
    """Return the settings that a request must repeat; None if the group is new."""
    from msgspec.structs import asdict

    try:
        found = client.group(group)
    except NotFound as error:
        if not is_about_group(error):
            raise
        return None
    settings = {name: getattr(found, name) for name in _SETTINGS}
    return {**settings, _RULE: asdict(found.missing)}


def _print(group: Group, as_json: bool) -> None:
    if as_json:
        print_json(group)
        return
    values = {name: getattr(group, name) for name in _SETTINGS if name != _RULE}
    values["missing.after_runs"] = group.missing.after_runs
    values["missing.max_share"] = group.missing.max_share
    rows = ((name, _show(value)) for name, value in values.items())
    print_rows(("Setting", "Value"), rows, empty="", unbroken=("Setting",))


def _show(value: Any) -> str:
    if value is None:
        return _NOT_SET
    return value if isinstance(value, str) else shorten(value)
