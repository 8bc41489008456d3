"""Row-level security in PostgreSQL, and the role that the service takes.

A connection sees the rows of the organization in its setting ``gleanery.organization``. Without
that setting it sees no rows. This also holds for the owner of the tables. The service gives up the
owner's rights: it takes a role that owns nothing, so that it cannot disable row-level security.

See ``docs/explanation/tenant-isolation.md``.
"""

from __future__ import annotations

import contextlib
from typing import Any

import asyncpg

from gleanery.common.errors import SettingsError
from gleanery.service.storage.database import Transaction
from gleanery.service.storage.tenancy import ALL_TENANTS, SHARED_TABLES, TENANT_TABLES

ROLE = "gleanery_serving"
SET_ALL_TENANTS = f"SET LOCAL gleanery.organization = '{ALL_TENANTS}'"

# The SELECT makes PostgreSQL evaluate the setting once per statement, not once per row.
_SETTING = "(SELECT nullif(current_setting('gleanery.organization', true), '')::bigint)"
# Citus sends no statement with a SELECT in a policy to one shard. Without the setting a statement
# fails: a service that started before the distribution must not take hidden rows for missing ones.
_DISTRIBUTED_SETTING = "current_setting('gleanery.organization')::bigint"
# Each statement is sent separately, because Citus sends its text to the workers.
_ENABLE = (
    "ALTER TABLE {0} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    "DROP POLICY IF EXISTS tenant_isolation ON {0}",
    "CREATE POLICY tenant_isolation ON {0} "
    f"USING (organization_id = {{1}} OR {{1}} = {ALL_TENANTS})",
)
_UNPROTECTED_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relname = ANY ($1::text[])
    AND NOT (relrowsecurity AND relforcerowsecurity AND EXISTS (
        SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid AND polname = 'tenant_isolation'))
"""
# Roles belong to the whole server: another database may have created this one already.
_CREATE_ROLE = f"""
DO $$ BEGIN
    IF to_regrole('{ROLE}') IS NULL THEN
        CREATE ROLE {ROLE} NOLOGIN;
        GRANT {ROLE} TO CURRENT_USER;
    END IF;
EXCEPTION WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN NULL;
END $$
"""
_TABLES_WITHOUT_GRANT = f"""
SELECT relname FROM pg_class JOIN pg_roles ON rolname = '{ROLE}'
WHERE relnamespace = current_schema()::regnamespace AND relname = ANY ($1::text[])
    AND NOT has_table_privilege(pg_roles.oid, pg_class.oid, 'DELETE')
"""
_GRANT = f"""
GRANT {{privileges}} ON {{table}} TO {ROLE};
GRANT USAGE ON SEQUENCE output_ids TO {ROLE}
"""
_ALL_PRIVILEGES = "SELECT, INSERT, UPDATE, DELETE"
_AUDIT_PRIVILEGES = "SELECT, INSERT, DELETE"  # a trigger restricts what may be deleted
# Fails without effect if another role owns the schema.
_GRANT_SCHEMA = f"""
DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO {ROLE}', current_schema());
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""
# Fixes the search path first, because the role may have another one. The parameter tells whether
# both end with the transaction.
_SET_ROLE = f"""
SELECT set_config('search_path', quote_ident(current_schema()), $1),
    set_config('role', '{ROLE}', $1)
FROM pg_roles JOIN pg_class ON pg_class.oid = to_regclass('organizations')
WHERE rolname = '{ROLE}' AND has_table_privilege(pg_roles.oid, pg_class.oid, 'DELETE')
"""
_CURRENT_USER = """
SELECT rolsuper OR rolbypassrls,
    EXISTS (SELECT 1 FROM pg_class WHERE relowner = pg_roles.oid AND relname = 'organizations')
FROM pg_roles WHERE rolname = current_user
"""
OWNED_BY_ANOTHER_USER = """
SELECT NOT pg_has_role(session_user, relowner, 'USAGE') FROM pg_class
WHERE oid = to_regclass('migrations')
"""
NO_PRIVILEGES = (
    "The tables belong to another user, and the user of --database has no rights on them: let "
    f"their owner run gleanery migrate, and a superuser: GRANT {ROLE} TO <the user of the URL>"
)
_ADVICE = f"CREATE ROLE {ROLE} NOLOGIN; GRANT {ROLE} TO <the user of the URL>"


async def enable(transaction: Transaction, is_distributed: bool = False) -> None:
    """Add missing policies and grants. The caller owns the tables and excludes other callers."""
    setting = _DISTRIBUTED_SETTING if is_distributed else _SETTING
    for [table] in await transaction.fetch(_UNPROTECTED_TABLES, TENANT_TABLES):
        for statement in _ENABLE:
            await transaction.run_script(statement.format(table, setting))
    await transaction.run_script(_CREATE_ROLE)
    tables = (*TENANT_TABLES, *SHARED_TABLES)
    without_grant = await transaction.fetch(_TABLES_WITHOUT_GRANT, tables)
    if without_grant:
        await transaction.run_script(_GRANT_SCHEMA)
    for [table] in without_grant:
        privileges = _AUDIT_PRIVILEGES if table == "audit_log" else _ALL_PRIVILEGES
        await transaction.run_script(_GRANT.format(privileges=privileges, table=table))


async def set_role(connection: Any) -> None:
    """Give up the owner's rights by taking the role, if it exists."""
    # ``security_warning`` reports a role that the user may not take.
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
        await connection.fetch(_SET_ROLE, False)


async def role_settings(connection: Any) -> tuple[str, ...]:
    """Return the settings that give up the owner's rights; none if the role cannot be taken."""
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
        for search_path, role in await connection.fetch(_SET_ROLE, True):
            return f"search_path = {search_path}", f"ROLE {role}"
    return ()


async def security_warning(connection: Any) -> str | None:
    """Return what an operator should correct. Raise if row-level security has no effect."""
    [[bypasses_row_security, owns_tables]] = await connection.fetch(_CURRENT_USER)
    if bypasses_row_security:
        raise SettingsError(
            "The database user bypasses row-level security, so that one organization could see "
            f"another's rows: give --database another user, or have a superuser run: {_ADVICE}"
        )
    if owns_tables:
        return f"the service could disable row-level security; have a superuser run: {_ADVICE}"
    return None
