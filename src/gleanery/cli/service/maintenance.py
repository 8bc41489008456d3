"""Commands on the whole database: ``gleanery backup``, ``restore``, ``compact`` and ``keys``.

Backups and compaction are for SQLite. The keys encrypt the values of cookies and local storage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import click

from gleanery.cli.declaration import Argument, CommandGroup
from gleanery.cli.service.command import confirmation, option, settings_options, with_database
from gleanery.cli.terminal import pluralize, print_table, progress_bars
from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.admin import backup, key_rotation, restore
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.foundation.security.vault import open_vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import restore as restored_database
from gleanery.service.storage.database import Engine
from gleanery.service.storage.sqlite import space
from gleanery.service.storage.sqlite.connections import lock_folder, require_file

app = CommandGroup()
keys_app = CommandGroup(
    help="List, rotate, retire and forget the keys that encrypt cookie and local-storage values.",
)
app.add_command(keys_app, "keys")

T = TypeVar("T")
STANDARD_STREAM = Path("-")
_NOTICE_SECONDS = 5.0  # nodes look for a pending restore each second
_RUNNING_NODES = (
    "Running nodes answer 503 until this command has ended. They do not need a restart."
)
_POSTGRES = (
    "Nothing to do: PostgreSQL reuses the space of deleted rows itself (autovacuum). To give it "
    "back to the disk, run VACUUM FULL or pg_repack."
)


@app.declare("backup")
@settings_options("data", "blobs", "database")
def backup_command(
    file: Annotated[Path, Argument(metavar="FILE", help="Backup to create; - is standard output.")],
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
        click.echo(
            f"It does not contain the secret key {made.key}. Keep a copy of the key elsewhere: "
            "without it, cookie and local-storage values cannot be decrypted.",
            err=to_stdout,
        )


@app.declare("restore")
@settings_options("data", "blobs", "database")
def restore_command(
    file: Annotated[Path, Argument(metavar="FILE", help="Backup to restore; - is standard input.")],
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
        click.echo(
            f"Write the secret key {restored.key} to {settings.key_file}. If it is lost, gleanery "
            "keys forget removes the values that need it."
        )


@app.declare("restored")
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
                click.echo(_RUNNING_NODES, err=True)
            return await restored_database.complete_restore(
                database, timestamps.now, progress, notice_seconds
            )

        count = with_database(settings, complete, migrate=True)
    click.echo(f"Clients will receive {pluralize(count, 'output')} again.")


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
    click.confirm("Every client will sync everything again. Continue?", abort=True, err=True)


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
    click.echo(f"{holder} contains {database} and {contents}.", err=err)
    if lost:
        click.echo(
            f"The blobs of these files were already lost or damaged: {' '.join(lost)}", err=err
        )


@app.declare("compact")
@settings_options("data", "database")
def compact_command(
    settings: Settings,
    full: Annotated[
        bool, confirmation("full", "Rewrite the whole database. Stop the service first.")
    ] = False,
) -> None:
    """Give the unused space in the SQLite database back to the disk, while the service runs.

    A database that was created by an earlier version is rewritten once, as with --full. For that,
    stop the service. That needs free disk space of twice the size of the data.
    """
    if settings.database is not None:
        click.echo(_POSTGRES)
        return
    database = settings.sqlite_file
    require_file(database)
    before = database.stat().st_size
    with progress_bars() as progress:
        if full or not space.can_shrink(database):
            space.rewrite(database, progress)
        else:
            with_database(settings, partial(_release, progress))
    after = database.stat().st_size
    click.echo(
        f"{database.absolute()} has {space.megabytes(after)}. It had {space.megabytes(before)}."
    )


async def _release(progress: StartProgress, engine: Engine) -> None:
    await engine.release_space(progress, is_complete=True)


@keys_app.declare("list")
@settings_options("data", "database")
def list_keys(settings: Settings) -> None:
    """List the keys by fingerprint, with the number of values that each has encrypted."""
    found = _with_keys(settings, key_rotation.list_keys)
    rows = [(key.fingerprint, str(key.values), _key_state(key)) for key in found]
    print_table(("Key", "Values", "State"), rows)


def _key_state(key: key_rotation.ListedKey) -> str:
    state = "available" if key.is_available else "missing"
    if key.is_active:
        return f"{state}, active"
    if key.is_available and key.retires_at is not None:
        return f"{state}, old: links need it until {_render(key.retires_at)}"
    return state


def _render(time: int) -> str:
    return timestamps.render_microseconds(time)


@keys_app.declare("rotate")
@settings_options("data", "database")
def rotate_keys(settings: Settings) -> None:
    """Encrypt every value with a new key while the service runs.

    With SQLite, this replaces the key in secret.key. If GLEANERY_SECRET_KEY holds the key, first
    put a new key in front of it on every node, and remove the old key afterwards.
    """
    with progress_bars() as progress:
        done = _with_keys(settings, partial(key_rotation.rotate, progress=progress))
    click.echo(f"Encrypted {done.values} values again; the active key is {done.key}.")
    if done.broken:
        click.echo(
            f"{done.broken} values cannot be decrypted with the available keys and are unchanged. "
            "gleanery keys list shows the missing keys; gleanery keys forget removes the values."
        )
    if done.retires_at is not None:
        click.echo(
            f"Keep the old key until {_render(done.retires_at)}: links to files that it has signed "
            "are valid until then. After that time, run gleanery keys retire."
        )
    elif not done.is_file:
        click.echo("Remove the old key from GLEANERY_SECRET_KEY, on one node after the other.")


@keys_app.declare("retire")
@settings_options("data", "database")
def retire_keys(
    settings: Settings,
    now: Annotated[
        bool,
        confirmation("now", "Do not wait for links to expire: for an old key that was stolen."),
    ] = False,
) -> None:
    """Remove old keys from secret.key, when the links to files that they signed have expired.

    If GLEANERY_SECRET_KEY holds the keys, this prints which of them can be removed.
    """
    done = _with_keys(settings, partial(key_rotation.retire, at_once=now))
    for key, retires_at in done.waiting.items():
        click.echo(f"Links to files need the key {key} until {_render(retires_at)}.", err=True)
    for key in done.retired:
        where = "is removed" if done.is_file else "can be removed from GLEANERY_SECRET_KEY"
        click.echo(f"The key {key} {where}.")
    if done.waiting:
        raise SettingsError("Run this again after that time, or give --now to break these links")
    if not done.retired:
        click.echo("There is no old key.")


@keys_app.declare("forget")
@settings_options("data", "database")
def forget_keys(
    settings: Settings, yes: Annotated[bool, confirmation("yes", "Do not ask.")] = False
) -> None:
    """Remove the values that no available key can decrypt, because their key is lost."""
    count = _with_keys(settings, key_rotation.count_lost)
    click.echo(
        f"{count} cookie and local-storage values cannot be decrypted with the available keys.",
        err=True,
    )
    if not yes:
        click.confirm("Remove them and continue with the available key or a new one?", abort=True)
    removed = _with_keys(settings, key_rotation.forget_lost)
    click.echo(f"Removed {removed} values; all other values can be decrypted.")


def _with_keys(settings: Settings, work: Callable[[Settings, Engine], Coroutine[Any, Any, T]]) -> T:
    settings.check()
    if settings.has_secret_key:  # an unreadable key is reported even if the database is down
        open_vault(settings.secret_key, settings.key_file)
    return with_database(settings, partial(work, settings))
