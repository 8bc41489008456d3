"""Chooses the engine that the settings name."""

from __future__ import annotations

from gleanery.settings import Settings
from gleanery.store.database import Engine
from gleanery.store.postgres import PostgresDatabase
from gleanery.store.sqlite import SqliteDatabase


def database_of(settings: Settings) -> Engine:
    if settings.database is None:
        return SqliteDatabase(settings.sqlite_file)
    return PostgresDatabase(settings.database, settings.pool_size)
