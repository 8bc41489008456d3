"""The errors of PostgreSQL and its driver: which are temporary, and what an operator can do.

A message for the operator never shows the password. So the URL of a database is checked here before
the driver reads it, because a message of the driver may quote it.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, urlsplit

import asyncpg

from gleanery.common.errors import SettingsError

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
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_MAX_PORT = 65535
_EXPIRED = 10  # the codes of OpenSSL
_WRONG_NAMES = (62, 64)
_REFUSED = f"[Errno {errno.ECONNREFUSED}]"  # a name with several addresses has several errors
_PASSWORD = "percent-encode special characters in the password"
DATABASE = "--database"
_INVALID_URL = f"--database is not a valid URL: {_PASSWORD}"
_ROOT_CERTIFICATE = (
    "add sslrootcert=/path/to/root.crt to --database, with the certificate of its authority"
)
LOST_STATEMENT = (
    "the pooler does not keep prepared statements. Use PgBouncer 1.21 or newer, and set its "
    "max_prepared_statements to 200"
)
_UNKNOWN_PARAMETER = "unsupported startup parameter"  # PgBouncer says this
_PARAMETER_ADVICE = (
    ". Remove it from --database, or add it to ignore_startup_parameters of PgBouncer"
)
_STANDBY = "the server that responds is a standby, or read only"
_NO_SERVER = (
    "the connection is refused. Start the server, or correct the host and port in --database"
)


# --- temporary errors ----------------------------------------------------------------------------


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


# --- the URL of a database -----------------------------------------------------------------------


def check_url(url: str, option: str = DATABASE, targets: Sequence[str] = ()) -> None:
    """Raise SettingsError if the driver cannot read the URL. Its own message may quote it.

    ``targets`` are the values of target_session_attrs that are accepted; none if all are.
    """
    try:
        _check_url(url, targets)
    except SettingsError as error:
        raise SettingsError(str(error).replace(DATABASE, option)) from None


def _check_url(url: str, targets: Sequence[str]) -> None:
    parts, query = split_url(url)
    mode = query.get("sslmode", _SSL_MODES[0])
    if mode not in _SSL_MODES:
        raise SettingsError(f"sslmode in --database must be one of {', '.join(_SSL_MODES)}")
    ports = [_port(host) for host in parts.netloc.rpartition("@")[2].split(",")]
    if not all(map(_is_port, [*ports, *query.get("port", "").split(",")])):
        raise SettingsError(
            f"The port in --database must be a number from 1 to {_MAX_PORT}; {_PASSWORD}"
        )
    if targets and query.get("target_session_attrs", targets[0]) not in targets:
        raise SettingsError(
            f"target_session_attrs in --database must be {' or '.join(targets)}: the service writes"
        )
    root = query.get("sslrootcert")
    if root is not None and not Path(root).is_file():
        raise SettingsError("The file of sslrootcert in --database does not exist: correct it")


def split_url(url: str) -> tuple[SplitResult, dict[str, str]]:
    """Return the parts of a URL, and the names in its query."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
    except ValueError:
        raise SettingsError(_INVALID_URL) from None
    return parts, {name: values[-1] for name, values in query.items()}


def _port(host: str) -> str:
    """Return the port of a host, which may be an IPv6 address in brackets."""
    return host.rpartition("]")[2].partition(":")[2]


def _is_port(text: str) -> bool:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_PORT))
    return not text or (is_number and 1 <= int(text) <= _MAX_PORT)


def host_of(url: str) -> str:
    """Return the hosts of the URL.

    It is empty if an @ is outside its place: then the text may be a part of the password.
    """
    parts, query = split_url(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    if url.count("@") > bool(credentials):
        return ""
    return hosts or query.get("host", "")


# --- messages ------------------------------------------------------------------------------------


def explain(error: Exception, url: str, option: str = DATABASE) -> str:
    """Return a sentence for the operator, with advice. ``option`` is the one with the URL."""
    return _explain(error, url).replace(DATABASE, option)


def _explain(error: Exception, url: str) -> str:
    place = _place(url)
    match error:
        case ssl.SSLCertVerificationError():
            return _explain_certificate(error, place)
        case ValueError() if "root certificate" in str(error):
            return f"sslmode cannot verify the PostgreSQL server{place}: {_ROOT_CERTIFICATE}"
        case ValueError():  # its message would contain parts of the URL, perhaps the password
            return _INVALID_URL
        case error if isinstance(error, LOST_STATEMENT_ERRORS):
            return f"The PostgreSQL database{place} cannot be used: {LOST_STATEMENT}"
        case asyncpg.InvalidAuthorizationSpecificationError():
            return (
                f"The PostgreSQL server{place} rejects the login: {error}. Check the user and "
                "password in --database, and pg_hba.conf of the server"
            )
        case asyncpg.InvalidCatalogNameError():
            return (
                f"The PostgreSQL server{place} does not have the database: {error}. Create it "
                "with createdb, or correct its name in --database"
            )
        case asyncpg.PostgresError():  # the server, or a pooler, has answered
            advice = _PARAMETER_ADVICE if _UNKNOWN_PARAMETER in str(error) else ""
            return f"The server{place} refuses the connection: {short_reason(error)}{advice}"
        case asyncpg.TargetServerAttributeNotMatched():
            return (
                f"No primary responds{place}: {_STANDBY}. Promote it, or correct the host in "
                "--database"
            )
    return f"Cannot reach the PostgreSQL database{place}: {_explain_network(error)}"


def _place(url: str) -> str:
    """Return the hosts of the URL for a sentence."""
    hosts = host_of(url)
    return f" at {hosts}" if hosts else ""


def _explain_certificate(error: ssl.SSLCertVerificationError, place: str) -> str:
    certificate = f"The certificate of the PostgreSQL server{place}"
    if error.verify_code in _WRONG_NAMES:
        return (
            f"{certificate} is for another host name: use its name in --database, or give the "
            "server a certificate with this name"
        )
    if error.verify_code == _EXPIRED:
        return f"{certificate} has expired: renew it on the server"
    return f"{certificate} is not trusted ({error.verify_message}): {_ROOT_CERTIFICATE}"


def _explain_network(error: Exception) -> str:
    match error:
        case socket.gaierror():
            return "the host name is unknown. Correct it in --database, or check the DNS"
        case TimeoutError():
            return "it does not respond. Check the host and port in --database, and the firewall"
        case ConnectionRefusedError() | FileNotFoundError():
            return _NO_SERVER
        case OSError() if _REFUSED in str(error):
            return _NO_SERVER
    return short_reason(error)


def short_reason(error: BaseException) -> str:
    """Return the first line of an error, or its name if it has no text."""
    if isinstance(error, LOST_STATEMENT_ERRORS):
        return LOST_STATEMENT
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return _STANDBY
    if isinstance(error, TimeoutError) and not str(error):
        return "the server does not respond"
    return (str(error).splitlines() or [type(error).__name__])[0]
