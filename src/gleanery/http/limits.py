"""Limits of every connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server process."""

    idle_seconds: float = 75
    """Time for which a connection without a request stays open."""
    stall_seconds: float = 30
    """Time in which a head must be complete. Also the period of a speed measurement."""
    max_connections: int = 2000
    unused_seconds: float = 0.25
    """Time that a client has for its first head at least, if ``max_connections`` is reached."""
    max_head_bytes: int = 64 * 1024
    """Size of the request line and the headers; also of the trailers after a chunked body."""
    min_bytes_per_second: int = 1024
    """Minimum speed of a client that sends a body or reads a response, in bytes per second."""
    linger_seconds: float = 30
    """Time for which input is discarded, so that a client can read the last response."""
    linger_bytes: int = 64 * 1024 * 1024
    """Maximum number of bytes that are discarded for the same reason."""
    reserved_connections: int = 100
    """Connections above the limit, on which only requests that are always admitted are handled."""
    reserve_seconds: float = 5
    """Time limit of each wait on a connection above the limit."""
    check_seconds: float = 1.0
    """Interval at which the timeouts are checked."""
