"""``gleanery serve`` and ``gleanery migrate``."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from gleanery.cli.service.database import with_database
from gleanery.cli.service.options import all_settings_options, option, settings_options
from gleanery.errors import SettingsError
from gleanery.server.start import serve
from gleanery.settings import Settings
from gleanery.storage import migrations
from gleanery.storage.database import Engine
from gleanery.storage.engines import open_engine

app = typer.Typer()


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

    A running service of another version answers 503 from then on, until it is replaced.
    """
    if distribute and (check or settings.database is None):
        raise SettingsError("Give --distribute with --database, and without --check")
    if check:
        _check_schema(settings)
        return
    with_database(settings, Engine.schema_number, create=True, migrate=True)
    typer.echo("The schema is up to date.")
    if distribute:
        with_database(settings, _distribute)
        typer.echo("The organizations are distributed over the workers.")


async def _distribute(database: Engine) -> None:
    await database.distribute()


def _check_schema(settings: Settings) -> None:
    """Print the schema of the database and of the program. Exit with 1 if they differ."""
    engine, applied = asyncio.run(_read_schema_number(settings))
    migrations.reject_newer(engine, applied)
    needed = migrations.newest(engine)
    typer.echo(f"The database has schema {applied}. This program needs schema {needed}.")
    pending = migrations.pending(engine, applied)
    for migration in pending:
        typer.echo(f"Pending: {migration.number:04} {migration.name}")
    if pending:
        raise typer.Exit(1)


async def _read_schema_number(settings: Settings) -> tuple[str, int]:
    async with open_engine(settings, create=False) as database:
        return database.engine, await database.schema_number()
