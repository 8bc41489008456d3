"""Translates the shared SQL to SQLite's dialect, after the check for a tenant filter."""

from __future__ import annotations

import re
from functools import lru_cache

from gleanery.service.storage import tenancy
from gleanery.service.storage.database import Statement


def to_sqlite(sql: Statement, organization_id: int) -> str:
    """Translate a statement: ``$1`` becomes ``?1``, and the type BYTEA becomes BLOB.

    Raise ``MissingTenantFilter`` for a statement that could touch another tenant's rows.
    """
    # All tenants share one cache entry.
    return _to_sqlite(sql, min(organization_id, tenancy.ANY_TENANT))


@lru_cache(maxsize=1024)
def _to_sqlite(sql: Statement, tenant: int) -> str:
    text = sql if isinstance(sql, str) else sql.sqlite
    tenancy.check(text, tenant)
    return re.sub(r"\$(\d+)", r"?\1", text.replace("BYTEA", "BLOB"))


def for_key_array(sql: Statement, key_parameter: int, organization_id: int) -> str:
    """Translate a statement with one key for an array of keys.

    ``key_parameter`` is the number of the key's parameter. One run per key would take twice as
    long.
    """
    return _for_key_array(sql, key_parameter, min(organization_id, tenancy.ANY_TENANT))


@lru_cache(maxsize=128)
def _for_key_array(sql: Statement, key_parameter: int, tenant: int) -> str:
    statement = _to_sqlite(sql, tenant)
    return re.sub(rf"= \?{key_parameter}\b", f"IN carray(?{key_parameter})", statement)


@lru_cache(maxsize=128)
def join_items(search: str, limit_parameter: int) -> str:
    """Wrap the search for a page in a statement that joins the items.

    ``limit_parameter`` is the number of the limit's parameter; the next one is the separator.
    """
    return f"""
SELECT count(*), max(seq), CAST(group_concat(item, ${limit_parameter + 1}) AS BLOB)
FROM ({search} LIMIT ${limit_parameter})
"""


@lru_cache(maxsize=128)
def join_lines(search: str, limit_parameter: int) -> str:
    """Wrap the search of an export in a statement that joins the ids and the lines.

    ``limit_parameter`` is the number of the limit's parameter.
    """
    return f"""
SELECT max(seq), group_concat(id), CAST(group_concat(item, char(10)) AS BLOB)
FROM ({search} LIMIT ${limit_parameter})
"""
