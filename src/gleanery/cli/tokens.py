"""``gleanery token``: make, list and revoke the tokens that clients use."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gleanery.cli.database import with_database
from gleanery.cli.options import DEFAULT, Data, DatabaseUrl, option
from gleanery.cli.terminal import show
from gleanery.errors import SettingsError
from gleanery.security import tokens
from gleanery.storage import organizations
from gleanery.storage.database import Engine
from gleanery.values import timestamps

app = typer.Typer()
token_app = typer.Typer(
    help="Make, list and revoke the tokens that clients use.", no_args_is_help=True
)
app.add_typer(token_app, name="token")

_LIFETIME = re.compile(r"([1-9][0-9]{0,11})([smhd])")
_LONGEST_LIFE = 100 * 365 * 86400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@token_app.command("create")
def create_token(
    organization: Annotated[str, option("organization", "Name; made if it is new.")],
    scopes: Annotated[
        str, option("scopes", f"Comma-separated, of: {', '.join(tokens.SCOPES)}.")
    ] = ",".join(scope for scope in tokens.SCOPES if scope in tokens.DEFAULT_SCOPES),
    expires_in: Annotated[
        str | None, option("expires-in", "Lifetime, such as 12h or 90d; without it, no end.")
    ] = None,
    data: Data = DEFAULT.data,
    database: DatabaseUrl = None,
) -> None:
    """Print a new token, alone on standard output. It is shown this once and stored nowhere."""
    now = timestamps.now()
    chosen, expires = _scopes(scopes), _expiry(expires_in, now)
    if not organization.strip() or len(organization) > 200 or "\0" in organization:
        raise SettingsError("--organization must be a name of 1 to 200 characters")

    async def work(database: Engine) -> str:
        return await organizations.create_token(database, organization, chosen, now, expires)

    typer.echo(with_database(data, database, work, create=True))


@token_app.command("list")
def list_tokens(data: Data = DEFAULT.data, database: DatabaseUrl = None) -> None:
    """List all tokens: their numbers and what they allow, never the tokens themselves."""
    table = Table("ID", "Organization", "Scopes", "Created", "Expires", "State", box=None)
    now = timestamps.now()
    for token in with_database(data, database, organizations.list_tokens):
        expired = token.expires is not None and token.expires <= now
        table.add_row(
            str(token.id),
            Text(token.organization),
            ",".join(token.scopes),
            timestamps.render_moment(token.created),
            timestamps.render_moment(token.expires) if token.expires is not None else "never",
            "revoked" if token.revoked else "expired" if expired else "valid",
        )
    show(table)


@token_app.command("revoke")
def revoke_token(
    token_id: Annotated[
        int, typer.Argument(metavar="ID", help="As token list shows it.", min=1, max=2**63 - 1)
    ],
    data: Data = DEFAULT.data,
    database: DatabaseUrl = None,
) -> None:
    """Make a token worthless, on every node within seconds."""
    now = timestamps.now()
    with_database(data, database, lambda db: organizations.revoke_token(db, token_id, now))
    typer.echo(f"Token {token_id} is revoked.")


def _scopes(text: str) -> frozenset[str]:
    chosen = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = sorted(chosen - tokens.SCOPES.keys())
    if unknown or not chosen:
        raise SettingsError(
            f"--scopes must be one or more of {', '.join(tokens.SCOPES)}"
            + (f"; not {', '.join(unknown)}" if unknown else "")
        )
    return chosen


def _expiry(text: str | None, now: int) -> int | None:
    if text is None:
        return None
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise SettingsError("--expires-in must be a number and s, m, h or d, such as 12h or 90d")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > _LONGEST_LIFE:
        raise SettingsError("--expires-in may be 100 years at most; leave it out for no end")
    return now + seconds * timestamps.SECOND
