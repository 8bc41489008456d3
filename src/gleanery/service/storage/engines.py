"""Creates and opens the database engine that the settings select."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.storage.database import Engine
from gleanery.service.storage.sqlite.connections import DAMAGED_ERRORS, RESTORE_BACKUP
from gleanery.service.storage.sqlite.database import SqliteDatabase


def create_engine(settings: Settings, with_replicas: bool = False) -> Engine:
    """Create the engine. Only the service uses replicas; other commands need the newest state."""
    if settings.database is None:
        traces = None if settings.create else partial(_traces, settings)
        return SqliteDatabase(settings.sqlite_file, traces)
    # Imported only when needed: loading the driver takes a tenth of the start time.
    from gleanery.service.storage.postgres.database import PostgresDatabase
    from gleanery.service.storage.postgres.tenants import DetectedScope, TransactionScope

    return PostgresDatabase(
        settings.database,
        settings.pool_size,
        TransactionScope if settings.pooling == "transaction" else DetectedScope,
        settings.listen_database,
        settings.replica if with_replicas else (),
        settings.max_replica_lag_seconds,
    )


def _traces(settings: Settings) -> Iterator[Path]:
    """Return the files that only the service creates: its key file, and the blobs."""
    yield settings.key_file
    if settings.blobs_folder is not None and settings.blobs_folder.is_dir():
        # The names are ids of organizations.
        yield from (entry for entry in settings.blobs_folder.iterdir() if entry.name.isdigit())


@asynccontextmanager
async def open_engine(settings: Settings, create: bool = True) -> AsyncIterator[Engine]:
    """Open the engine and close it when the context ends.

    Only ``create`` allows a new SQLite file, and only where none is lost. Raise SettingsError if
    that file is damaged.
    """
    engine = create_engine(settings)
    await engine.open(create)
    try:
        yield engine
    except DAMAGED_ERRORS:
        path = settings.sqlite_file.absolute()
        raise SettingsError(f"The database {path} is damaged: {RESTORE_BACKUP}") from None
    finally:
        await engine.close()
