"""Readiness of the service: the database can be reached and has this program's schema."""

from __future__ import annotations

import asyncio
import time

from gleanery.errors import GleaneryError, Overloaded, Unavailable
from gleanery.storage import migrations
from gleanery.storage.database import Engine

_SCHEMA = "The database schema does not match this program: run gleanery migrate"
_MAX_AGE_SECONDS = 1.0  # load balancers ask every few seconds


class Readiness:
    """Checks the database at most once per second, and never twice at the same time.

    Anybody may ask, and is always admitted. So the number of questions must not decide how many
    database connections they use.
    """

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._check: asyncio.Task[GleaneryError | None] | None = None
        self._check_expires = 0.0

    async def require(self) -> None:
        """Raises Unavailable if the service is not ready."""
        check = self._check
        if check is None or (check.done() and time.monotonic() >= self._check_expires):
            check = self._check = asyncio.create_task(self._find_problem())
        # A client that disconnects does not cancel the check for the others.
        problem = await asyncio.shield(check)
        if problem is not None:  # each client gets its own exception, with its own traceback
            raise Unavailable(problem.details[0].msg) from problem.__cause__

    async def stop(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.gather(self._check, return_exceptions=True)

    async def _find_problem(self) -> GleaneryError | None:
        try:
            applied = await self._database.schema_number()
        except (Unavailable, Overloaded) as error:
            return error
        finally:
            self._check_expires = time.monotonic() + _MAX_AGE_SECONDS
        return None if applied == migrations.newest(self._database.engine) else Unavailable(_SCHEMA)
