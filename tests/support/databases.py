"""SQL that a test runs in the database of a service."""

from __future__ import annotations

import asyncio
from typing import Any

import apsw
import asyncpg

from gleanery.settings import Settings
from gleanery.storage import migrations
from gleanery.storage.database import Transaction
from gleanery.storage.engines import open_engine

_BUSY_TIMEOUT_MS = 10_000


def execute_sql(settings: Settings, sql: str, *values: Any) -> None:
    """Runs one statement over the rows of all organizations."""

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(sql, *values)

    async def run() -> None:
        async with open_engine(settings) as database:
            await database.for_all_tenants().write(work)

    asyncio.run(run())


def run_script(settings: Settings, sql: str) -> None:
    """Runs statements as the owner of the tables, whatever the schema of the database is."""
    settings.data.mkdir(parents=True, exist_ok=True)
    if settings.database is None:
        connection = apsw.Connection(str(settings.sqlite_file))
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)  # a service may write at the same time
        connection.execute(sql)
        return

    async def run() -> None:
        connection = await asyncpg.connect(settings.database)
        await connection.execute(sql)
        await connection.close()

    asyncio.run(run())


def undo_newest_migration(settings: Settings) -> None:
    """Gives the database the schema before the newest migration."""
    newest = migrations.known("sqlite")[-1]
    assert newest.name == "review_findings", "name here what undoes the newest migration"
    run_script(settings, f"DELETE FROM migrations WHERE number = {newest.number}")
    run_script(settings, "DROP INDEX reviews_by_review_id")
    for table, columns in (
        ("reviews", "as_of output_ids skipped_output_ids findings"),
        ("bulk_jobs", "as_of"),
    ):
        for column in columns.split():
            run_script(settings, f"ALTER TABLE {table} DROP COLUMN {column}")


def pretend_newer_schema(settings: Settings) -> None:
    """Gives the database a schema that this program does not know."""
    number = migrations.newest("sqlite") + 1
    run_script(settings, f"INSERT INTO migrations VALUES ({number}, 'of_tomorrow', 0)")
