"""``gleanery keys``: list, rotate and forget the keys that encrypt session values."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from gleanery.admin import key_rotation
from gleanery.cli.database import with_database
from gleanery.cli.options import option, settings_options
from gleanery.cli.terminal import print_table, progress_bars
from gleanery.security.vault import open_vault
from gleanery.settings import Settings
from gleanery.storage.database import Engine

app = typer.Typer()
keys_app = typer.Typer(
    help="List, rotate and forget the keys that encrypt cookie and local-storage values.",
    no_args_is_help=True,
)
app.add_typer(keys_app, name="keys")

T = TypeVar("T")


@keys_app.command("list")
@settings_options("data", "database")
def list_keys(settings: Settings) -> None:
    """List the keys by fingerprint, with the number of values that each has encrypted."""
    table = Table("Key", "Values", "State", box=None)
    for key in _with_database(settings, key_rotation.list_keys):
        table.add_row(key.fingerprint, str(key.values), _state(key))
    print_table(table)


def _state(key: key_rotation.ListedKey) -> str:
    return ("available" if key.is_available else "missing") + (", active" if key.is_active else "")


@keys_app.command("rotate")
@settings_options("data", "database")
def rotate_keys(settings: Settings) -> None:
    """Encrypt every value with a new key while the service runs.

    With SQLite, this replaces the key in secret.key. If GLEANERY_SECRET_KEY holds the key, first
    put a new key in front of it on every node, and remove the old key afterwards.
    """
    with progress_bars() as progress:
        done = _with_database(settings, partial(key_rotation.rotate, progress=progress))
    typer.echo(f"Encrypted {done.values} values again; the active key is {done.key}.")
    if done.broken:
        typer.echo(
            f"{done.broken} values cannot be decrypted with the available keys and are unchanged. "
            "gleanery keys list shows the missing keys; gleanery keys forget removes the values."
        )
    if not done.is_file:
        typer.echo("Remove the old key from GLEANERY_SECRET_KEY, on one node after the other.")


@keys_app.command("forget")
@settings_options("data", "database")
def forget_keys(
    settings: Settings, yes: Annotated[bool, option("yes", "Do not ask.")] = False
) -> None:
    """Remove the values that no available key can decrypt, because their key is lost."""
    count = _with_database(settings, key_rotation.count_lost)
    typer.echo(
        f"{count} cookie and local-storage values cannot be decrypted with the available keys.",
        err=True,
    )
    if not yes:
        typer.confirm("Remove them and continue with the available key or a new one?", abort=True)
    removed = _with_database(settings, key_rotation.forget_lost)
    typer.echo(f"Removed {removed} values; all other values can be decrypted.")


def _with_database(
    settings: Settings, work: Callable[[Settings, Engine], Coroutine[Any, Any, T]]
) -> T:
    settings.check()
    if settings.has_secret_key:  # an unreadable key is reported even if the database is down
        open_vault(settings.secret_key, settings.key_file)
    return with_database(settings, partial(work, settings))
