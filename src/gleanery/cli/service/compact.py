"""``gleanery compact``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from gleanery.cli.service.database import with_database
from gleanery.cli.service.options import confirmation, settings_options
from gleanery.cli.terminal import progress_bars
from gleanery.observability.progress import StartProgress
from gleanery.settings import Settings
from gleanery.storage.database import Engine
from gleanery.storage.sqlite import space
from gleanery.storage.sqlite.connections import require_file

app = typer.Typer()

_POSTGRES = (
    "Nothing to do: PostgreSQL reuses the space of deleted rows itself (autovacuum). To give it "
    "back to the disk, run VACUUM FULL or pg_repack."
)


@app.command("compact")
@settings_options("data", "database")
def compact_command(
    settings: Settings,
    full: Annotated[
        bool, confirmation("full", "Rewrite the whole database. Stop the service first.")
    ] = False,
) -> None:
    """Give the unused space in the SQLite database back to the disk, while the service runs.

    A database that was created by an earlier version is rewritten once, as with --full. For that,
    stop the service. It needs free space of twice the size of the data.
    """
    if settings.database is not None:
        typer.echo(_POSTGRES)
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
    typer.echo(
        f"{database.absolute()} has {space.megabytes(after)}. It had {space.megabytes(before)}."
    )


async def _release(progress: StartProgress, engine: Engine) -> None:
    await engine.release_space(progress, is_complete=True)
