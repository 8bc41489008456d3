"""The clock guard: decides if the clock is reliable enough to delete expired data.

A clock that jumps ahead makes data look old. Each round of the sweep compares the time with the
time of the last round, which the database holds, and with the time that really passed. If the clock
moved much further than that, it has jumped, or no service ran for a while. The guard cannot tell
which. So nothing is deleted until the clock has run steadily: for an hour per day of the jump, at
most for a day.
"""

from __future__ import annotations

import json
import logging
import time
from typing import NamedTuple

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage import metadata
from gleanery.service.storage.database import Engine, Transaction
from gleanery.service.storage.group_lock import Clock

_log = logging.getLogger("gleanery")

_HOUR = 3600 * timestamps.SECOND
_DAY = 24 * _HOUR
_TOLERANCE = timestamps.MAX_CLOCK_DIFFERENCE
_MAX_PAUSE = _DAY
_JUMP_PER_PAUSE = _DAY // _HOUR  # a jump of a day pauses deletion for an hour


class Reading(NamedTuple):
    """The clocks at one moment, in microseconds."""

    time: int
    """The time that all nodes share: the database server's, or this machine's on SQLite."""
    node_time: int
    monotonic: int
    """A count that never jumps, for differences within this process."""


class SweepClock:
    """Reads the clocks of the sweep."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def read(self) -> Reading:
        server_time = await self._engine.server_time()
        node_time, monotonic = self._clock(), time.monotonic_ns() // 1000
        return Reading(node_time if server_time is None else server_time, node_time, monotonic)


class _State(NamedTuple):
    """What the database remembers of the last round, of any process."""

    time: int
    pause: int
    """The time that the clock must still run steadily before anything is deleted."""


class ClockGuard:
    """Compares the clock with the last round of any process, and of this process."""

    def __init__(self, engine: Engine, clock: SweepClock) -> None:
        self._engine = engine
        self._clock = clock
        self._last_monotonic: int | None = None
        self._node_differs = False

    async def confirmed_time(self) -> int | None:
        """Return the current time, or None while nothing may be deleted."""
        reading = await self._clock.read()
        self._compare_with_server(reading)

        async def work(transaction: Transaction) -> tuple[_State, int]:
            stored = await metadata.lock_sweep_clock(transaction)
            state, jump = self._next_state(stored, reading)
            await metadata.set_sweep_clock(transaction, json.dumps(state._asdict()))
            return state, jump

        state, jump = await self._engine.write(work)
        self._last_monotonic = reading.monotonic
        if jump:
            _warn(jump, state.pause)
        return None if state.pause else reading.time

    def _next_state(self, stored: str | None, reading: Reading) -> tuple[_State, int]:
        """Return the new state, and how far the clock jumped; 0 if it ran steadily."""
        if stored is None:  # the first round on this database: nothing confirms the clock yet
            return _State(reading.time, _MAX_PAUSE), 0
        last = _State(**json.loads(stored))
        passed = self._passed(reading)
        step = reading.time - last.time
        if -_TOLERANCE <= step <= passed + _TOLERANCE:
            return _State(reading.time, max(last.pause - max(min(step, passed), 0), 0)), 0
        jump = step if step < 0 else step - passed
        pause = min(last.pause + abs(jump) // _JUMP_PER_PAUSE, _MAX_PAUSE)
        return _State(reading.time, pause), jump

    def _passed(self, reading: Reading) -> int:
        """Return the time since the last round of this process."""
        return 0 if self._last_monotonic is None else reading.monotonic - self._last_monotonic

    def _compare_with_server(self, reading: Reading) -> None:
        """Warns once if this machine's clock differs from the database server's."""
        difference = reading.node_time - reading.time
        differs = abs(difference) > _TOLERANCE
        if differs and not self._node_differs:
            _log.warning(
                "the clock of this machine differs from the database server's: dates are wrong",
                extra={"difference_seconds": difference // timestamps.SECOND},
            )
        self._node_differs = differs


def _warn(jump: int, pause: int) -> None:
    _log.warning(
        "the clock jumped, or no service ran for a while: nothing expires until the clock has run "
        "steadily",
        extra={
            "jump_seconds": jump // timestamps.SECOND,
            "pause_seconds": pause // timestamps.SECOND,
        },
    )
