"""Positions in the change order of a group, and the cursors that clients receive for them."""

from __future__ import annotations

from dataclasses import dataclass

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.group_lock import FIRST_SEQ

# A cursor of a client that catches up is smaller than every sequence number, so that the cursors of
# one client only increase. Some connectors continue from the greatest cursor that they have seen.
_MILLISECOND = 1000
_DAY = 86_400 * timestamps.SECOND
_MILLISECONDS = 2**41  # since 2020, until 2089
_START_DAYS = 716  # the start day is stored modulo this number
_CLOCK_DIFFERENCE = 3600 * timestamps.SECOND  # between nodes, at most
_CATCHING_UP = _MILLISECONDS
assert _CATCHING_UP + _START_DAYS * _MILLISECONDS <= FIRST_SEQ


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the change order; while a client catches up, also the day it started.

    A client that catches up has seen no output that was deleted before that day.
    """

    seq: int
    started: int | None = None

    @classmethod
    def from_cursor(cls, cursor: int, now: int) -> Position:
        """Decode a cursor. The day is wrong if the client paused for 715 days in its catch-up."""
        if not _CATCHING_UP <= cursor < FIRST_SEQ:
            return cls(cursor)
        day, milliseconds = divmod(cursor - _CATCHING_UP, _MILLISECONDS)
        last_day = (now + _CLOCK_DIFFERENCE - FIRST_SEQ) // _DAY
        started = FIRST_SEQ + (last_day - (last_day - day) % _START_DAYS) * _DAY
        return cls(FIRST_SEQ + milliseconds * _MILLISECOND - 1 if milliseconds else 0, started)

    @property
    def cursor(self) -> int:
        """The position as a number that a double represents exactly.

        If the client catches up, the position is at the end of a millisecond, or 0.
        """
        if self.started is None:
            return self.seq
        day = (self.started - FIRST_SEQ) // _DAY % _START_DAYS
        milliseconds = (self.seq + 1 - FIRST_SEQ) // _MILLISECOND if self.seq else 0
        return _CATCHING_UP + day * _MILLISECONDS + milliseconds

    def at(self, seq: int) -> Position:
        """Return the position of the same client directly after this change.

        A client that catches up has passed the start of its catch-up after the changes of earlier
        days. Before that, its position is the end of the millisecond.
        """
        if self.started is None or seq >= self.started:
            return Position(seq)
        return Position(seq - seq % _MILLISECOND + _MILLISECOND - 1, self.started)

    def before(self, seq: int) -> Position:
        """Return the position from which the same client receives what follows this change.

        A client that catches up receives the other changes of the millisecond again.
        """
        after = self.at(seq)
        if after.started is None:
            return after
        return Position(max(after.seq - _MILLISECOND, 0), after.started)
