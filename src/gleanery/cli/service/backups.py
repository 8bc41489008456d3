"""``gleanery backup``, ``restore`` and ``restored``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from gleanery.admin import backup, restore
from gleanery.cli.service.database import with_database
from gleanery.cli.service.options import confirmation, option, settings_options
from gleanery.cli.terminal import pluralize, progress_bars
from gleanery.errors import SettingsError
from gleanery.settings import Settings
from gleanery.storage.database import Engine
from gleanery.storage.maintenance import restore as restored_database
from gleanery.storage.sqlite.connections import lock_folder, require_file
from gleanery.values import timestamps

app = typer.Typer()

STANDARD_STREAM = Path("-")
_NOTICE_SECONDS = 5.0  # nodes look for a pending restore each second
_RUNNING_NODES = "Nodes that run answer 503 until this command has ended. They need no restart."


@app.command("backup")
@settings_options("data", "blobs", "database")
def backup_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Backup to create; - is standard output.")
    ],
    settings: Settings,
    with_key: Annotated[
        bool, option("with-key", "Include the secret key; then keep the backup secret.")
    ] = False,
) -> None:
    """Copy the SQLite database and its files into FILE while the service runs."""
    _check_sqlite(settings, "use pg_dump; see docs/operations/back-up-and-restore.md")
    require_file(settings.sqlite_file)
    to_stdout = file == STANDARD_STREAM
    if to_stdout:
        _check_stdout()
    with progress_bars() as progress:
        if to_stdout:
            made = backup.write(settings, sys.stdout.fileno(), with_key, progress)
        else:
            made = backup.create(settings, file, with_key, progress)
    _print_contents(_name(file, "The backup"), "the database", made.files, made.lost, to_stdout)
    if made.key and not with_key:
        typer.echo(
            f"It does not contain the secret key {made.key}. Keep a copy of the key elsewhere: "
            "without it, cookie and local-storage values cannot be decrypted.",
            err=to_stdout,
        )


@app.command("restore")
@settings_options("data", "blobs", "database")
def restore_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Backup to restore; - is standard input.")
    ],
    settings: Settings,
) -> None:
    """Restore a backup into a folder without a database. Clients then sync everything again."""
    _check_sqlite(settings, "use pg_restore, and then gleanery restored")
    with _open_backup(file) as content, progress_bars() as progress:
        name = _name(file, "Standard input")
        restored = restore.restore(settings, content, name, progress)
    database = f"the database with {pluralize(restored.outputs, 'output')}"
    _print_contents(str(settings.data), database, restored.files, restored.lost)
    if restored.key and not restored.has_key:
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

    It makes every client sync again. On SQLite, stop the service first. On PostgreSQL, nodes may
    run, as after a failover: they answer 503 until the command has ended.
    """
    notice_seconds = 0.0 if settings.database is None else _NOTICE_SECONDS
    if settings.database is None:
        _reject_running_service(settings)
    if not yes:
        _confirm_sync()
    with progress_bars() as progress:

        async def complete(database: Engine) -> int:
            if notice_seconds:
                typer.echo(_RUNNING_NODES, err=True)
            return await restored_database.complete_restore(
                database, timestamps.now, progress, notice_seconds
            )

        count = with_database(settings, complete, migrate=True)
    typer.echo(f"Clients will receive {pluralize(count, 'output')} again.")


def _reject_running_service(settings: Settings) -> None:
    """Raise SettingsError if a service or command uses the database.

    One that starts later finds the mark of a pending restore.
    """
    require_file(settings.sqlite_file)
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


def _check_stdout() -> None:
    if sys.stdout.isatty():
        raise SettingsError(
            "The backup would be written to the terminal: redirect it, as in gleanery backup - > "
            "FILE"
        )
    if sys.stdout.name == os.devnull:  # the start of the program has replaced a closed stream
        raise SettingsError("Standard output is closed: the backup would be lost")


def _open_backup(file: Path) -> BinaryIO:
    if file != STANDARD_STREAM:
        return file.open("rb")
    if sys.stdin.isatty():
        raise SettingsError("Standard input is a terminal: give a file, or redirect the backup")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _name(file: Path, stream: str) -> str:
    return stream if file == STANDARD_STREAM else str(file)


def _print_contents(
    holder: str, database: str, files: int | None, lost: list[str], err: bool = False
) -> None:
    contents = "no files (they are in a bucket)" if files is None else pluralize(files, "file")
    typer.echo(f"{holder} contains {database} and {contents}.", err=err)
    if lost:
        typer.echo(
            f"The blobs of these files were already lost or damaged: {' '.join(lost)}", err=err
        )
