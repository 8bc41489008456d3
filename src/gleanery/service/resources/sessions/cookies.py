"""Cookies: one per organization, profile, domain, path, name and partition.

A request has the names and values of cookies, but not their domains and paths. The stored cookies
that its page gets say which ones it means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.sessions.kinds import (
    HOST_IS_PARENT,
    HostRecord,
    PreparedRecord,
    RecordKind,
)
from gleanery.service.resources.sessions.models import CookieOut
from gleanery.service.resources.sessions.records import visible_hosts
from gleanery.service.resources.sessions.state_models import DEFAULT_PROFILE, NOT_GIVEN, Cookie
from gleanery.service.resources.sessions.writing import Prepared
from gleanery.service.storage.database import Row, Transaction
from gleanery.sessions import InvalidSession, model
from gleanery.sessions.browser_rules import Page, gets_cookie

_NO_EXPIRY = -1
_COLUMNS = (
    *("domain", "host", "name", "path", "secure", "http_only", "expires", "host_only"),
    *("same_site", "partition_site", "cross_site_ancestor", "profile", "host_only_stated"),
)
_POSITIONS = {column: position for position, column in enumerate(_COLUMNS)}
_HOST_ONLY = (_POSITIONS["host_only"], _POSITIONS["host_only_stated"])
_PARTITION = (_POSITIONS["partition_site"], _POSITIONS["cross_site_ancestor"])


def _hash_identity(
    organization_id: int,
    domain: str,
    path: str,
    name: str,
    profile: str,
    partition_site: str | None,
    cross_site_ancestor: bool | None,
) -> bytes:
    """Hashes what identifies a cookie.

    Values from before there were profiles are encrypted with this hash. So it must not change
    for a cookie of the default profile without a partition.
    """
    parts: tuple[str | int, ...] = ("cookie", organization_id, domain, path or "/", name)
    if partition_site is not None:
        parts += (profile, partition_site, int(bool(cross_site_ancestor)))
    elif profile != DEFAULT_PROFILE:
        parts += (profile,)
    return hash_parts(*parts)


def _prepare(organization_id: int, cookie: Cookie) -> PreparedRecord:
    domain, name, path, profile = cookie.domain, cookie.name, cookie.path, cookie.profile
    host = domain.removeprefix(".")
    # Browsers have no date before 1970. Such a cookie has expired, and -1 means "no expiry".
    expires = None if cookie.expires is None else max(cookie.expires, 0)
    kept: tuple[int, ...] = ()
    host_only, same_site, partition = cookie.host_only, cookie.same_site, cookie.partition_key
    is_stated = host_only is not NOT_GIVEN
    if not is_stated:
        kept, host_only = _HOST_ONLY, domain == host
    if same_site is NOT_GIVEN:
        kept, same_site = (*kept, _POSITIONS["same_site"]), None
    alternative = None
    if partition is NOT_GIVEN:
        kept, partition = kept + _PARTITION, None
        alternative = (profile, host, name, domain, path or "/")
    site, ancestor = (
        (None, None)
        if partition is None
        else (partition.top_level_site, partition.has_cross_site_ancestor)
    )
    flags = (cookie.secure, cookie.http_only, expires, host_only)
    columns = (domain, host, name, path, *flags, same_site, site, ancestor, profile, is_stated)
    identity = _hash_identity(organization_id, domain, path, name, profile, site, ancestor)
    return PreparedRecord(identity, domain, columns, cookie.value, kept, alternative)


def _to_response(organization_id: int, value: str, row: Row) -> CookieOut:
    _, _, domain, host, name, path, secure, http_only, expires, *_ = row
    return CookieOut(
        name=name,
        value=value,
        url=f"{'https' if secure else 'http'}://{host}/{path.removeprefix('/')}",
        domain=domain,
        path=path,
        expires=_NO_EXPIRY if expires is None else expires,
        http_only=bool(http_only),
        secure=bool(secure),
    )


COOKIES = RecordKind[Cookie, CookieOut](
    table="cookies",
    columns=_COLUMNS,
    identity_columns=(
        *("domain", "path", "name"),
        *("profile", "partition_site", "cross_site_ancestor"),
    ),
    name_column="name",
    replaced_columns=(
        *("path", "secure", "http_only", "expires"),
        *("host_only", "host_only_stated", "same_site"),
    ),
    uncompared_columns=("host_only_stated",),
    # Clients that send no hostOnly expect their cookies for subdomains. Exports follow browsers.
    visible_if=f"host = $5 OR NOT (host_only AND host_only_stated) AND {HOST_IS_PARENT}",
    alternative_column="partition_site",
    alternative_index="cookies_partitioned",
    alternative_member="partitionKey",
    ambiguous="It is not clear which cookie is meant: partitioned cookies with this domain, path "
    "and name are stored. Send partitionKey, which is empty for the cookie without a partition",
    find_alternatives="""
SELECT identity, profile, host, name, domain, CASE path WHEN '' THEN '/' ELSE path END
FROM cookies
WHERE organization_id = $1 AND profile = $2 AND host = $3 AND name = $4
    AND partition_site IS NOT NULL AND domain = $5 AND (path = $6 OR path = '' AND $6 = '/')
""",
    hash_identity=_hash_identity,
    prepare=_prepare,
    to_response=_to_response,
    read_action="get_cookies",
    store_action="set_cookies",
    delete_action="delete_cookies",
    extra_columns=("updated_at",),
)


# --- whole cookies ------------------------------------------------------------------------------


class StoredCookie(NamedTuple):
    """A stored cookie in the model of every format."""

    cookie: model.Cookie
    updated_at: int
    """Microseconds since 1970."""


def to_stored(value: str, row: Row) -> StoredCookie:
    """Convert a decrypted value and a row of a list. Raise InvalidSession."""
    return StoredCookie(_to_model(value, row[2:]), row[-1])


def _without_value(record: HostRecord) -> model.Cookie:
    """Convert the columns of a cookie. Raise InvalidSession."""
    return _to_model("-", record.columns)


def _to_model(value: str, columns: Sequence[Any]) -> model.Cookie:
    _, host, name, path, secure, http_only, expires, host_only, same_site, *rest = columns
    site, ancestor, *_ = rest
    return model.Cookie(
        name=name,
        value=value,
        host=host,
        host_only=bool(host_only),
        path=path or "/",
        expires=expires,
        secure=bool(secure),
        http_only=bool(http_only),
        same_site=same_site,
        partition_key=None if site is None else model.PartitionKey(site, bool(ancestor)),
    )


# --- cookies that pages get ---------------------------------------------------------------------

_DOMAIN, _HOST, _NAME, _EXPIRES = map(COOKIES.columns.index, ("domain", "host", "name", "expires"))


class PageCookie(NamedTuple):
    """A stored cookie that a page on a host gets."""

    page_host: str
    record: HostRecord

    @property
    def host(self) -> str:
        return str(self.record.columns[_HOST])


async def find_of_pages(
    transaction: Transaction, profile: str, pages: Sequence[Page]
) -> list[PageCookie]:
    """Return the cookies that the pages get, with expired ones."""
    found: list[PageCookie] = []
    for page_host in dict.fromkeys(page.host for page in pages):
        of_host = [page for page in pages if page.host == page_host]
        for host in visible_hosts(page_host):
            key = (transaction.organization_id, profile, host)
            rows = await transaction.fetch(COOKIES.statements.list_host, *key)
            listed = (HostRecord(bytes(row[0]), row[1:]) for row in rows)
            found += (PageCookie(page_host, record) for record in _sent(listed, of_host))
            await transaction.pause()
    return found


def _sent(records: Iterable[HostRecord], pages: Sequence[Page]) -> Iterator[HostRecord]:
    known: dict[Hashable, bool] = {}  # many cookies have the same path and flags
    for record in records:
        try:
            cookie = _without_value(record)
        except InvalidSession:
            continue  # no browser can have it
        scope = (cookie.domain, cookie.path, cookie.secure, cookie.partition_key)
        if scope not in known:
            known[scope] = _is_sent(cookie, pages)
        if known[scope]:
            yield record


def _is_sent(cookie: model.Cookie, pages: Iterable[Page]) -> bool:
    return any(gets_cookie(page, cookie) for page in pages)


def match_stored(
    prepared: Prepared[Cookie], found: Iterable[PageCookie], now: int
) -> Prepared[Cookie]:
    """Return the cookies of requests with the identities of the stored ones that they mean.

    A cookie means the only stored one of its name that its page gets. Those that have expired at
    this second count only if there is no other. Otherwise it is a new cookie of the page's host.
    """
    by_name = defaultdict[tuple[str, str], list[HostRecord]](list)
    for one in found:
        by_name[one.page_host, one.record.columns[_NAME]].append(one.record)
    records = (
        _as_stored(record, by_name[record.columns[_HOST], record.columns[_NAME]], now)
        for record in prepared.by_identity.values()
    )
    return prepared._replace(by_identity={record.identity: record for record in records})


def _as_stored(record: PreparedRecord, stored: Sequence[HostRecord], now: int) -> PreparedRecord:
    current = [one for one in stored if not _is_expired(one, now)]
    choices = current or stored
    if len(choices) != 1:
        return record
    [(identity, stored_columns)] = choices
    columns = list(stored_columns)
    columns[_EXPIRES] = None
    domain = columns[_DOMAIN]
    return PreparedRecord(identity, domain, tuple(columns), record.value, keeps_expiry=True)


def _is_expired(record: HostRecord, now: int) -> bool:
    expires = record.columns[_EXPIRES]
    return expires is not None and expires <= now
