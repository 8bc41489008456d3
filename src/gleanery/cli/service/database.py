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
) -> T:
    """Run the work on a database with this program's schema.

    Only ``create`` allows a new database. Only ``migrate`` updates the schema of an existing one:
    an older service may be running on it.
    """

    async def prepare_and_work(database: Engine) -> T:
        if migrate or (create and (await database.schema_state()).number == 0):
            await database.migrate()
        else:
            await database.check_schema()
        return await work(database)

    return with_any_schema(settings, prepare_and_work, create)


def with_any_schema(
    settings: Settings, work: Callable[[Engine], Coroutine[Any, Any, T]], create: bool = False
) -> T:
    """Run the work on a database with any schema. Only ``create`` allows a new database."""
    is_new = settings.database is None and not settings.sqlite_file.exists()

    async def run() -> T:
        async with open_engine(settings, create) as database:
            return await work(database)

    result = asyncio.run(run())
    if is_new:
        typer.echo(f"Created a new database in {settings.data.absolute()}", err=True)
    return result
