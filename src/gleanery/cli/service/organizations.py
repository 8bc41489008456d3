"""Commands on organizations: ``gleanery organization``, ``token`` and ``usage``.

An organization has tokens, and login links for the console. Its usage is what it has sent, received
and stored.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import click

from gleanery.cli.declaration import Argument, CommandGroup, Option
from gleanery.cli.service.command import (
    check_name,
    confirmation,
    option,
    settings_options,
    with_database,
)
from gleanery.cli.terminal import pluralize, print_table, progress_bars
from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import organization_removal, storage_bytes
from gleanery.service.resources.access import (
    console_sessions,
    organizations,
)
from gleanery.service.resources.access.organizations import Counts, ListedToken, NewToken
from gleanery.service.storage import usage
from gleanery.service.storage.database import Database, Engine

app = CommandGroup()
organization_app = CommandGroup(help="List, rename and delete organizations.")
app.add_command(organization_app, "organization")
token_app = CommandGroup(help="Create, list and revoke access tokens.")
app.add_command(token_app, "token")
Name = Annotated[str, Argument(metavar="NAME", help="Name of the organization.")]
_COLUMNS = (
    *("ID", "Name", "Created", "Groups", "Outputs", "Files", "Cookies", "Local storage"),
    *("Tokens", "State"),
)
_DELETION_COLUMNS = ("ID", "Name", "Outputs", "Files", "Started", "Finished")
_TOKEN_COLUMNS = (
    "ID",
    "Organization",
    "Name",
    "Scopes",
    "Created",
    "Expires",
    "Last used",
    "State",
)
_MAX_PERSON = 100
_LIFETIME = re.compile(r"([1-9][0-9]{0,11})([smhd])")
_MAX_LIFETIME_SECONDS = 100 * 365 * 86400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DEFAULT_SCOPES = ",".join(scope for scope in tokens.SCOPES if scope in tokens.DEFAULT_SCOPES)
_USAGE_COLUMNS = ("ID", "Organization", "Requests", "Bytes in", "Bytes out", "Outputs stored")
_STORAGE_COLUMNS = ("Database bytes", "File bytes", "Measured on")
_STORAGE_KEYS = ("database_bytes", "file_bytes", "measured_on")
_USAGE_SUMS = usage.DayUsage._fields[1:]


@organization_app.declare("list")
@settings_options("data", "database")
def list_organizations(
    settings: Settings,
    deleted: Annotated[bool, option("deleted", "List the deletions instead.")] = False,
) -> None:
    """List the organizations, with the number of their records."""
    if deleted:
        print_table(_DELETION_COLUMNS, _deletions(settings))
    else:
        print_table(_COLUMNS, _organizations(settings))


def _organizations(settings: Settings) -> Iterator[tuple[str, ...]]:
    for found in with_database(settings, organizations.list_all):
        created = timestamps.render_microseconds(found.created_at)
        state = "being deleted" if found.is_being_deleted else "active"
        yield str(found.id), found.name, created, *map(str, found.counts), state


def _deletions(settings: Settings) -> Iterator[tuple[str, ...]]:
    for found in with_database(settings, organizations.list_deleted):
        started = timestamps.render_microseconds(found.started_at)
        finished = "not yet"
        if found.finished_at is not None:
            finished = timestamps.render_microseconds(found.finished_at)
        counts = (str(found.output_count), str(found.file_count))
        yield str(found.id), found.name, *counts, started, finished


@organization_app.declare("rename")
@settings_options("data", "database")
def rename_organization(
    name: Name,
    new_name: Annotated[
        str, Argument(metavar="NEW_NAME", help="Name that no other organization has.")
    ],
    settings: Settings,
) -> None:
    """Rename an organization. Its tokens and its data stay as they are."""
    check_name("NEW_NAME", new_name)
    now = timestamps.now()
    with_database(settings, lambda engine: organizations.rename(engine, name, new_name, now))
    click.echo("The organization is renamed.")


@organization_app.declare("delete")
@settings_options("data", "database", "blobs")
def delete_organization(
    name: Name,
    settings: Settings,
    yes: Annotated[bool, confirmation("yes", "Do not ask.")] = False,
    ignore_missing_files: Annotated[
        bool,
        confirmation("ignore-missing-files", "Delete it although its files are not in --blobs."),
    ] = False,
) -> None:
    """Delete an organization with all its data, while the service runs.

    Its tokens stop working at once. If the command is interrupted, run it again. Its audit log is
    kept for --audit-days of the service.
    """
    if not yes:
        _confirm(name, with_database(settings, partial(_count, name)))
    with progress_bars() as progress:
        work = partial(
            organization_removal.delete_organization, settings, name, ignore_missing_files, progress
        )
        counts = with_database(settings, work)
    click.echo(f"Deleted the organization with {_describe(counts)}.")


async def _count(name: str, engine: Engine) -> Counts:
    return await organizations.count_records(
        engine.for_tenant(await organizations.find(engine, name))
    )


def _confirm(name: str, counts: Counts) -> None:
    """Ask for the name of the organization. Raises SettingsError unless it is typed."""
    if not sys.stdin.isatty():
        raise SettingsError("There is no terminal to ask for confirmation: give --yes to delete")
    click.echo(f"The organization has {_describe(counts)}. All of it will be deleted.", err=True)
    typed = click.prompt("Type the name of the organization to delete it", err=True)
    if typed != name:
        raise SettingsError("That is not the name of the organization: nothing is deleted")


def _describe(counts: Counts) -> str:
    return (
        f"{pluralize(counts.groups, 'group')}, {pluralize(counts.outputs, 'output')}, "
        f"{pluralize(counts.files, 'file')}, {pluralize(counts.cookies, 'cookie')} and "
        f"{pluralize(counts.local_storage, 'local-storage record')}"
    )


@token_app.declare("create")
@settings_options("data", "blobs", "database", "create")
def create_token(
    organization: Annotated[
        str, option("organization", "Name of the organization. It is created if it is new.")
    ],
    settings: Settings,
    name: Annotated[str | None, option("name", "Name that gleanery token list shows.")] = None,
    scopes: Annotated[
        str, option("scopes", f"Scopes, separated by commas: {', '.join(tokens.SCOPES)}.")
    ] = _DEFAULT_SCOPES,
    expires_in: Annotated[
        str | None,
        option("expires-in", "Lifetime, such as 12h or 90d; without it the token does not expire."),
    ] = None,
) -> None:
    """Print a new token. It cannot be shown again, because only its hash is stored."""
    now = timestamps.now()
    granted, expires = _parse_scopes(scopes), _parse_lifetime(expires_in, now)
    check_name("--organization", organization)
    if name is not None:
        check_name("--name", name)

    async def create(engine: Engine) -> tuple[NewToken, str | None]:
        created = await organizations.create_named_token(
            engine, organization, name, granted, now, expires
        )
        return created, await organizations.similar_name(engine, organization)

    created, similar = with_database(settings, create, create=True)
    if created.is_new_organization:
        _announce_organization(organization, similar)
    click.echo(created.token)


def _announce_organization(organization: str, similar: str | None) -> None:
    click.echo(f"Created the organization {organization}", err=True)
    if similar is not None:
        click.echo(
            f"There is also the organization {similar}: if you meant it, create a token for it, "
            "and delete the new one with gleanery organization delete",
            err=True,
        )


@token_app.declare("list")
@settings_options("data", "database")
def list_tokens(settings: Settings) -> None:
    """List all tokens with their ids and scopes; never the tokens themselves.

    The last use is stored about once a minute.
    """
    now = timestamps.now()
    found = with_database(settings, organizations.list_tokens)
    print_table(_TOKEN_COLUMNS, [_token_row(token, now) for token in found])


def _token_row(token: ListedToken, now: int) -> tuple[str, ...]:
    return (
        str(token.id),
        token.organization,
        token.name or "",
        ",".join(token.scopes),
        timestamps.render_microseconds(token.created_at),
        _time(token.expires_at),
        _time(token.last_used_at),
        _token_state(token, now),
    )


def _time(time: int | None) -> str:
    return "never" if time is None else timestamps.render_microseconds(time)


def _token_state(token: ListedToken, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    is_expired = token.expires_at is not None and token.expires_at <= now
    return "expired" if is_expired else "valid"


@token_app.declare("revoke")
@settings_options("data", "database")
def revoke_token(
    token_id: Annotated[
        int,
        Argument(metavar="ID", help="Id, as shown by gleanery token list.", min=1, max=2**63 - 1),
    ],
    settings: Settings,
) -> None:
    """Revoke a token. Every node rejects it within seconds."""
    now = timestamps.now()
    with_database(settings, lambda database: organizations.revoke_token(database, token_id, now))
    click.echo(f"Token {token_id} is revoked.")


@token_app.declare("login-link")
@settings_options("data", "database", "host", "port", "tls_cert", "base_url")
def create_login_link(
    token_id: Annotated[
        int,
        Argument(metavar="ID", help="Id, as shown by gleanery token list.", min=1, max=2**63 - 1),
    ],
    settings: Settings,
    person: Annotated[
        str | None,
        option("person", "Name of the person; without it, the page asks for the name."),
    ] = None,
) -> None:
    """Print a link that signs one person in to the console with the rights of a token.

    It works once, within 15 minutes. The person does not learn the token. Example:
    gleanery token login-link 7 --person "Anna Reviewer" --base-url https://data.example.com
    """
    if person is not None:
        check_name("--person", person, _MAX_PERSON)
    address, now = settings.checked_address(), timestamps.now()

    async def create(engine: Engine) -> str:
        grant = await organizations.find_grant_by_id(engine, token_id)
        if grant is None or (grant.expires is not None and grant.expires <= now):
            raise NotFound(("token",), f"There is no valid token {token_id}")
        return await console_sessions.create_link(engine, grant, person, now)

    secret = with_database(settings, create)
    click.echo(console_sessions.link_address(address, secret, person))


def _parse_scopes(text: str) -> frozenset[str]:
    scopes = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = sorted(scopes - tokens.SCOPES.keys())
    if unknown or not scopes:
        raise SettingsError(
            f"--scopes must be one or more of {', '.join(tokens.SCOPES)}"
            + (f"; unknown: {', '.join(unknown)}" if unknown else "")
        )
    return scopes


def _parse_lifetime(text: str | None, now: int) -> int | None:
    if text is None:
        return None
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise SettingsError("--expires-in must be a number and s, m, h or d, such as 12h or 90d")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > _MAX_LIFETIME_SECONDS:
        raise SettingsError("--expires-in must be at most 100 years; omit it for no expiry")
    return now + seconds * timestamps.SECOND


@app.declare("usage")
@settings_options("data", "database")
def show_usage(
    settings: Settings,
    organization: Annotated[
        str | None, option("organization", "Name of one organization; without it, show all.")
    ] = None,
    days: Annotated[
        int,
        Option(
            "--days", min=1, max=usage.KEPT_DAYS, help="Number of days to add up, including today."
        ),
    ] = 30,
    storage: Annotated[
        bool,
        Option("--storage", help="Measure the stored bytes now. This reads every row."),
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Show the requests, the bytes, the outputs and the stored bytes of each organization.

    The services store these numbers about once a minute. They measure the stored bytes once an hour
    to once a day, depending on how many there are. Days are days in UTC. Example:
    gleanery usage --days 7 --json
    """
    work = partial(_read_usage, organization, timestamps.now() // usage.DAY - days + 1, storage)
    found = with_database(settings, work)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        print_table((*_USAGE_COLUMNS, *_STORAGE_COLUMNS), map(_usage_row, found))


async def _read_usage(
    name: str | None, first_day: int, with_storage: bool, engine: Engine
) -> list[dict[str, Any]]:
    """Return the usage of one organization, or of all, as the command prints it as JSON."""
    if name is not None:
        await organizations.find(engine, name)  # raises NotFound
    return [
        await _read_one_usage(engine, id_, found, first_day, with_storage)
        for id_, found in await organizations.all_names(engine)
        if name in (None, found)
    ]


async def _read_one_usage(
    engine: Engine, id_: int, name: str, first_day: int, with_storage: bool
) -> dict[str, Any]:
    database = engine.for_tenant(id_)
    days = await usage.read(database, first_day)
    found: dict[str, Any] = {"organization_id": id_, "organization": name}
    found |= {key: sum(getattr(day, key) for day in days) for key in _USAGE_SUMS}
    found |= dict(zip(_STORAGE_KEYS, await _read_storage(database, with_storage), strict=True))
    found["days"] = [day._asdict() | {"day": _day(day.day)} for day in days]
    return found


async def _read_storage(database: Database, measures: bool) -> Sequence[int | str | None]:
    """Return the bytes in the database and in files, and the day of the measurement."""
    find = storage_bytes.measure if measures else usage.last_storage
    storage = await find(database, timestamps.now() // usage.DAY)
    if storage is None:
        return (None, None, None)
    return (storage.database_bytes, storage.file_bytes, _day(storage.day))


def _day(day: int) -> str:
    return timestamps.render_microseconds(day * usage.DAY)[:10]


def _usage_row(one: dict[str, Any]) -> tuple[str, ...]:
    values = (one[key] for key in (*_USAGE_SUMS, *_STORAGE_KEYS))
    numbers = ("-" if value is None else str(value) for value in values)
    return str(one["organization_id"]), one["organization"], *numbers
