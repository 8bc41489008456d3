"""Commands that start the service: ``gleanery serve``, ``migrate`` and ``demo``."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import click

from gleanery.cli.declaration import CommandGroup
from gleanery.cli.service.command import (
    all_settings_options,
    option,
    settings_options,
    with_any_schema,
    with_database,
)
from gleanery.cli.terminal import progress_bars
from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.processes.start import bound, prepare, serve, serve_on
from gleanery.service.storage import migrations
from gleanery.service.storage.database import Engine, SchemaState

app = CommandGroup()
_DISTRIBUTED = "The organizations are distributed over the workers."
_WERE_DISTRIBUTED = "The organizations were distributed already. Nothing was copied."
_FREE_PORT = 'use a free port: gleanery demo --port 0, or make demo ARGS="--port 0"'


@app.declare("serve")
@all_settings_options()
def serve_command(settings: Settings) -> None:
    """Run the service on SQLite under --data, or on PostgreSQL with --database.

    Plain HTTP is served on loopback addresses only, unless --behind-proxy is given.
    With --database, the variable GLEANERY_SECRET_KEY must hold the key for cookie and
    local-storage values.
    """
    serve(settings.check())


@app.declare("migrate")
@settings_options("data", "blobs", "database", "create")
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
    for line in with_any_schema(settings, _migrate, create=True):
        click.echo(line)
    if distribute:
        with progress_bars() as progress:
            is_new = with_database(settings, partial(_distribute, progress))
        click.echo(_DISTRIBUTED if is_new else _WERE_DISTRIBUTED)


async def _migrate(database: Engine) -> Sequence[str]:
    """Update the schema. Return what was done, and the result."""
    applied = migrations.pending(database.engine, await database.migrate(accept_compatible=True))
    warning = migrations.compatibility_warning(database.engine, await database.schema_state())
    return *_lines("Applied", applied), warning or "The schema is up to date."


def _lines(what: str, listed: Sequence[migrations.Migration]) -> Sequence[str]:
    return [f"{what}: {migration.number:04} {migration.name}" for migration in listed]


async def _distribute(progress: StartProgress, database: Engine) -> bool:
    return await database.distribute(progress)


def _check_schema(settings: Settings) -> None:
    """Print the schema of the database and of the program. Exit with 1 if they differ."""
    engine, schema = with_any_schema(settings, _read_schema)
    migrations.reject_newer(engine, schema, accept_compatible=True)
    needed = migrations.newest(engine)
    found = f"has schema {schema.number}" if schema.number else "is empty"
    click.echo(f"The database {found}. This program needs schema {needed}.")
    if migrations.is_newer_and_compatible(engine, schema):
        click.echo("A service with this version of the program can go on until it is upgraded.")
    pending = migrations.pending(engine, schema.number)
    for line in _lines("Pending", pending):
        click.echo(line)
    if pending and schema.number:  # no service can use an empty database
        click.echo(_effect_on_services(pending, schema.number))
    if pending:
        raise click.exceptions.Exit(1)


def _effect_on_services(pending: Sequence[migrations.Migration], applied: int) -> str:
    """Say which services can go on after the migrations."""
    compatible_from = max(migration.compatible_from or migration.number for migration in pending)
    if compatible_from <= applied:
        return (
            f"Compatible: running services of schema {compatible_from} or newer go on, and can be "
            "replaced one after the other. Older ones answer 503 from then on."
        )
    return "Not compatible: running services answer 503 from then on, until they are replaced."


async def _read_schema(database: Engine) -> tuple[str, SchemaState]:
    return database.engine, await database.schema_state()


@app.declare("demo")
@settings_options("port")
def demo_command(
    settings: Settings,
    data: Annotated[
        Path | None, option("data", "Folder for the sample; without it the sample is not kept.")
    ] = None,
) -> None:
    """Run the service with a sample organization, and print a token and commands to try."""
    with ExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(TemporaryDirectory(prefix="gleanery-demo-")))
        _run_demo(Settings(data=data, port=settings.port, log_level="warning").check())


def _run_demo(settings: Settings) -> None:
    from gleanery.service.admin import demo  # serve does not need the sample

    listener, settings = bound(settings, _FREE_PORT)
    is_new = not settings.sqlite_file.exists()
    asyncio.run(prepare(settings))
    with progress_bars() as progress:
        login = asyncio.run(demo.create_login(settings, is_new, progress))
    click.echo(demo.introduction(settings.address, login, _program()))
    serve_on(listener, settings)


def _program() -> str:
    """Return this program as a shell finds it, which may not have it on its path."""
    if shutil.which("gleanery") is not None:
        return "gleanery"
    own = Path(sys.argv[0])
    if own.stem == "gleanery":
        return shlex.quote(str(own.absolute()))
    return f"{shlex.quote(sys.executable)} -m gleanery"
