"""Playwright's storage state: cookies, and local storage by origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gleanery.sessions import browser_rules, cookie_records, records
from gleanery.sessions.document import JSON, OPTIONAL_FIELDS, Document, Format
from gleanery.sessions.model import (
    Cookie,
    Losses,
    SessionState,
    StorageEntry,
    checked_origin,
    host_of_origin,
    is_valid_in_browsers,
)

_NAME = "playwright"
_NO_EXPIRY = -1
_INVALID_ORIGIN = "An entry is left out, because browsers reject the host of its origin"
_INDEXED_DB = "IndexedDB is not kept: only cookies and local storage are supported"
_DOCUMENT_MEMBERS = frozenset(("cookies", "origins"))
_ORIGIN_MEMBERS = frozenset(("origin", "localStorage", "indexedDB"))


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    value = document.value
    if not isinstance(value, dict) or "origins" not in value:
        return cookie_records.read_state(document, losses, url)
    records.count_unknown(value, _DOCUMENT_MEMBERS, losses, "document")
    cookies = cookie_records.read_cookies(value.get("cookies", []), losses, url)
    origins = records.read_each(
        records.array(value["origins"], "origins"),
        "origins",
        lambda one: list(_read_origin(one, losses)),
    )
    return SessionState(tuple(cookies), tuple(entry for found in origins for entry in found))


def _read_origin(record: Mapping[str, Any], losses: Losses) -> Iterator[StorageEntry]:
    origin = checked_origin(records.text(record, "origin"))
    databases = records.array(record.get("indexedDB") or [], "indexedDB")
    losses.add("indexed_db", _INDEXED_DB, "database", len(databases))
    records.count_unknown(record, _ORIGIN_MEMBERS, losses)
    entries = records.array(record.get("localStorage") or [], "localStorage")
    return records.read_each(entries, "localStorage", lambda one: _read_entry(origin, one))


def _read_entry(origin: str, record: Mapping[str, Any]) -> StorageEntry:
    return StorageEntry(origin, records.text(record, "name"), records.text(record, "value"))


def _write(state: SessionState, losses: Losses, url: str | None) -> dict[str, Any]:
    origins: dict[str, list[dict[str, str]]] = {}
    for entry in state.local_storage:
        if not is_valid_in_browsers(host_of_origin(entry.origin)):
            losses.add("local_storage", _INVALID_ORIGIN, "entry")
            continue
        origins.setdefault(entry.origin, []).append({"name": entry.key, "value": entry.value})
    accepted = browser_rules.accepted(state.cookies, losses)
    return {
        "cookies": [_write_cookie(cookie) for cookie in accepted],
        "origins": [{"origin": origin, "localStorage": found} for origin, found in origins.items()],
    }


def _write_cookie(cookie: Cookie) -> dict[str, Any]:
    written = cookie_records.write_members(cookie)
    written["expires"] = _NO_EXPIRY if cookie.expires is None else cookie.expires
    if cookie.partition_key is not None:
        written["partitionKey"] = cookie.partition_key.top_level_site
        written["_crHasCrossSiteAncestor"] = cookie.partition_key.has_cross_site_ancestor
    return written


FORMAT = Format(
    name=_NAME,
    title="Playwright's storage state",
    description="Playwright: `context.storage_state()`",
    other_names=("storage_state", "storage-state.json"),
    media_type=JSON,
    file_name="storage_state.json",
    carries=frozenset((*OPTIONAL_FIELDS, "local_storage")),
    detect=cookie_records.detector(_NAME),
    read=_read,
    write=_write,
)
