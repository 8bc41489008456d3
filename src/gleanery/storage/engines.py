"""Chooses the engine that the settings name, and opens it for a piece of work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gleanery.settings import Settings
from gleanery.storage.database import Engine
from gleanery.storage.sqlite.database import SqliteDatabase


def database_of(settings: Settings) -> Engine:
    if settings.database is None:
        return SqliteDatabase(settings.sqlite_file)
    # Only where it is asked for: its driver takes a tenth of the whole start to load.
    from gleanery.storage.postgres.database import PostgresDatabase

    return PostgresDatabase(settings.database, settings.pool_size)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Engine]:
    """The database for as long as the work with it takes."""
    database = database_of(settings)
    await database.open()
    try:
        yield database
    finally:
        await database.close()
