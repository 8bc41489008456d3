"""``gleanery keys``: list, rotate, retire and forget the keys that encrypt session values."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from gleanery.admin import key_rotation
from gleanery.cli.service.database import with_database
from gleanery.cli.service.options import confirmation, settings_options
from gleanery.cli.terminal import print_table, progress_bars
from gleanery.errors import SettingsError
from gleanery.security.vault import open_vault
from gleanery.settings import Settings
from gleanery.storage.database import Engine
from gleanery.values import timestamps

app = typer.Typer()
keys_app = typer.Typer(
    help="List, rotate, retire and forget the keys that encrypt cookie and local-storage values.",
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
    state = "available" if key.is_available else "missing"
    if key.is_active:
        return f"{state}, active"
    if key.is_available and key.retires_at is not None:
        return f"{state}, old: links need it until {_date(key.retires_at)}"
    return state


def _date(time: int) -> str:
    return timestamps.render_microseconds(time)


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
    if done.retires_at is not None:
        typer.echo(
            f"Keep the old key until {_date(done.retires_at)}: links to files that it has signed "
            "are valid until then. After that time, run gleanery keys retire."
        )
    elif not done.is_file:
        typer.echo("Remove the old key from GLEANERY_SECRET_KEY, on one node after the other.")


@keys_app.command("retire")
@settings_options("data", "database")
def retire_keys(
    settings: Settings,
    now: Annotated[
        bool, confirmation("now", "Do not wait for links to expire, because the old key is stolen.")
    ] = False,
) -> None:
    """Remove old keys from secret.key, when the links to files that they signed have expired.

    If GLEANERY_SECRET_KEY holds the keys, this prints which of them can be removed.
    """
    done = _with_database(settings, partial(key_rotation.retire, at_once=now))
    for key, retires_at in done.waiting.items():
        typer.echo(f"Links to files need the key {key} until {_date(retires_at)}.", err=True)
    for key in done.retired:
        where = "is removed" if done.is_file else "can be removed from GLEANERY_SECRET_KEY"
        typer.echo(f"The key {key} {where}.")
    if done.waiting:
        raise SettingsError("Run this again after that time, or give --now to break these links")
    if not done.retired:
        typer.echo("There is no old key.")


@keys_app.command("forget")
@settings_options("data", "database")
def forget_keys(
    settings: Settings, yes: Annotated[bool, confirmation("yes", "Do not ask.")] = False
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
