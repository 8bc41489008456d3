"""``gleanery serve`` and ``gleanery migrate``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from gleanery.cli.service.database import with_database
from gleanery.cli.service.options import all_settings_options, option, settings_options
from gleanery.cli.terminal import progress_bars
from gleanery.errors import SettingsError
from gleanery.observability.progress import StartProgress
from gleanery.server.start import serve
from gleanery.settings import Settings
from gleanery.storage import migrations
from gleanery.storage.database import Engine, SchemaState
from gleanery.storage.engines import open_engine

app = typer.Typer()

_DISTRIBUTED = "The organizations are distributed over the workers."
_WERE_DISTRIBUTED = "The organizations were distributed already. Nothing was copied."


@app.command("serve")
@all_settings_options()
def serve_command(settings: Settings) -> None:
    """Run the service on SQLite under --data, or on PostgreSQL with --database.

    Plain HTTP is served on loopback addresses only, unless --behind-proxy is given.
    With --database, the variable GLEANERY_SECRET_KEY must hold the key for cookie and
    local-storage values.
    """
    serve(settings.check())


@app.command("migrate")
@settings_options("data", "database")
def migrate_command(
    settings: Settings,
    check: Annotated[
        bool, option("check", "Only print the migrations to apply; exit with 1 if there are any.")
    ] = False,
    distribute: Annotated[
        bool,
        option(
            "distribute",
            "Also distribute the organizations over the workers of Citus. Stop the service first.",
        ),
    ] = False,
) -> None:
    """Update the database schema. The command serve does this at its start.

    A running service of an older version goes on if the migrations are compatible with it.
    Otherwise it answers 503 from then on, until it is replaced.
    """
    if distribute and (check or settings.database is None):
        raise SettingsError("Give --distribute with --database, and without --check")
    if check:
        _check_schema(settings)
        return
    found = with_database(settings, _describe, create=True, migrate=True, accept_compatible=True)
    typer.echo(found)
    if distribute:
        with progress_bars() as progress:
            is_new = with_database(settings, partial(_distribute, progress))
        typer.echo(_DISTRIBUTED if is_new else _WERE_DISTRIBUTED)


async def _describe(database: Engine) -> str:
    warning = migrations.compatibility_warning(database.engine, await database.schema_state())
    return warning or "The schema is up to date."


async def _distribute(progress: StartProgress, database: Engine) -> bool:
    return await database.distribute(progress)


def _check_schema(settings: Settings) -> None:
    """Print the schema of the database and of the program. Exit with 1 if they differ."""
    engine, schema = asyncio.run(_read_schema(settings))
    migrations.reject_newer(engine, schema, accept_compatible=True)
    needed = migrations.newest(engine)
    typer.echo(f"The database has schema {schema.number}. This program needs schema {needed}.")
    if migrations.is_newer_and_compatible(engine, schema):
        typer.echo("A service of this program can go on until it is upgraded.")
    pending = migrations.pending(engine, schema.number)
    for migration in pending:
        typer.echo(f"Pending: {migration.number:04} {migration.name}")
    if pending:
        typer.echo(_effect_on_services(pending, schema.number))
        raise typer.Exit(1)


def _effect_on_services(pending: Sequence[migrations.Migration], applied: int) -> str:
    """Say if services of the present schema can go on after the migrations."""
    compatible_from = max(migration.compatible_from or migration.number for migration in pending)
    if compatible_from <= applied:
        return "Compatible: running services go on, and can be replaced one after the other."
    return "Not compatible: running services answer 503 from then on, until they are replaced."


async def _read_schema(settings: Settings) -> tuple[str, SchemaState]:
    async with open_engine(settings, create=False) as database:
        return database.engine, await database.schema_state()
