"""Readiness of the service: the database can be reached, and can be served.

A worker starts without its database, and connects when it can. A worker that finds a schema that it
cannot serve, an unfinished restore, or that its SQLite file is not in its place any more, admits no
request that needs the database. See
``docs/decisions/0231-a-migration-says-which-programs-can-go-on.md``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import GleaneryError, Overloaded, SchemaLocked, Unavailable
from gleanery.service.storage import metadata, migrations
from gleanery.service.storage.database import Engine

_log = logging.getLogger("gleanery")

_STARTING = "The service is starting; try again"
_SILENT = "The database does not respond; try again"
_FAILED = "The service cannot start: its log says why"
_MAX_AGE_SECONDS = 1.0  # load balancers ask every few seconds
_CHECK_SECONDS = 1.0
_MAX_CHECK_SECONDS = 3.0  # a load balancer does not wait longer
_MAX_SILENT_SECONDS = 10.0  # of a check that runs each second
_MAX_LOCKED_SECONDS = 3600.0  # longer than a migration; a forgotten lock stops all writes
_START_SECONDS = 5.0  # the service then listens, although it is not connected
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 2.0


def _unavailable(problem: str | None) -> Unavailable | None:
    return None if problem is None else Unavailable(problem)


class Readiness:
    """Connects to the database, then checks its schema once per second.

    Anybody may ask for the readiness, and is always admitted. So the number of questions must not
    decide how many database connections they use: no two checks run at the same time.
    """

    def __init__(self, database: Engine) -> None:
        self._database = database
        self.problem: Unavailable | None = Unavailable(_STARTING)
        """The reason why no request may use the database; None while requests may."""
        self.warning: str | None = None
        """A sentence about a newer schema that this program can serve."""
        self._reason = ""
        self._is_connected = False
        self._schema_read_at = 0.0
        self._watched_at = 0.0
        self._has_tried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._check: asyncio.Task[GleaneryError | None] | None = None
        self._check_expires = 0.0

    @property
    def is_ready(self) -> bool:
        """True unless the last check found a problem, or no answer of the database."""
        is_recent = time.monotonic() - self._watched_at < _MAX_SILENT_SECONDS
        return is_recent and not self._reason and self.problem is None

    async def start(self, connect: Callable[[], Awaitable[None]]) -> None:
        """Connect. If that fails, a task tries again until it succeeds."""
        self._task = asyncio.create_task(self._run(connect))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_tried.wait(), _START_SECONDS)

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._check) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def require(self) -> None:
        """Raise Unavailable if the service is not ready."""
        problem = self.problem or await self._checked_problem()
        if problem is not None:  # each client gets its own exception, with its own traceback
            reason = problem.reason if isinstance(problem, Unavailable) else None
            raise Unavailable(problem.details[0].msg, reason) from problem.__cause__

    async def find_mismatch(self) -> Unavailable | None:
        """Compare the schema now, and return the error if this program cannot serve it."""
        if self._is_connected:
            with suppress(Exception):  # the schema is unknown: what was known of it holds
                await self._compare_schema()
        return self.problem

    # --- connecting -------------------------------------------------------------------------------

    async def _run(self, connect: Callable[[], Awaitable[None]]) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not await self._try_to_connect(connect):
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            await self._watch()

    async def _try_to_connect(self, connect: Callable[[], Awaitable[None]]) -> bool:
        try:
            await self._connect(connect)
        except (GleaneryError, SettingsError) as error:
            self._report(Unavailable(str(error)), str(error.__cause__ or error))
        except Exception as error:
            self._report(Unavailable(_FAILED), repr(error), error)
        finally:
            self._has_tried.set()
        return self._is_connected

    async def _connect(self, connect: Callable[[], Awaitable[None]]) -> None:
        await connect()
        self._is_connected = True
        self._schema_read_at = self._watched_at = time.monotonic()
        self._report(None)

    async def _watch(self) -> None:
        """Check once. Requests are still tried while the database is away: it may be back."""
        try:
            await self._compare_schema()
        except Unavailable as error:
            if not self._reason:  # further reasons belong to the same outage
                self._report(self.problem, error.reason or str(error))
        except Exception:
            _log.debug("the check of the schema failed", exc_info=True)
        self._watched_at = time.monotonic()

    # --- the schema -------------------------------------------------------------------------------

    async def _checked_problem(self) -> GleaneryError | None:
        """Check, unless a check runs or the last one is recent."""
        check = self._check
        if check is None or (check.done() and time.monotonic() >= self._check_expires):
            check = self._check = asyncio.create_task(self._find_problem())
        try:
            # A client that disconnects does not cancel the check for the others.
            return await asyncio.wait_for(asyncio.shield(check), _MAX_CHECK_SECONDS)
        except TimeoutError:
            return Unavailable(_SILENT)

    async def _find_problem(self) -> GleaneryError | None:
        try:
            await self._compare_schema()
        except (Unavailable, Overloaded) as error:
            return error
        finally:
            self._check_expires = time.monotonic() + _MAX_AGE_SECONDS
        return self.problem

    async def _compare_schema(self) -> None:
        engine = self._database.engine
        try:
            schema = await self._database.schema_state(waits=False)
        except SchemaLocked:
            self._keep_schema()
            return
        self._schema_read_at = time.monotonic()
        problem = (
            _unavailable(migrations.mismatch(engine, schema))
            or await self._database.serving_problem()
            or _unavailable(await metadata.pending_restore(self._database))
        )
        self._warn(migrations.compatibility_warning(engine, schema))
        self._report(problem, "" if problem is None else problem.reason or str(problem))

    def _keep_schema(self) -> None:
        """Lets what was known of the schema hold, for a limited time.

        The schema is the same until the migration commits. Then it can be read again, and each
        write checks it for itself.
        """
        if time.monotonic() - self._schema_read_at > _MAX_LOCKED_SECONDS:
            raise SchemaLocked

    # --- reports ----------------------------------------------------------------------------------

    def _warn(self, warning: str | None) -> None:
        """Set the warning, and log it once."""
        if warning is not None and warning != self.warning:
            _log.warning("the schema is newer than this program", extra={"reason": warning})
        self.warning = warning

    def _report(
        self, problem: Unavailable | None, reason: str = "", error: Exception | None = None
    ) -> None:
        """Set the problem. Log a reason once, and the end of the problem once."""
        self.problem = problem
        if reason and reason != self._reason:
            _log.error("the service is not ready", extra={"reason": reason}, exc_info=error)
        if self._reason and not reason:
            _log.info("the service is ready")
        self._reason = reason
