"""``gleanery backup``, ``restore`` and ``restored``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gleanery.admin import backup
from gleanery.cli.database import must_exist, with_database
from gleanery.cli.options import DEFAULT, Blobs, Data, DatabaseUrl, option, secret_key
from gleanery.cli.terminal import bars, counted
from gleanery.errors import SettingsError
from gleanery.settings import Settings
from gleanery.storage.maintenance import restore
from gleanery.values import timestamps

app = typer.Typer()


@app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup to make.")],
    with_key: Annotated[
        bool, option("with-key", "Put the secret key in, too; then keep the backup secret.")
    ] = False,
    data: Data = DEFAULT.data,
    blobs: Blobs = None,
    database: DatabaseUrl = None,
) -> None:
    """Copy the embedded database and its files into one FILE, while the service runs."""
    if database is not None:
        raise SettingsError(
            "gleanery backup copies the embedded database. For PostgreSQL use pg_dump, or what "
            "you back it up with; docs/how-to/back-up-and-restore.md says what else to do"
        )
    settings = Settings(data=data, blobs=blobs, secret_key=secret_key()).check()
    must_exist(settings)
    with bars() as begin:
        made = backup.make(settings, file, with_key, begin)
    files = "no files: the bucket keeps them" if made.files is None else counted(made.files, "file")
    typer.echo(f"{file} holds the database and {files}.")
    if not with_key:
        typer.echo(
            f"The secret key {made.key} is not in it: without that, cookie and local-storage "
            "values can't be read again. Keep a copy of it elsewhere."
        )
    _tell_of_lost(made.lost)


@app.command("restore")
def restore_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    data: Data = DEFAULT.data,
    blobs: Blobs = None,
    database: DatabaseUrl = None,
) -> None:
    """Put a backup in place, in a folder without a database. Clients are sent everything again."""
    if database is not None:
        raise SettingsError(
            "gleanery restore is for the embedded database. For PostgreSQL use pg_restore, and "
            "then gleanery restored"
        )
    settings = Settings(data=data, blobs=blobs, secret_key=secret_key()).check()
    with bars() as begin:
        done = backup.restore(settings, file, begin)
    files = "no files" if done.files is None else counted(done.files, "file")
    typer.echo(f"{data} holds the database with {counted(done.outputs, 'output')}, and {files}.")
    if not done.has_key:
        typer.echo(
            f"Put the secret key {done.key} into {settings.key_file}; if it is lost, gleanery keys "
            "forget removes the values that only it could open."
        )
    _tell_of_lost(done.lost)


def _tell_of_lost(keys: list[str]) -> None:
    if keys:
        typer.echo(f"The bytes of these files were lost or damaged before: {' '.join(keys)}")


@app.command("restored")
def restored_command(data: Data = DEFAULT.data, database: DatabaseUrl = None) -> None:
    """Tell a database that something else has restored it; gleanery restore does so by itself.

    Run it before the service is started: then no client takes new changes for ones it has seen.
    """
    with bars() as begin:
        sent = with_database(
            data, database, lambda db: restore.begin_anew(db, timestamps.now, begin)
        )
    typer.echo(f"{counted(sent, 'output')} will be sent again.")
