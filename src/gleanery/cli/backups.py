"""``gleanery backup``, ``restore`` and ``restored``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gleanery.admin import backup, restore
from gleanery.admin.backup import Backup
from gleanery.admin.restore import Restored
from gleanery.cli.database import require_sqlite_file, with_database
from gleanery.cli.options import confirmation, option, settings_options
from gleanery.cli.terminal import pluralize, progress_bars
from gleanery.errors import SettingsError
from gleanery.settings import Settings
from gleanery.storage.maintenance import restore as restored_database
from gleanery.storage.sqlite.connections import lock_folder
from gleanery.values import timestamps

app = typer.Typer()


@app.command("backup")
@settings_options("data", "blobs", "database")
def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Backup to create.")],
    settings: Settings,
    with_key: Annotated[
        bool, option("with-key", "Include the secret key; then keep the backup secret.")
    ] = False,
) -> None:
    """Copy the SQLite database and its files into FILE while the service runs."""
    _check_sqlite(settings, "use pg_dump; see docs/operations/back-up-and-restore.md")
    require_sqlite_file(settings)
    with progress_bars() as progress:
        result = backup.create(settings, file, with_key, progress)
    _print_contents(str(file), "the database", result)
    if not with_key:
        typer.echo(
            f"It does not contain the secret key {result.key}. Keep a copy of the key elsewhere: "
            "without it, cookie and local-storage values cannot be decrypted."
        )


@app.command("restore")
@settings_options("data", "blobs", "database")
def restore_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Backup to restore.")],
    settings: Settings,
) -> None:
    """Restore a backup into a folder without a database. Clients then sync everything again."""
    _check_sqlite(settings, "use pg_restore, and then gleanery restored")
    with progress_bars() as progress:
        restored = restore.restore(settings, file, progress)
    database = f"the database with {pluralize(restored.outputs, 'output')}"
    _print_contents(str(settings.data), database, restored)
    if not restored.has_key:
        typer.echo(
            f"Write the secret key {restored.key} to {settings.key_file}. If it is lost, gleanery "
            "keys forget removes the values that need it."
        )


@app.command("restored")
@settings_options("data", "database")
def restored_command(
    settings: Settings, yes: Annotated[bool, confirmation("yes", "Do not ask.")] = False
) -> None:
    """Prepare a database that another tool has restored; gleanery restore does this itself.

    Run it before the service starts. It makes every client sync again.
    """
    if settings.database is None:
        _reject_running_service(settings)
    if not yes:
        _confirm_sync()
    with progress_bars() as progress:
        count = with_database(
            settings,
            lambda database: restored_database.complete_restore(database, timestamps.now, progress),
        )
    typer.echo(f"Clients will receive {pluralize(count, 'output')} again.")


def _reject_running_service(settings: Settings) -> None:
    """Raise SettingsError if a service or command uses the database.

    One that starts later finds the mark of a pending restore.
    """
    require_sqlite_file(settings)
    os.close(lock_folder(settings.data, exclusive=True))


def _confirm_sync() -> None:
    if not sys.stdin.isatty():
        raise SettingsError(
            "There is no terminal to ask for confirmation: give --yes to make every client sync "
            "again"
        )
    typer.confirm("Every client will sync everything again. Continue?", abort=True, err=True)


def _check_sqlite(settings: Settings, advice: str) -> None:
    if settings.database is not None:
        raise SettingsError(f"This command is for SQLite only. For PostgreSQL, {advice}")
    settings.check()


def _print_contents(holder: str, database: str, contents: Backup | Restored) -> None:
    files = "no files (they are in a bucket)"
    if contents.files is not None:
        files = pluralize(contents.files, "file")
    typer.echo(f"{holder} contains {database} and {files}.")
    if contents.lost:
        lost = " ".join(contents.lost)
        typer.echo(f"The blobs of these files were already lost or damaged: {lost}")
