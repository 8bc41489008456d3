"""Distribution of the tables over the workers of Citus, by organization.

All rows of an organization are in one shard of each tenant table, and these shards are on the same
worker; ``WorkerPlaces`` knows which. The shared tables are reference tables: every server has a
copy.

See ``docs/explanation/citus.md``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import Overloaded, Unavailable
from gleanery.service.foundation.observability.progress import Advance, StartProgress, no_progress
from gleanery.service.storage.database import Row, Transaction
from gleanery.service.storage.postgres import row_security
from gleanery.service.storage.postgres.tenants import INDEX_SEEKS, LOCK_TIMEOUT
from gleanery.service.storage.postgres.transactions import SCRIPT_SECONDS
from gleanery.service.storage.tenancy import NO_TENANT, SHARED_TABLES, TENANT_TABLES

FIRST_TABLE = "outputs"
"""The table that is distributed first; the others are co-located with it."""
_HAS_CITUS = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"
_DISTRIBUTED_TABLES = """
SELECT relname::text FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid
WHERE relnamespace = current_schema()::regnamespace
    AND (partmethod = 'h' OR (partmethod = 'n' AND repmodel = 't'))
"""
_WORKERS = "SELECT count(*) FROM pg_dist_node WHERE groupid > 0 AND isactive AND shouldhaveshards"
_COORDINATOR = "SELECT count(*) FROM pg_dist_node WHERE groupid = 0"
# A worker checks the trigger of the audit log where it writes the row. The tables of one
# transaction are distributed one after another, because they share connections to the workers.
# Each shard has one place, whatever the server prefers: standbys hold the copies.
SETTINGS = """
SET LOCAL citus.shard_replication_factor = 1;
SET LOCAL citus.enable_unsafe_triggers = on;
SET LOCAL citus.multi_shard_modify_mode = 'sequential'
"""
# The copy of existing rows into the shards is not possible with row-level security.
_DISTRIBUTE = """
DROP POLICY IF EXISTS tenant_isolation ON {0};
ALTER TABLE {0} NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY;
SELECT create_distributed_table('{0}', 'organization_id', colocate_with => '{1}')
"""
_REFERENCE = "SELECT create_reference_table('{}')"
# Citus begins the sequences of generated ids again.
_SEQUENCES = """
SELECT sequencename::text, last_value FROM pg_sequences
WHERE schemaname = current_schema() AND last_value IS NOT NULL
"""
_CONTINUE_SEQUENCE = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass,
    greatest(last_value, CAST($2 AS BIGINT)))
FROM pg_sequences WHERE schemaname = current_schema() AND sequencename = $1
"""
# The coordinator connects to the workers as the serving role, which brings its settings.
_ROLE = f"SELECT rolcanlogin, rolconfig FROM pg_roles WHERE rolname = '{row_security.ROLE}'"
_ROLE_SETTINGS = (*INDEX_SEEKS, LOCK_TIMEOUT)
_ROLE_CONFIG = {setting.replace(" ", "").replace("'", "") for setting in _ROLE_SETTINGS}
_CHANGE_ROLE = tuple(
    f"ALTER ROLE {row_security.ROLE} {change}"
    for change in ("LOGIN", *(f"SET {setting}" for setting in _ROLE_SETTINGS))
)
# Citus copies the rows into the shards, and leaves the old ones in the coordinator's tables.
_TABLES_WITH_LOCAL_ROWS = f"""
SELECT relname::text FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND pg_relation_size(oid) > 0
    AND relname IN ({", ".join(f"'{table}'" for table in (*TENANT_TABLES, *SHARED_TABLES))})
"""
# The triggers of the audit log stay as they are in the shards.
_REMOVE_LOCAL_ROWS = """
SET LOCAL citus.enable_ddl_propagation = off;
ALTER TABLE {0} DISABLE TRIGGER USER;
SELECT truncate_local_data_after_distributing_table('{0}');
ALTER TABLE {0} ENABLE TRIGGER USER
"""
# A foreign key needs the table that it refers to.
_SHARED_IN_ORDER = ("organizations", "tokens")
_NO_CITUS = (
    "The database of --database has no Citus: install Citus on the coordinator and its workers, "
    "and let a superuser run: CREATE EXTENSION citus"
)
_NO_WORKERS = (
    "The database of --database has no workers of Citus: let a superuser run "
    "SELECT citus_set_coordinator_host('<host of the coordinator>'), and "
    "SELECT citus_add_node('<host>', <port>) for each worker"
)
NO_REPLICAS = (
    "The database of --database is distributed, and --replica does not work with Citus: give its "
    "workers standbys, and leave out --replica"
)
CHANGED = "The tables were distributed after this service had started: restart it"
NOT_DISTRIBUTED = "The tables could not be distributed, and nothing was changed"
ROWS_NOT_REMOVED = (
    "The tables are distributed, but the old rows on the coordinator could not be removed"
)
Fetch = Callable[[str], Awaitable[Sequence[Row]]]
# Citus logs in as the current user, and gives up by itself (citus.node_connection_timeout).
_TAKE_ROLE = f"SET LOCAL ROLE {row_security.ROLE}"
_FAILED_LOGINS = """
SELECT format('%s:%s', nodename, nodeport) FROM pg_dist_node
WHERE groupid > 0 AND isactive AND noderole = 'primary'
    AND NOT citus_check_connection_to_node(nodename, nodeport)
ORDER BY nodeid
"""
_REASON = "failed with the following error: "
_MAX_AGE_SECONDS = 60.0  # an operator may move shards to another worker
_MAX_KNOWN = 10_000
# All tenant tables are distributed in the same way. The catalog is the coordinator's. A shard has
# more than one place if citus.shard_replication_factor was greater than 1 at the distribution.
_WORKER = """
SELECT groupid, format('%s:%s', nodename, nodeport)
FROM pg_dist_placement JOIN pg_dist_node USING (groupid)
WHERE noderole = 'primary'
    AND shardid = get_shard_id_for_distribution_column('outputs', CAST($1 AS BIGINT))
ORDER BY groupid LIMIT 1
"""


# --- tables --------------------------------------------------------------------------------------


async def is_distributed(fetch: Fetch) -> bool:
    """Return True if ``gleanery migrate --distribute`` has distributed this database."""
    return FIRST_TABLE in await _distributed_tables(fetch)


async def _distributed_tables(fetch: Fetch) -> set[str]:
    [[has_citus]] = await fetch(_HAS_CITUS)
    return {row[0] for row in await fetch(_DISTRIBUTED_TABLES)} if has_citus else set()


async def check(fetch: Fetch) -> None:
    """Raise SettingsError unless the database can be distributed."""
    [[has_citus]] = await fetch(_HAS_CITUS)
    if not has_citus:
        raise SettingsError(_NO_CITUS)
    [[workers]] = await fetch(_WORKERS)
    [[coordinators]] = await fetch(_COORDINATOR)
    if not (workers and coordinators):
        raise SettingsError(_NO_WORKERS)


async def distribute(transaction: Transaction, progress: StartProgress = no_progress) -> bool:
    """Distributes the tables that are not distributed yet, and restores their policies.

    Returns False if all were distributed. The caller owns the tables and excludes other callers.
    """
    found = await _distributed_tables(transaction.fetch)
    if missing := {*SHARED_TABLES, *TENANT_TABLES} - found:
        await _distribute(transaction, missing, progress("Distributing tables", len(missing)))
    await row_security.enable(transaction, is_distributed=True)
    await prepare_role(transaction)
    return bool(missing)


async def prepare_role(transaction: Transaction) -> None:
    """Lets the serving role log in, with its settings. The workers see it after the commit."""
    for can_login, config in await transaction.fetch(_ROLE):
        if not (can_login and _ROLE_CONFIG.issubset(config or ())):
            for statement in _CHANGE_ROLE:
                await transaction.run_script(statement)


async def _distribute(transaction: Transaction, tables: Collection[str], advance: Advance) -> None:
    sequences = await transaction.fetch(_SEQUENCES)
    await transaction.run_script(SETTINGS)
    for table in sorted(SHARED_TABLES, key=_reference_order):
        if table in tables:
            await transaction.run_script(_REFERENCE.format(table))
            advance(1)
    for table in (FIRST_TABLE, *(name for name in TENANT_TABLES if name != FIRST_TABLE)):
        if table in tables:
            colocated = "none" if table == FIRST_TABLE else FIRST_TABLE
            await transaction.run_script(_DISTRIBUTE.format(table, colocated))
            advance(1)
    for sequence, last_value in sequences:
        if not await transaction.fetch(_CONTINUE_SEQUENCE, sequence, last_value):
            raise SettingsError(f"The sequence {sequence} was lost, so nothing was changed")


def _reference_order(table: str) -> int:
    known = table in _SHARED_IN_ORDER
    return _SHARED_IN_ORDER.index(table) if known else len(_SHARED_IN_ORDER)


async def has_local_rows(fetch: Fetch) -> bool:
    """Return True if the coordinator still has rows from before the distribution."""
    return bool(await fetch(_TABLES_WITH_LOCAL_ROWS))


async def remove_local_rows(transaction: Transaction) -> None:
    """Remove the rows from before the distribution. The shards have a copy of each."""
    distributed = await _distributed_tables(transaction.fetch)
    await transaction.run_script(SETTINGS)
    for [table] in await transaction.fetch(_TABLES_WITH_LOCAL_ROWS):
        if table in distributed:
            await transaction.run_script(_REMOVE_LOCAL_ROWS.format(table))


def explain(error: Exception, subject: str) -> SettingsError:
    """Return why a part of the distribution failed, and what to do."""
    if isinstance(error, Unavailable):
        advice = "check that every server runs and lets the coordinator log in, and try again"
        return SettingsError(f"{subject} ({error.reason or error}): {advice}")
    return SettingsError(
        f"{subject} ({error}): give --database the URL of a superuser, who can log in to every "
        "worker"
    )


# --- logins of the coordinator -------------------------------------------------------------------


async def check_logins(connection: Any) -> None:
    """Raise SettingsError if a login fails. The connection is in a transaction.

    Citus reports the reason of a failed login only as a warning.
    """
    warnings: list[str] = []

    def note(_: Any, message: Any) -> None:
        warnings.append(message.message)

    await connection.execute(_TAKE_ROLE)
    connection.add_log_listener(note)
    try:
        failed = await connection.fetch(_FAILED_LOGINS, timeout=SCRIPT_SECONDS)
    finally:
        connection.remove_log_listener(note)
    if failed:
        raise SettingsError(_explain_logins([row[0] for row in failed], warnings))


def _explain_logins(workers: list[str], warnings: list[str]) -> str:
    reasons = [warning.rpartition(_REASON)[2].splitlines()[0] for warning in warnings if warning]
    reason = f" ({reasons[0]})" if reasons else ""
    noun = "worker" if len(workers) == 1 else "workers"
    return (
        f"The coordinator cannot log in to the {noun} {' '.join(workers)} as {row_security.ROLE}"
        f"{reason}, and nothing was copied: check that each worker runs and allows this login in "
        "pg_hba.conf, and that the coordinator's server has a certificate, or a password in its "
        "file .pgpass"
    )


# --- places of organizations ---------------------------------------------------------------------


class _Worker(NamedTuple):
    number: int
    address: str
    known_until: float


_UNKNOWN = _Worker(-2, "", 0.0)  # its number is neither a worker nor ALL_TENANTS


class WorkerPlaces:
    """The workers of organizations, each read from the catalog once per minute of use."""

    def __init__(self, fetch: Callable[[str, int], Awaitable[Sequence[Row]]]) -> None:
        self._fetch = fetch
        self._known: dict[int, _Worker] = {}

    def worker_of(self, organization_id: int) -> int:
        """Return a number for the worker. Work without a tenant has a number of its own."""
        if organization_id <= NO_TENANT:
            return organization_id
        return self._known.get(organization_id, _UNKNOWN).number

    def describe(self, organization_id: int) -> str:
        """Says for the log which worker an organization needs; empty if that is not known."""
        address = self._known.get(organization_id, _UNKNOWN).address
        return address and f"organization {organization_id} is on the worker {address} of Citus"

    async def find(self, organization_id: int) -> None:
        """Read the worker of the organization, unless it is known."""
        now = time.monotonic()
        known = self._known.get(organization_id, _UNKNOWN)
        if organization_id <= NO_TENANT or now < known.known_until:
            return
        with suppress(Overloaded, Unavailable):  # what was known holds
            [[number, address]] = await self._fetch(_WORKER, organization_id)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[organization_id] = _Worker(number, address, now + _MAX_AGE_SECONDS)
