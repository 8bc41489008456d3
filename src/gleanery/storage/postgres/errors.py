"""The errors of PostgreSQL and its driver, and which of them are temporary."""

from __future__ import annotations

import re

import asyncpg

SERVER_DISCONNECTING = asyncpg.InternalClientError
"""The driver raises this for a connection that the server is ending but has not closed yet."""
CONNECTION_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresError,
    SERVER_DISCONNECTING,
)
LOST_STATEMENT_ERRORS = (
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)
"""Prepared statements are not where they were: a pooler has changed the server's connection."""
# Classes of temporary errors: connection, password, missing database, transaction rollback,
# resources, operator intervention.
_TEMPORARY_CLASSES = ("08", "28", "3D", "40", "53", "57")
# Further temporary errors: read-only standby, lock timeout, I/O error.
_TEMPORARY_STATES = ("25006", "55P03", "58030")


# A primary key of a shard. After a crash, the coordinator of Citus may issue some ids again that a
# worker has stored; the next ids are new.
_SHARD_KEY = re.compile(r'_pkey_[0-9]+"')

# Citus has lost the connection to a worker in a transaction, or the coordinator has crashed while
# it waited for one. Citus gives no other error code. After its own messages, those of libpq, which
# Citus passes on while a worker prepares a commit.
_LOST_SERVER = (
    "could not commit transaction",
    "failure on connection marked as essential",
    "postmaster was shut down",
    "execution cannot recover from multiple connection failures",
    "could not establish any connections to the node",
    "server closed the connection unexpectedly",
    "could not receive data from server",
    "could not send data to server",
    "SSL connection has been closed unexpectedly",
    "SSL SYSCALL error",
    "connection not open",
    "no connection to the server",
)


_UNUSABLE_STATE = "cannot switch to state"


def was_not_sent(error: Exception) -> bool:
    """Return True if the driver has sent nothing, because the server is ending the connection.

    The server has told that to an idle connection, and its end of the connection is still to come.
    In a transaction, a later statement or the commit fails in the same way. Nothing of the
    transaction is then committed, so all of it can be repeated on another connection.
    """
    return isinstance(error, SERVER_DISCONNECTING) and str(error).startswith(_UNUSABLE_STATE)


def is_temporary(error: Exception) -> bool:
    """Return True if the same request may succeed when the client tries again."""
    # Another node has changed the schema, or the operator has to correct the pooler.
    if isinstance(error, (asyncpg.InvalidCachedStatementError, *LOST_STATEMENT_ERRORS)):
        return True
    if isinstance(error, asyncpg.UniqueViolationError):
        return bool(_SHARD_KEY.search(str(error)))  # Citus passes on only the message
    if isinstance(error, asyncpg.InternalServerError):
        return str(error).startswith(_LOST_SERVER)
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state[:2] in _TEMPORARY_CLASSES or state in _TEMPORARY_STATES
    return not isinstance(error, ValueError)  # asyncpg's error for arguments of a wrong type
