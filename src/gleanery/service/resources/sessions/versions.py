"""Versions of lists of session records: the ETag of a list, and the check of If-Match.

Every change of a record gives it a new, higher revision. So the number of records and the highest
revision identify the content of a list. An ETag also says which list it belongs to, so that a write
can read the version of that list again.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gleanery.service.foundation.errors import PreconditionFailed
from gleanery.service.foundation.field_types import MAX_INT64, check_stored_name
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.storage.database import Row, Transaction
from gleanery.sessions import hostnames

_TABLES = {"cookies": "c", "local_storage": "l"}
_LETTERS = {letter: table for table, letter in _TABLES.items()}
_HASH_LENGTH = 16
_NUMBER = re.compile(r"[0-9]{1,19}")
_CHANGED = "The records have changed since you read them: read them again, then repeat the request"
_OTHER_PROFILE = (
    "The ETag is of another profile than this request: read the records of this profile, then "
    "repeat the request"
)

HOST_IS_BELOW = "substr(host, length(host) - length($3)) = '.' || $3"
"""Return the SQL condition that the host is a subdomain of host $3."""

Read = Callable[..., Awaitable[Sequence[Row]]]
IfMatch = tuple[str, ...] | None
"""The ETags of an If-Match header, of which one must be current; None without a condition."""


class ListScope(NamedTuple):
    """The records of a list."""

    tables: tuple[str, ...]
    profile: str
    host: str | None = None
    """Only records that are visible to a page on this host."""
    for_group: int | None = None
    """Only entries of this group, and those that apply to every group."""
    has_subdomains: bool = False
    """True if the records of the host's subdomains belong to the list, too."""


async def read_etag(read: Read, organization_id: int, scope: ListScope) -> str:
    """Return the ETag of a list, without quotes. Read it before the records of the list."""
    numbers: list[int] = []
    for table in scope.tables:
        [row] = await read(*_version_query(table, organization_id, scope))
        numbers += row
    version = hash_parts(organization_id, *numbers).hex()[:_HASH_LENGTH]
    return f"{_encode_scope(scope)}.{version}"


async def check(transaction: Transaction, if_match: IfMatch, profile: str) -> None:
    """Raise PreconditionFailed if no ETag of If-Match is current and of the profile.

    Call it under the lock.
    """
    if if_match is None:
        return
    scopes = {etag: _decode_scope(etag.partition(".")[0]) for etag in if_match}
    own = {etag: scope for etag, scope in scopes.items() if scope and scope.profile == profile}
    for etag, scope in own.items():
        if etag == await read_etag(transaction.fetch, transaction.organization_id, scope):
            return
    is_of_other = not own and any(scopes.values())
    raise PreconditionFailed(_OTHER_PROFILE if is_of_other else _CHANGED)


# --- the query ----------------------------------------------------------------------------------


def _version_query(table: str, organization_id: int, scope: ListScope) -> tuple[Any, ...]:
    """Return the statement, and then its values."""
    hosts = [] if scope.host is None else visible_hosts(scope.host)
    has_group = table == "local_storage" and scope.for_group is not None
    values = (organization_id, scope.profile, *hosts, *[scope.for_group] * has_group)
    return _statement(table, len(hosts), has_group, scope.has_subdomains), *values


def visible_hosts(host: str) -> list[str]:
    """Return the host and its parent domains, whose records a page on the host can see."""
    if hostnames.is_address(host):
        return [host]
    labels = host.split(".")
    parents = (".".join(labels[start:]) for start in range(len(labels)))
    return [parent for parent in parents if parent]


def host_condition(host_count: int, has_subdomains: bool) -> str:
    """Return the SQL condition that the host is one of ``visible_hosts``, of which $3 is the first.

    With subdomains, the host may also be below $3.
    """
    hosts = ", ".join(f"${number}" for number in range(3, host_count + 3))
    visible = f"host IN ({hosts})"
    return f"({visible} OR {HOST_IS_BELOW})" if has_subdomains else visible


@lru_cache(maxsize=512)
def _statement(table: str, host_count: int, has_group: bool, has_subdomains: bool) -> str:
    """Count the records and find their highest revision, of one to all hosts."""
    conditions = ["organization_id = $1", "profile = $2"]
    if host_count:
        conditions.append(host_condition(host_count, has_subdomains))
    if host_count and table == "local_storage" and not has_subdomains:
        conditions.append("(host = $3 OR domain <> host)")  # as in the list
    if has_group:
        conditions.append(f"(group_id = 0 OR group_id = ${host_count + 3})")
    source = f"FROM {table} WHERE {' AND '.join(conditions)}"
    return f"SELECT count(*), coalesce(max(revision), 0) {source}"


# --- the scope in an ETag -----------------------------------------------------------------------


def _encode_scope(scope: ListScope) -> str:
    letters = "".join(_TABLES[table] for table in scope.tables)
    group = "" if scope.for_group is None else str(scope.for_group)
    host = f".{scope.host}" if scope.has_subdomains else scope.host or ""
    text = "\n".join((letters, scope.profile, host, group))
    return base64.urlsafe_b64encode(text.encode()).decode("ascii").rstrip("=")


def _decode_scope(encoded: str) -> ListScope | None:
    """Return the scope in an ETag; None for a text that is no ETag of this service."""
    try:
        padding = "=" * (-len(encoded) % 4)
        text = base64.urlsafe_b64decode(encoded + padding).decode()
        letters, profile, host, group = text.split("\n")
        tables = tuple(_LETTERS[letter] for letter in dict.fromkeys(letters))
        return ListScope(
            tables,
            check_stored_name(profile),
            hostnames.normalize(host).removeprefix(".") if host else None,
            _parse_group(group) if group else None,
            host.startswith("."),
        )
    except (ValueError, KeyError):
        return None


def _parse_group(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > MAX_INT64:
        raise ValueError("no number of a group")
    return int(text)
