"""``gleanery token``: create, list and revoke access tokens; login links for the console."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gleanery.cli.service.database import with_database
from gleanery.cli.service.names import check_name
from gleanery.cli.service.options import option, settings_options
from gleanery.cli.terminal import print_table
from gleanery.errors import NotFound, SettingsError
from gleanery.security import console_login, tokens
from gleanery.settings import Settings
from gleanery.storage import login_links, organizations
from gleanery.storage.database import Engine
from gleanery.storage.organizations import ListedToken, NewToken
from gleanery.values import timestamps

app = typer.Typer()
token_app = typer.Typer(help="Create, list and revoke access tokens.", no_args_is_help=True)
app.add_typer(token_app, name="token")

_COLUMNS = ("ID", "Organization", "Name", "Scopes", "Created", "Expires", "Last used", "State")
_MAX_PERSON = 100
_LIFETIME = re.compile(r"([1-9][0-9]{0,11})([smhd])")
_MAX_LIFETIME_SECONDS = 100 * 365 * 86400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DEFAULT_SCOPES = ",".join(scope for scope in tokens.SCOPES if scope in tokens.DEFAULT_SCOPES)


@token_app.command("create")
@settings_options("data", "blobs", "database", "create")
def create_token(
    organization: Annotated[
        str, option("organization", "Name of the organization. It is created if it is new.")
    ],
    settings: Settings,
    name: Annotated[
        str | None, option("name", "Name that token list shows, such as the client's.")
    ] = None,
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
        _announce(organization, similar)
    typer.echo(created.token)


def _announce(organization: str, similar: str | None) -> None:
    typer.echo(f"Created the organization {organization}", err=True)
    if similar is not None:
        typer.echo(
            f"There is also the organization {similar}: if you meant it, create a token for it, "
            "and delete the new one with gleanery organization delete",
            err=True,
        )


@token_app.command("list")
@settings_options("data", "database")
def list_tokens(settings: Settings) -> None:
    """List all tokens with their ids and scopes; never the tokens themselves.

    The last use is stored about once a minute.
    """
    table = Table(*_COLUMNS, box=None)
    now = timestamps.now()
    for token in with_database(settings, organizations.list_tokens):
        table.add_row(
            str(token.id),
            Text(token.organization),
            Text(token.name or ""),
            ",".join(token.scopes),
            timestamps.render_microseconds(token.created_at),
            _date(token.expires_at),
            _date(token.last_used_at),
            _state(token, now),
        )
    print_table(table)


def _date(time: int | None) -> str:
    return "never" if time is None else timestamps.render_microseconds(time)


def _state(token: ListedToken, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    is_expired = token.expires_at is not None and token.expires_at <= now
    return "expired" if is_expired else "valid"


@token_app.command("revoke")
@settings_options("data", "database")
def revoke_token(
    token_id: Annotated[
        int,
        typer.Argument(
            metavar="ID", help="Id, as shown by gleanery token list.", min=1, max=2**63 - 1
        ),
    ],
    settings: Settings,
) -> None:
    """Revoke a token. Every node rejects it within seconds."""
    now = timestamps.now()
    with_database(settings, lambda database: organizations.revoke_token(database, token_id, now))
    typer.echo(f"Token {token_id} is revoked.")


@token_app.command("login-link")
@settings_options("data", "database", "host", "port", "tls_cert", "base_url")
def create_login_link(
    token_id: Annotated[
        int,
        typer.Argument(
            metavar="ID", help="Id, as shown by gleanery token list.", min=1, max=2**63 - 1
        ),
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
        return await login_links.create(engine, grant, person, now)

    secret = with_database(settings, create)
    typer.echo(console_login.link_address(address, secret, person))


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
