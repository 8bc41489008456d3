"""Database access for commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import typer

from gleanery.errors import SettingsError
from gleanery.settings import Settings
from gleanery.storage.database import Engine
from gleanery.storage.engines import open_engine

T = TypeVar("T")


def with_database(
    settings: Settings, work: Callable[[Engine], Coroutine[Any, Any, T]], create: bool = False
) -> T:
    """Run the work on the migrated database. Only ``create`` allows a new SQLite database."""
    is_new = settings.database is None and not settings.sqlite_file.exists()
    if is_new and not create:
        require_sqlite_file(settings)

    async def run() -> T:
        async with open_engine(settings) as database:
            await database.migrate()
            return await work(database)

    result = asyncio.run(run())
    if is_new:
        typer.echo(f"Created a new database in {settings.data.absolute()}", err=True)
    return result


def require_sqlite_file(settings: Settings) -> None:
    if not settings.sqlite_file.exists():
        raise SettingsError(
            f"There is no database in {settings.data.absolute()}: give the data folder of the "
            "service with --data or GLEANERY_DATA"
        )
