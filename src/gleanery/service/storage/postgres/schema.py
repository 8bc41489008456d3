"""The schema of a PostgreSQL database: its number, its checks, migrations and distribution."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import SchemaLocked
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.storage import migrations
from gleanery.service.storage.database import Row, SchemaState, Transaction
from gleanery.service.storage.postgres import row_security
from gleanery.service.storage.postgres.citus import distribution
from gleanery.service.storage.tenancy import TENANT_TABLES

_log = logging.getLogger("gleanery")

ENGINE = "postgres"
ONE_MIGRATION = "SELECT pg_advisory_xact_lock(x'676C65616E'::bigint)"  # the id is "glean"
"""Waits until no other process migrates."""
_MIGRATION_SETTINGS = f"""
SET LOCAL ROLE NONE; {row_security.SET_ALL_TENANTS};
SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on
"""
# Writes wait behind this lock, so it waits for less time than they do.
_LOCK_MIGRATIONS = """
SAVEPOINT before_lock; SET LOCAL lock_timeout = '3s';
LOCK TABLE migrations IN ACCESS EXCLUSIVE MODE; SET LOCAL lock_timeout = 0
"""
_LOCK_PAUSE_SECONDS = 3.0
_SHORT_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '200ms'"

_DEFINED_NAMES = """
SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace
UNION ALL SELECT tgname::text FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal
"""

# A cluster that initdb or pg_upgrade has created has another identifier; a promoted standby has the
# same. A dump that is loaded into the same database creates the tables again.
_SYSTEM_IDENTIFIER = "SELECT system_identifier FROM pg_control_system()"
_OIDS = """
SELECT oid, 'metadata'::regclass::oid FROM pg_database WHERE datname = current_database()
"""

Fetch = Callable[[str], Awaitable[Sequence[Row]]]


async def migrate(transaction: Transaction, is_distributed: bool, accept_compatible: bool) -> int:
    """Apply the pending migrations, and add missing policies and grants.

    Return the number of the newest migration that was already applied.
    """
    await transaction.run_script(_MIGRATION_SETTINGS)
    await transaction.run_script(ONE_MIGRATION)
    schema = await check_load(transaction.fetch)
    await _wait_for_writers(transaction, schema.number)
    if is_distributed:
        await transaction.run_script(distribution.SETTINGS)
    applied = await migrations.apply(ENGINE, transaction, accept_compatible)
    if is_distributed:
        await distribution.distribute(transaction)  # the new tables
    else:
        await row_security.enable(transaction)
    return applied


async def prepare_role(transaction: Transaction) -> None:
    """Lets the coordinator of Citus log in to the workers as the serving role."""
    await transaction.run_script(_MIGRATION_SETTINGS)
    await transaction.run_script(ONE_MIGRATION)
    await distribution.prepare_role(transaction)


async def distribute(transaction: Transaction, progress: StartProgress) -> bool:
    """Distributes the tables over the workers of Citus. Returns False if they were already."""
    await transaction.run_script(_MIGRATION_SETTINGS)
    await transaction.run_script(ONE_MIGRATION)
    return await distribution.distribute(transaction, progress)


async def remove_local_rows(transaction: Transaction) -> None:
    """Remove the rows that the coordinator of Citus has from before the distribution."""
    await transaction.run_script(_MIGRATION_SETTINGS)
    await transaction.run_script(ONE_MIGRATION)
    await distribution.remove_local_rows(transaction)


def explain_migration(error: asyncpg.InsufficientPrivilegeError) -> SettingsError:
    """Return why the schema could not be migrated."""
    return SettingsError(
        f"The user of --database may not update the schema ({error}): let a superuser make that "
        "user the owner of the database"
    )


async def check(fetch: Fetch, accept_compatible: bool) -> None:
    """Raise SettingsError unless the database has this program's schema, completely.

    ``accept_compatible`` accepts a newer schema that this program can serve.
    """
    migrations.check(ENGINE, await check_load(fetch), accept_compatible)


async def check_load(fetch: Fetch) -> SchemaState:
    """Return the schema. Raise SettingsError if the load of a dump was interrupted.

    A dump creates the tables first, then loads the rows, and creates indexes and triggers last.
    """
    found = {row[0] for row in await fetch(_DEFINED_NAMES)}
    schema = await _read_state(fetch) if "migrations" in found else SchemaState(0, 0)
    is_newer = schema.number > migrations.newest(ENGINE)
    expected = set() if is_newer else migrations.expected_names(ENGINE, schema.number)
    unexpected = found & set(TENANT_TABLES) if not schema.number else set()
    if unexpected or expected - found:
        raise SettingsError(
            "The database is incomplete, as after an interrupted load of a dump: load the dump "
            "again into a new database, and run gleanery restored"
        )
    return schema


async def read_state(fetch: Fetch) -> SchemaState:
    """Return the schema of the database, which may be empty."""
    [[exists]] = await fetch("SELECT to_regclass('migrations') IS NOT NULL")
    return await _read_state(fetch) if exists else SchemaState(0, 0)


async def read_state_unless_locked(connection: Any) -> SchemaState:
    """Return the schema, in the transaction of the connection. Wait only shortly for a lock."""
    await connection.execute(_SHORT_LOCK_TIMEOUT)
    try:
        return await read_state(connection.fetch)
    except asyncpg.LockNotAvailableError:
        raise SchemaLocked from None


async def identity(fetch: Fetch, is_distributed: bool) -> str:
    """Return the identifier of the cluster, and the OIDs of the database and of a table.

    The distribution over the workers of Citus may create the table again.
    """
    try:
        [[system_identifier]] = await fetch(_SYSTEM_IDENTIFIER)
    except asyncpg.InsufficientPrivilegeError:  # somebody has revoked the right of everybody
        system_identifier = "-"
    [[database, table]] = await fetch(_OIDS)
    return f"{system_identifier} {database} {'-' if is_distributed else table}"


async def is_owned_by_another_user(fetch: Fetch) -> bool:
    """Return True if another user owns the tables, so that this user cannot migrate them."""
    rows = await fetch(row_security.OWNED_BY_ANOTHER_USER)
    return bool(rows and rows[0][0])


async def check_migrated_by_owner(fetch: Fetch, accept_compatible: bool) -> int:
    """Return the number of the schema.

    Raise SettingsError if it is older than this program, or cannot be accepted.
    """
    schema = await read_state(fetch)
    migrations.reject_newer(ENGINE, schema, accept_compatible)
    needed = migrations.newest(ENGINE)
    if schema.number < needed:
        raise SettingsError(
            f"The database has schema {schema.number}, this program needs schema {needed}, and the "
            "tables belong to another user: run gleanery migrate with the --database URL of "
            "their owner"
        )
    return schema.number


async def _read_state(fetch: Fetch) -> SchemaState:
    """Read the schema. Raise SettingsError if the table cannot be read, or is not Gleanery's."""
    try:
        return await migrations.read_state(ENGINE, fetch)
    except asyncpg.InsufficientPrivilegeError:
        raise SettingsError(row_security.NO_PRIVILEGES) from None
    except (asyncpg.UndefinedColumnError, asyncpg.DatatypeMismatchError):
        raise SettingsError(migrations.FOREIGN) from None


async def _wait_for_writers(transaction: Transaction, applied: int) -> None:
    """Wait for the transactions that write, and let later ones wait until the commit.

    An older program then finds the new migration, and writes only if it is compatible.
    """
    if not (applied and migrations.pending(ENGINE, applied)):
        return
    is_reported = False
    while not await _try_to_lock(transaction):
        if not is_reported:
            _log.warning("the migration waits for a long transaction, perhaps of pg_dump")
            is_reported = True
        await asyncio.sleep(_LOCK_PAUSE_SECONDS)


async def _try_to_lock(transaction: Transaction) -> bool:
    """Locks the table of migrations. Returns False if a long transaction uses the table.

    Writes wait meanwhile. Afterwards they succeed, until the next try.
    """
    try:
        await transaction.run_script(_LOCK_MIGRATIONS)
    except asyncpg.LockNotAvailableError:
        await transaction.run_script("ROLLBACK TO SAVEPOINT before_lock")
        return False
    return True
