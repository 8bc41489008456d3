"""Stored cookies that pages get: finds those that the cookies of a request mean.

A request has the names and values of cookies, but not their domains and paths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gleanery.service.resources.sessions import cookies
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.kinds import PreparedRecord
from gleanery.service.resources.sessions.records import Prepared
from gleanery.service.resources.sessions.state_models import Cookie
from gleanery.service.resources.sessions.versions import visible_hosts
from gleanery.service.storage.database import Row, Transaction
from gleanery.sessions import Cookie as BrowserCookie
from gleanery.sessions import InvalidSession
from gleanery.sessions.browser_rules import Page, gets_cookie

_DOMAIN, _HOST, _NAME, _EXPIRES = map(COOKIES.columns.index, ("domain", "host", "name", "expires"))


class PageCookie(NamedTuple):
    """A stored cookie that a page on a host gets."""

    page_host: str
    row: Row
    """The identity and the columns."""

    @property
    def identity(self) -> bytes:
        return bytes(self.row[0])

    @property
    def host(self) -> str:
        return str(self.row[1 + _HOST])


async def find_of_pages(transaction: Transaction, profile: str, pages: Sequence[Page]) -> list[PageCookie]:
    """Return the cookies that the pages get, with expired ones."""
    found: list[PageCookie] = []
    for page_host in dict.fromkeys(page.host for page in pages):
        of_host = [page for page in pages if page.host == page_host]
        for host in visible_hosts(page_host):
            key = (transaction.organization_id, profile, host)
            rows = await transaction.fetch(COOKIES.statements.list_host, *key)
            found += (PageCookie(page_host, row) for row in _sent(rows, of_host))
            await transaction.pause()
    return found


def _sent(rows: Iterable[Row], pages: Sequence[Page]) -> Iterator[Row]:
    known: dict[Hashable, bool] = {}  # many cookies have the same path and flags
    for row in rows:
        try:
            cookie = cookies.without_value(row)
        except InvalidSession:
            continue  # no browser can have it
        scope = (cookie.domain, cookie.path, cookie.secure, cookie.partition_key)
        if scope not in known:
            known[scope] = _is_sent(cookie, pages)
        if known[scope]:
            yield row


def _is_sent(cookie: BrowserCookie, pages: Iterable[Page]) -> bool:
    return any(gets_cookie(page, cookie) for page in pages)


def match_stored(
    prepared: Prepared[Cookie], found: Iterable[PageCookie], now: int
) -> Prepared[Cookie]:
    """Return the cookies of requests with the identities of the stored ones that they mean.

    A cookie means the only stored one of its name that its page gets. Those that have expired at
    this second count only if there is no other. Otherwise it is a new cookie of the page's host.
    """
    by_name = defaultdict[tuple[str, str], list[Row]](list)
    for one in found:
        by_name[one.page_host, one.row[1 + _NAME]].append(one.row)
    records = (
        _as_stored(record, by_name[record.columns[_HOST], record.columns[_NAME]], now)
        for record in prepared.by_identity.values()
    )
    return prepared._replace(by_identity={record.identity: record for record in records})


def _as_stored(record: PreparedRecord, rows: Sequence[Row], now: int) -> PreparedRecord:
    current = [row for row in rows if not _is_expired(row, now)]
    choices = current or rows
    if len(choices) != 1:
        return record
    [(identity, *columns)] = choices
    columns[_EXPIRES] = None
    domain = columns[_DOMAIN]
    return PreparedRecord(bytes(identity), domain, tuple(columns), record.value, keeps_expiry=True)


def _is_expired(row: Row, now: int) -> bool:
    expires = row[1 + _EXPIRES]
    return expires is not None and expires <= now
