"""``gleanery keys``: list, change and give up the keys that values are encrypted with."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from gleanery.admin import key_rotation
from gleanery.cli.database import where, with_database
from gleanery.cli.options import DEFAULT, Data, DatabaseUrl, option
from gleanery.cli.terminal import bars, show
from gleanery.settings import Settings
from gleanery.storage.database import Engine

app = typer.Typer()
keys_app = typer.Typer(
    help="List, change and give up the keys that cookie and local-storage values are encrypted with.",
    no_args_is_help=True,
)
app.add_typer(keys_app, name="keys")

T = TypeVar("T")


@keys_app.command("list")
def list_keys(data: Data = DEFAULT.data, database: DatabaseUrl = None) -> None:
    """List the keys by their fingerprints, with how many values each has encrypted."""
    table = Table("Key", "Values", "State", box=None)
    for key in _with_keys(data, database, key_rotation.list_keys):
        states = ["missing", "at hand"][key.is_at_hand] + (", encrypts" if key.encrypts else "")
        table.add_row(key.fingerprint, str(key.values), states)
    show(table)


@keys_app.command("rotate")
def rotate_keys(data: Data = DEFAULT.data, database: DatabaseUrl = None) -> None:
    """Seal every value with a new key, while the service runs; the old one is then not needed.

    The embedded database's secret.key is changed by this. Where GLEANERY_SECRET_KEY holds the
    key, put a new one in front of it on every node first, and take the old one away afterwards.
    """
    with bars() as begin:
        done = _with_keys(data, database, partial(key_rotation.rotate, begin=begin))
    typer.echo(
        f"{done.values} values are encrypted anew; all that opens is under the key {done.key}."
    )
    if done.broken:
        typer.echo(
            f"{done.broken} values open with no key at hand and are as they were: gleanery keys "
            "list shows which keys are missing, gleanery keys forget removes the values"
        )
    if not done.is_file:
        typer.echo("Take the old key out of GLEANERY_SECRET_KEY, on one node after the other.")


@keys_app.command("forget")
def forget_keys(
    yes: Annotated[bool, option("yes", "Don't ask.")] = False,
    data: Data = DEFAULT.data,
    database: DatabaseUrl = None,
) -> None:
    """Give up keys that are lost: remove the values that no key at hand opens."""
    count = _with_keys(data, database, key_rotation.count_lost)
    typer.echo(f"{count} cookie and local-storage values open with no key at hand.", err=True)
    if not yes:
        typer.confirm("Remove them and go on with the key at hand, or a new one?", abort=True)
    forgotten = _with_keys(data, database, key_rotation.forget_lost)
    typer.echo(f"{forgotten} values are removed; everything that is left opens.")


def _with_keys(
    data: Path,
    url: str | None,
    work: Callable[[Settings, Engine], Coroutine[Any, Any, T]],
) -> T:
    settings = where(data, url).check()
    return with_database(data, url, lambda database: work(settings, database))
