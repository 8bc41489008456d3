"""SQL that a test runs in the database of a service."""

from __future__ import annotations

import asyncio
from typing import Any

from gleanery.settings import Settings
from gleanery.storage.database import Transaction
from gleanery.storage.engines import open_engine


def execute_sql(settings: Settings, sql: str, *values: Any) -> None:
    """Runs one statement over the rows of all organizations."""

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(sql, *values)

    async def run() -> None:
        async with open_engine(settings) as database:
            await database.for_all_tenants().write(work)

    asyncio.run(run())
