"""PostgreSQL's own wall between organizations: row-level security, and the role that serves.

Every row of an organization's is seen only by a connection that works for that organization, which
it says in the setting ``gleanery.organization``; where nothing is set, nothing is seen. The rule
holds for the owner of the tables too. What serves gives up the owner's rights all the same: it
takes a role that owns nothing, so that it can't take the wall down.
"""

from __future__ import annotations

import contextlib
from typing import Any

import asyncpg

from gleanery.errors import SettingsError
from gleanery.storage.database import Transaction
from gleanery.storage.tenancy import ALL_TENANTS, OWNED, SHARED

ROLE = "gleanery_serving"
WORKS_FOR_ALL_TENANTS = f"SET LOCAL gleanery.organization = '{ALL_TENANTS}'"

# BoundQuery once for each statement, not for each row: therefore the SELECT around it.
_SET = "(SELECT nullif(current_setting('gleanery.organization', true), '')::bigint)"
_WALL = f"""
ALTER TABLE {{0}} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS of_organization ON {{0}};
CREATE POLICY of_organization ON {{0}} USING (organization_id = {_SET} OR {_SET} = {ALL_TENANTS})
"""
_BARE = """
SELECT relname FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relname = ANY ($1)
    AND NOT (relrowsecurity AND relforcerowsecurity AND EXISTS (
        SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid AND polname = 'of_organization'))
"""
# Roles are the whole server's: another database may have brought this one along.
_MAKE_ROLE = f"""
DO $$ BEGIN
    IF to_regrole('{ROLE}') IS NULL THEN
        CREATE ROLE {ROLE} NOLOGIN;
        GRANT {ROLE} TO CURRENT_USER;
    END IF;
EXCEPTION WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN NULL;
END $$
"""
_WITHOUT_RIGHTS = f"""
SELECT relname FROM pg_class JOIN pg_roles ON rolname = '{ROLE}'
WHERE relnamespace = current_schema()::regnamespace AND relname = ANY ($1)
    AND NOT has_table_privilege(pg_roles.oid, pg_class.oid, 'DELETE')
"""
_RIGHTS = f"""
GRANT {{}} ON {{}} TO {ROLE};
GRANT USAGE ON SEQUENCE output_ids TO {ROLE}
"""
_MAY = "SELECT, INSERT, UPDATE, DELETE"
_MAY_NOT_CHANGE = "SELECT, INSERT, DELETE"  # and what it removes, a trigger looks at
_RIGHT_TO_ENTER = f"""
DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO {ROLE}', current_schema());
EXCEPTION WHEN insufficient_privilege THEN NULL;  -- of a schema that is not ours to open
END $$
"""
# The tables are found where they are now, whatever the role's own search path would be.
_TAKE_ROLE = f"""
SELECT set_config('search_path', quote_ident(current_schema()), false),
    set_config('role', '{ROLE}', false)
FROM pg_roles JOIN pg_class ON pg_class.oid = to_regclass('organizations')
WHERE rolname = '{ROLE}' AND has_table_privilege(pg_roles.oid, pg_class.oid, 'DELETE')
"""
_WHO = """
SELECT rolsuper OR rolbypassrls,
    EXISTS (SELECT 1 FROM pg_class WHERE relowner = pg_roles.oid AND relname = 'organizations')
FROM pg_roles WHERE rolname = current_user
"""
OF_ANOTHER_USER = """
SELECT NOT pg_has_role(session_user, relowner, 'USAGE') FROM pg_class
WHERE oid = to_regclass('migrations')
"""
NO_RIGHTS = (
    "The tables are another user's, and the user of --database has no right to them: let their "
    f"owner run gleanery migrate, and a superuser: GRANT {ROLE} TO <the user of the URL>"
)
_TO_RUN = f"CREATE ROLE {ROLE} NOLOGIN; GRANT {ROLE} TO <the user of the URL>"


async def raise_walls(transaction: Transaction) -> None:
    """Puts up what is missing. The caller is the owner of the tables, and alone."""
    for [table] in await transaction.fetch(_BARE, OWNED):
        await transaction.run_script(_WALL.format(table))
    await transaction.run_script(_MAKE_ROLE)
    lacking = await transaction.fetch(_WITHOUT_RIGHTS, (*OWNED, *SHARED))
    if lacking:
        await transaction.run_script(_RIGHT_TO_ENTER)
    for [table] in lacking:
        may = _MAY_NOT_CHANGE if table == "audit" else _MAY
        await transaction.run_script(_RIGHTS.format(may, table))


async def take_role(connection: Any) -> None:
    """Gives up the owner's rights, as soon as there is a role for that."""
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # told by ``security_warning``
        await connection.fetch(_TAKE_ROLE)


async def security_warning(connection: Any) -> str | None:
    """What an operator should mend. Raises if the wall would not hold at all."""
    [[sees_all, owns]] = await connection.fetch(_WHO)
    if sees_all:
        raise SettingsError(
            "The database's user is above row-level security, so that one organization could see "
            f"another's rows: give --database another user, or have a superuser run: {_TO_RUN}"
        )
    if owns:
        return f"the service could take down its own wall; have a superuser run: {_TO_RUN}"
    return None
