"""What can be wrong with PostgreSQL, and which of that passes by itself."""

from __future__ import annotations

import asyncpg

# The driver's word for a connection whose server has taken its leave, but is not closed yet.
LEAVING = asyncpg.InternalClientError
AWAY = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresError, LEAVING)
# Of the server's own errors, those that pass: connection, rollback, resources, intervention, a
# read-only standby, a lock not had in time, a disk that fails, a schema that another node has just
# changed.
_PASSING_CLASSES = ("08", "40", "53", "57")
_PASSING = ("25006", "55P03", "58030")


def passes(error: Exception) -> bool:
    """Whether it may be gone when the client tries again."""
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return True
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state[:2] in _PASSING_CLASSES or state in _PASSING
    return not isinstance(error, ValueError)  # asyncpg's word for arguments of the wrong type
