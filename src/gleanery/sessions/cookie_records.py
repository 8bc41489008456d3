"""Cookies as JSON records: one reader for the records of all tools, and their common members.

The records of Playwright, CDP, Puppeteer, Selenium, browser extensions and Scrapy differ in a few
names. One reader understands all of them, so a format that is detected wrongly is read correctly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gleanery.sessions import records
from gleanery.sessions.browser_rules import parse_url
from gleanery.sessions.document import Document
from gleanery.sessions.model import (
    Cookie,
    InvalidSession,
    Losses,
    PartitionKey,
    SessionState,
    checked_origin,
    host_of_origin,
    split_domain,
)

_EXTENSION_MEMBERS = frozenset(("expirationDate", "hostOnly", "storeId", "firstPartyDomain"))
_CDP_MEMBERS = frozenset(
    ("size", "session", "priority", "sourceScheme", "sourcePort", "sameParty", "partitionKeyOpaque")
)
_SELENIUM_MEMBERS = frozenset(("expiry", "httpOnly", "sameSite"))
_SCRAPY_MEMBERS = frozenset(("name", "value"))
_EXPIRY_MEMBERS = ("expires", "expiry", "expirationDate")
_COMMON_MEMBERS = ("name", "value", "domain", "host", "url", "path", "secure", "http_only")
_PARTITION_MEMBERS = ("partitionKey", "_crHasCrossSiteAncestor")
_IGNORED_MEMBERS = ("id",)  # the position in EditThisCookie's list
_KNOWN = _EXTENSION_MEMBERS.union(
    _CDP_MEMBERS,
    _SELENIUM_MEMBERS,
    _EXPIRY_MEMBERS,
    _COMMON_MEMBERS,
    _PARTITION_MEMBERS,
    _IGNORED_MEMBERS,
)
_DOCUMENT_MEMBERS = frozenset(("cookies", "url"))  # some extensions add the URL of the page
_WEB_SCHEMES = ("http://", "https://")
_FIRST_PARTY = "The first-party domain is lost: it is Firefox's own"
_OPAQUE = "A cookie is left out, because its partition exists only in the browser that made it"


def format_name(document: Document) -> str | None:
    """Return the name of the format that a document with cookie records has.

    An object with "origins" is Playwright's. Other objects, and arrays, are told by the members
    of their records, in the order of the tests below, because some tools have the same members.
    """
    value = document.value
    if isinstance(value, dict) and "origins" in value:
        return "playwright"
    found = value.get("cookies") if isinstance(value, dict) else value
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        return None
    names = frozenset[Any]().union(*found)
    if names & _EXTENSION_MEMBERS:
        return "extension"
    return "cdp" if isinstance(value, dict) else _name_of_array(names)


def _name_of_array(names: frozenset[Any]) -> str | None:
    if names & _CDP_MEMBERS:
        return "puppeteer"
    if "expires" in names or not names:
        return "playwright"
    if names & _SELENIUM_MEMBERS:
        return "selenium"
    return "scrapy" if names >= _SCRAPY_MEMBERS else None


def detector(name: str) -> Callable[[Document], bool]:
    """Return the function that detects the documents of this format."""
    return lambda document: format_name(document) == name


def read_state(document: Document, losses: Losses, url: str | None) -> SessionState:
    """Read a document that has only cookies: an array, or an object with "cookies"."""
    value = document.value
    if isinstance(value, dict):
        if "cookies" not in value:
            raise InvalidSession('The document has no "cookies"')
        records.count_unknown(value, _DOCUMENT_MEMBERS, losses, "document")
        value = value["cookies"]
    return SessionState(tuple(read_cookies(value, losses, url)))


def read_cookies(values: Any, losses: Losses, url: str | None) -> Iterator[Cookie]:
    """Yield the cookies of an array."""
    host = None if url is None else parse_url(url).host
    for cookie in records.read_each(
        records.array(values, "cookies"), "cookies", lambda one: _read(one, losses, host)
    ):
        if cookie is not None:
            yield cookie


def write_members(cookie: Cookie) -> dict[str, Any]:
    """Return the members that the records of all browsers' tools have."""
    written: dict[str, Any] = {
        "name": cookie.name,
        "value": cookie.value,
        "domain": cookie.domain,
        "path": cookie.path,
        "secure": cookie.secure,
        "httpOnly": cookie.http_only,
    }
    if cookie.same_site is not None:
        written["sameSite"] = cookie.same_site
    return written


def _read(record: Mapping[str, Any], losses: Losses, page_host: str | None) -> Cookie | None:
    """Return the cookie of a record; None if it is left out."""
    host, host_only = _host(record, page_host)
    if _has_own_partition(record):
        losses.add("cookie", _OPAQUE)
        return None
    _count_losses(record, losses)
    return Cookie(
        name=records.text(record, "name"),
        value=records.text(record, "value"),
        host=host,
        host_only=host_only,
        path=records.text(record, "path", "/") or "/",
        expires=_expires(record),
        secure=records.flag(record, "secure"),
        http_only=records.flag(record, "httpOnly") or records.flag(record, "http_only"),
        same_site=records.same_site(record.get("sameSite"), losses),
        partition_key=_partition_key(record, host),
    )


def _host(record: Mapping[str, Any], page_host: str | None) -> tuple[str, bool]:
    """Return the host, and True if the cookie is for this host only."""
    domain = records.text(record, "domain", "")
    if record.get("host") is not None:  # Selenium and Scrapy take another domain, or none
        host, _ = split_domain(records.text(record, "host"))
        return host, not domain.startswith(".")
    if not domain:
        return _host_of_url(record, page_host), True
    host, without_dot = split_domain(domain)
    return host, records.flag(record, "hostOnly", without_dot)


def _host_of_url(record: Mapping[str, Any], page_host: str | None) -> str:
    url = records.text(record, "url", "")
    if url:
        return parse_url(url).host
    if page_host is None:
        raise InvalidSession('"domain" is missing: add it, or the parameter url with the page')
    return page_host


def _expires(record: Mapping[str, Any]) -> int | None:
    if records.flag(record, "session"):
        return None
    name = next((one for one in _EXPIRY_MEMBERS if record.get(one) is not None), "expires")
    return records.expires(record, name)


def _has_own_partition(record: Mapping[str, Any]) -> bool:
    """Return True for the partition of an extension, or of a page without an address."""
    site = _partition_site(record)
    is_opaque = records.flag(record, "partitionKeyOpaque")
    return is_opaque or ("://" in site and not site.lower().startswith(_WEB_SCHEMES))


def _partition_key(record: Mapping[str, Any], host: str) -> PartitionKey | None:
    value, site = record.get("partitionKey"), _partition_site(record)
    if not site:
        return None
    holder, member = (
        (value, "hasCrossSiteAncestor")
        if isinstance(value, dict)
        else (record, "_crHasCrossSiteAncestor")
    )
    with records.at('"partitionKey"'):
        origin = checked_origin(site)
        scheme = origin.partition("://")[0]
        site = f"{scheme}://{host_of_origin(origin)}"  # a site has no port
        return PartitionKey(site, records.flag(holder, member, not _is_of_site(host, site)))


def _partition_site(record: Mapping[str, Any]) -> str:
    """Return the site of a partition, which is a text in Playwright and an object elsewhere."""
    value = record.get("partitionKey")
    if value is None or isinstance(value, str):
        return value or ""
    with records.at('"partitionKey"'):
        key = records.members(value)
        return records.text(key, "topLevelSite", "") or records.text(key, "sourceOrigin", "")


def _is_of_site(host: str, site: str) -> bool:
    return f".{host}".endswith(f".{host_of_origin(site)}")


def _count_losses(record: Mapping[str, Any], losses: Losses) -> None:
    records.count_unknown(record, _KNOWN, losses)
    if record.get("priority", "Medium") not in ("Medium", None):
        losses.add("priority", records.LOST_PRIORITY)
    if record.get("firstPartyDomain"):
        losses.add("partition_key", _FIRST_PARTY)
