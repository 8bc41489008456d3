"""Reads of large rows in a thread of their own, so that they do not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw

from gleanery.storage.database import Row
from gleanery.storage.sqlite.connections import connect_reader


class LargeReads:
    """One thread with its own connection, which it opens at the first read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large reads")

    async def read(self, sql: str, values: Sequence[Any]) -> Sequence[Row]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, sql, values)

    def _read(self, sql: str, values: Sequence[Any]) -> Sequence[Row]:
        if self._connection is None:
            self._connection = connect_reader(self._path)
        return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """Waits for the current read, then closes the connection."""
        self._thread.shutdown(cancel_futures=True)
        if self._connection is not None:
            self._connection.close()
