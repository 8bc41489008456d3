"""Timeouts of one connection: the event that the server waits for, its duration and its speed."""

from __future__ import annotations

from enum import Enum, auto

from gleanery.http.limits import Limits


class Awaited(Enum):
    """Event that the server waits for on a connection."""

    NOTHING = auto()
    """The application handles a request."""
    REQUEST = auto()
    """The client sends a request."""
    HEAD = auto()
    """The client completes the head that it began."""
    BODY = auto()
    """The client sends more of a body that the application reads."""
    READER = auto()
    """The client reads what was sent."""
    CLOSE = auto()
    """The client reads the last response and closes the connection."""


class Timeouts:
    """Measures at each check how long the server waits for the client, and the client's speed."""

    __slots__ = ("_limits", "_seconds", "_unread", "_waiting_for", "received", "written")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting_for: tuple[Awaited, int] = (Awaited.NOTHING, 0)
        self._seconds = 0.0
        self._unread = 0  # bytes that the client had not received when the measurement began
        self.received = 0
        """Bytes received since the measurement began."""
        self.written = 0
        """Bytes put into the write buffer since then."""

    def is_overdue(self, awaited: Awaited, request_number: int, unread: int) -> bool:
        """Counts one more interval. Returns True if the client exceeds its time or is too slow.

        ``request_number`` distinguishes the wait for one request from the wait for the next.
        """
        if self._waiting_for != (awaited, request_number):
            self._waiting_for = (awaited, request_number)
            self._begin_measurement(unread)
            return False
        self._seconds += self._limits.check_seconds
        if self._seconds < self._allowed_seconds(awaited):
            return False
        return self._is_too_slow(awaited, unread)

    def is_idle(self, request_number: int) -> bool:
        """True if the client has sent nothing since the last check, and no response is due."""
        return self._seconds > 0 and self._waiting_for == (Awaited.REQUEST, request_number)

    def _allowed_seconds(self, awaited: Awaited) -> float:
        match awaited:
            case Awaited.NOTHING:
                return float("inf")
            case Awaited.REQUEST:
                return self._limits.idle_seconds
            case Awaited.CLOSE:
                return self._limits.linger_seconds
        return self._limits.stall_seconds

    def _is_too_slow(self, awaited: Awaited, unread: int) -> bool:
        """Returns True if the client is too slow. A body and a reader have a minimum speed."""
        if awaited is Awaited.BODY:
            moved = self.received
        elif awaited is Awaited.READER:
            moved = self._unread + self.written - unread
        else:
            return True
        too_slow = moved < self._limits.min_bytes_per_second * self._seconds
        self._begin_measurement(unread)
        return too_slow

    def _begin_measurement(self, unread: int) -> None:
        self._seconds, self.received, self.written = 0.0, 0, 0
        self._unread = unread
