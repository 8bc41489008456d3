"""Playwright's storage state: cookies, and local storage by origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gleanery.client.sessions import records
from gleanery.client.sessions.document import Document
from gleanery.client.sessions.format import JSON, Format
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import (
    Cookie,
    SessionState,
    StorageEntry,
    normalize_origin,
    split_domain,
)

_NO_EXPIRY = -1
_INDEXED_DB = "IndexedDB is not kept: only cookies and local storage are supported"


def _detect(document: Document) -> bool:
    value = document.value
    return isinstance(value, dict) and "cookies" in value and "origins" in value


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    value = records.members(document.value)
    cookies = records.array(value.get("cookies", []), "cookies")
    origins = records.array(value.get("origins", []), "origins")
    return SessionState(
        tuple(_read_cookies(cookies, losses)), tuple(_read_origins(origins, losses))
    )


def _read_cookies(cookies: list[Any], losses: Losses) -> Iterator[Cookie]:
    for index, value in enumerate(cookies):
        with records.at(f"cookies[{index}]"):
            record = records.members(value)
            host, host_only = split_domain(records.text(record, "domain"))
            yield Cookie(
                name=records.text(record, "name"),
                value=records.text(record, "value"),
                host=host,
                host_only=host_only,
                path=records.text(record, "path", "/") or "/",
                expires=records.expires(record, "expires"),
                secure=records.flag(record, "secure"),
                http_only=records.flag(record, "httpOnly"),
                same_site=records.same_site(record.get("sameSite"), losses),
            )


def _read_origins(origins: list[Any], losses: Losses) -> Iterator[StorageEntry]:
    for index, value in enumerate(origins):
        with records.at(f"origins[{index}]"):
            record = records.members(value)
            origin = normalize_origin(records.text(record, "origin"))
            databases = records.array(record.get("indexedDB") or [], "indexedDB")
            losses.add("indexed_db", _INDEXED_DB, "database", len(databases))
            entries = records.array(record.get("localStorage", []), "localStorage")
            for position, entry in enumerate(entries):
                with records.at(f"localStorage[{position}]"):
                    named = records.members(entry)
                    key, text = records.text(named, "name"), records.text(named, "value")
                    yield StorageEntry(origin, key, text)


def _write(state: SessionState, losses: Losses, url: str | None) -> dict[str, Any]:
    origins: dict[str, list[dict[str, str]]] = {}
    for entry in state.local_storage:
        origins.setdefault(entry.origin, []).append({"name": entry.key, "value": entry.value})
    return {
        "cookies": [_write_cookie(cookie) for cookie in state.cookies],
        "origins": [{"origin": origin, "localStorage": found} for origin, found in origins.items()],
    }


def _write_cookie(cookie: Cookie) -> dict[str, Any]:
    written: dict[str, Any] = {
        "name": cookie.name,
        "value": cookie.value,
        "domain": cookie.domain,
        "path": cookie.path,
        "expires": _NO_EXPIRY if cookie.expires is None else cookie.expires,
        "httpOnly": cookie.http_only,
        "secure": cookie.secure,
    }
    if cookie.same_site is not None:
        written["sameSite"] = cookie.same_site
    return written


FORMAT = Format(
    name="playwright",
    title="Playwright's storage state",
    media_type=JSON,
    file_name="storage_state.json",
    carries=frozenset(
        ("host_only", "path", "expires", "secure", "http_only", "same_site", "local_storage")
    ),
    detect=_detect,
    read=_read,
    write=_write,
)
