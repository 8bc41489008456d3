"""Database access for commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import typer

from gleanery.settings import Settings
from gleanery.storage.database import Engine
from gleanery.storage.engines import open_engine

T = TypeVar("T")


def with_database(
    settings: Settings,
    work: Callable[[Engine], Coroutine[Any, Any, T]],
    create: bool = False,
    migrate: bool = False,
    accept_compatible: bool = False,
) -> T:
    """Run the work on a database with this program's schema.

    Only ``create`` allows a new database. Only ``migrate`` updates the schema of an existing one:
    an older service may be running on it. ``accept_compatible`` accepts a newer schema that this
    program can serve.
    """
    is_new = settings.database is None and not settings.sqlite_file.exists()

    async def run() -> T:
        async with open_engine(settings, create) as database:
            if migrate or (create and (await database.schema_state()).number == 0):
                await database.migrate(accept_compatible)
            else:
                await database.check_schema(accept_compatible)
            return await work(database)

    result = asyncio.run(run())
    if is_new:
        typer.echo(f"Created a new database in {settings.data.absolute()}", err=True)
    return result
