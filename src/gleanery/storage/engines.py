"""Creates and opens the database engine that the settings select."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gleanery.settings import Settings
from gleanery.storage.database import Engine
from gleanery.storage.sqlite.database import SqliteDatabase


def create_engine(settings: Settings) -> Engine:
    if settings.database is None:
        return SqliteDatabase(settings.sqlite_file)
    # Imported only when needed: loading the driver takes a tenth of the start time.
    from gleanery.storage.postgres.database import PostgresDatabase

    return PostgresDatabase(settings.database, settings.pool_size)


@asynccontextmanager
async def open_engine(settings: Settings, create: bool = True) -> AsyncIterator[Engine]:
    """Opens the engine and closes it when the context ends.

    Only ``create`` allows a new SQLite file.
    """
    engine = create_engine(settings)
    await engine.open(create)
    try:
        yield engine
    finally:
        await engine.close()
