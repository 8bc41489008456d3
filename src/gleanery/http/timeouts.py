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


# A head belongs to the wait for its request.
_WAIT = {Awaited.HEAD: Awaited.REQUEST}


class Timeouts:
    """Measures at each check how long the server waits for the client, and the client's speed.

    The wait for a request begins when the connection was last useful: when it was made, or when its
    last response was complete. Only a complete head ends it, so no other bytes prolong it. It takes
    ``idle_seconds`` and, if a head has begun by then, ``stall_seconds`` more.
    """

    __slots__ = (
        "_head_began",
        "_limits",
        "_seconds",
        "_unread",
        "_waiting_for",
        "received",
        "written",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting_for: tuple[Awaited, int] = (Awaited.NOTHING, 0)
        self._seconds = 0.0
        self._head_began: float | None = None  # in seconds of the wait; None without a head
        self._unread = 0  # bytes that the client had not received when the measurement began
        self.received = 0
        """Bytes received since the measurement began."""
        self.written = 0
        """Bytes put into the write buffer since then."""

    def is_overdue(self, awaited: Awaited, request_number: int, unread: int) -> bool:
        """Count one more interval. Return True if the client exceeds its time or is too slow.

        ``request_number`` distinguishes the wait for one request from the wait for the next.
        """
        wait = (_WAIT.get(awaited, awaited), request_number)
        if self._waiting_for != wait:
            self._waiting_for = wait
            self._begin_measurement(unread)
            self._head_began = 0.0 if awaited is Awaited.HEAD else None
            return False
        self._seconds += self._limits.check_seconds
        if awaited is Awaited.HEAD:
            return self._is_head_overdue()
        self._head_began = None
        if self._seconds < self._allowed_seconds(awaited):
            return False
        return self._is_too_slow(awaited, unread)

    def _is_head_overdue(self) -> bool:
        if self._head_began is None:
            self._head_began = self._seconds
        return self._seconds - self._head_began >= self._limits.stall_seconds

    def waited(self, awaited: Awaited, request_number: int) -> float:
        """Return for how long the server has waited; zero until the second check of this wait."""
        wait = (_WAIT.get(awaited, awaited), request_number)
        return self._seconds if self._waiting_for == wait else 0.0

    @property
    def is_head_old(self) -> bool:
        """True if more than one check has found the same wait in a head."""
        return self._head_began is not None and self._seconds > self._head_began

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
        """Return True if the client is too slow. A body and a reader have a minimum speed."""
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
