"""Translates shared SQL to SQLite's, after the check for a tenant filter."""

from __future__ import annotations

import re
from functools import lru_cache

from gleanery.storage import tenancy


def to_sqlite(sql: str, organization_id: int) -> str:
    """Translates a statement: ``$1`` becomes ``?1``, and ``/* INDEXED BY name */`` takes effect.

    SQLite then uses that index. With statistics, its planner would scan a group whose rows have
    equal values. PostgreSQL reads a comment.

    Raises ``MissingTenantFilter`` for a statement that could touch another tenant's rows.
    """
    return _to_sqlite(sql, min(organization_id, tenancy.ANY_TENANT))


@lru_cache(maxsize=1024)
def _to_sqlite(sql: str, tenant: int) -> str:
    tenancy.check(sql, tenant)
    sql = re.sub(r"/\* (INDEXED BY \w+) \*/", r"\1", sql.replace("BYTEA", "BLOB"))
    return re.sub(r"\$(\d+)", r"?\1", sql)


def for_key_array(sql: str, key: int, organization_id: int) -> str:
    """Translates a statement with one key (parameter number ``key``) for an array of keys.

    One run per key would take twice as long.
    """
    return _for_key_array(sql, key, min(organization_id, tenancy.ANY_TENANT))


@lru_cache(maxsize=128)
def _for_key_array(sql: str, key: int, tenant: int) -> str:
    return re.sub(rf"= \?{key}\b", f"IN carray(?{key})", _to_sqlite(sql, tenant))


@lru_cache(maxsize=128)
def joined_items(search: str, limit: int) -> str:
    """Wraps the search for a page in a statement that joins the items.

    ``limit`` is the number of the parameter for the limit; the next one is the separator.
    """
    return f"""
SELECT count(*), max(seq), CAST(group_concat(item, ${limit + 1}) AS BLOB)
FROM ({search} LIMIT ${limit})
"""
