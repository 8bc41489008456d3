"""Examples of all operations: one request and its response, in the order in which they work.

The examples tell one story: a scraper fills the group ``shop-prices``, a reviewer approves the
outputs, a client reads them, and at the end everything is deleted. A test sends all requests to a
service, one after another, and compares the responses. The keys are the names of handlers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gleanery.security import tokens
from gleanery.version import __version__

SERVICE_URL = "https://gleanery.example.com"
"""Address in the examples. It is not that of a real service, where these links would get 404."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """Request and response of one operation."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """JSON value; a string for other media types."""
    response: Any = None
    """JSON value; a string for other media types."""
    is_excerpt: bool = False
    """True if a real response has more text or members."""


_GROUP_ID = "shop-prices"
_JOB_ID = "example-shop"
_IN_GROUP = {"group_id": _GROUP_ID}
_SCRAPE_DATE = "2026-03-02T09:00:00Z"
_REVIEW_DATE = "2026-03-02T10:30:00Z"
_FIRST_CURSOR = 1772442000000001
_LAST_CURSOR = 1772442000000002
_REVIEW_CURSOR = 1772447400000001
_LAST_PAGE = {"next_url": None, "next_cursor": None}
_DELETED = {"deleted": 1}

# --- files --------------------------------------------------------------------------------------

_FILE_ID = "3f2a9c1e5b7d4860a1c3e5f708192a3b"
_FILE_TEXT = "Coffee, 1 kg: 18.90 EUR\n"
_FILE_SOURCE = {"source_url": "https://shop.example.com/coffee.txt", "etag": '"v1"'}
_STORED_FILE = {
    "id": _FILE_ID,
    "blob_key": "1/8c/8c41d7e2f09b4a6e93d5b7c1a2e4f608",
    "file_checksum": "c28c5be29bb1642de58e85db432e907cdd164e10ecd558c62dcb2a383ffecc19",
    "file_type": "text/plain",
    "url_etag_hash": "0848913d7830416a6fa0fabcad3d1adadf1f97391b1c128e835706369f885b91",
    "size": len(_FILE_TEXT),
}
_LINK_PARAMETERS = {
    "organization": "1",
    "expires": "1772442900",
    "signature": "b1946ac92492d2347c6235b4d2611184",
}
_FILE_OUT = {
    "id": _FILE_ID,
    "field": "leaflet",
    "url_etag_hash": _STORED_FILE["url_etag_hash"],
    "blob_key": _STORED_FILE["blob_key"],
    "blob_url": f"{SERVICE_URL}/v1/blobs/{_FILE_ID}?"
    + "&".join(f"{name}={value}" for name, value in _LINK_PARAMETERS.items()),
    "source_url": _FILE_SOURCE["source_url"],
    "create_date": _SCRAPE_DATE,
    "file_url": f"{SERVICE_URL}/v1/files/{_FILE_ID}",
    "file_type": "text/plain",
    "file_checksum": _STORED_FILE["file_checksum"],
    "file_metadata": {"size": len(_FILE_TEXT), "filename": "coffee.txt"},
}

# --- outputs ------------------------------------------------------------------------------------

_COFFEE = {"sku": "1001", "name": "Coffee, 1 kg", "price": 18.9, "currency": "EUR"}
_TEA = {"sku": "1002", "name": "Tea, 500 g", "price": 7.5, "currency": "EUR"}
_TAGS = {"country": "DE", "region": "DE-BE"}
_COFFEE_IN = {
    "job_id": _JOB_ID,
    "source_url": "https://shop.example.com/products/1001",
    "data": _COFFEE,
    "tags": _TAGS,
    "files": [{"field": "leaflet", "id": _FILE_ID}],
}
_TEA_IN = {
    "job_id": _JOB_ID,
    "source_url": "https://shop.example.com/products/1002",
    "data": _TEA,
    "tags": _TAGS,
}
_COFFEE_OUT = {
    "source_url": _COFFEE_IN["source_url"],
    "data": _COFFEE,
    "id": 1041,
    "output_id": "0ef49a6bdba3560fea9254a12f02482a",
    "root_job_id": _JOB_ID,
    "create_date": _SCRAPE_DATE,
    "update_date": _SCRAPE_DATE,
    "last_scraped_date": _SCRAPE_DATE,
    "key_hash": "3e9af56092fe5b00872628085d9d294a9c6bfdd991f1938e252cb507fb7b0822",
    "value_hash": "070caf99c7158abbb4a410069624e8a764f2d0579228a2b5f5e77e4118e2069e",
    "is_approved": False,
    "tags": _TAGS,
    "files": [_FILE_OUT],
}
_TEA_OUT = {
    "source_url": _TEA_IN["source_url"],
    "data": _TEA,
    "id": 1042,
    "output_id": "88d50cb16e92138c6b1131207933625d",
    "root_job_id": _JOB_ID,
    "create_date": _SCRAPE_DATE,
    "update_date": _SCRAPE_DATE,
    "last_scraped_date": _SCRAPE_DATE,
    "key_hash": "d09f110a45ad66558e98ef2bfda210a5e4faf17557d1040277c73aee86213314",
    "value_hash": "fe02b2197d41ef41f519867248a33c64a9341dafe961bd5982ae07bce46f399f",
    "is_approved": False,
    "tags": _TAGS,
    "files": [],
}

# --- reviews and groups -------------------------------------------------------------------------

_REVIEW = {
    "job_id": _JOB_ID,
    "review_id": "621a05235d234ebd8ec35496eb857550",
    "review_date": _REVIEW_DATE,
    "status": "approved",
    "comment": "The prices match the site.",
}
_GROUP_SETTINGS = {
    "display_name": "Shop prices",
    "key_fields": ["sku"],
    "retain_days": 90,
    "keep_versions": 50,
}
_FINDING = {"output_id": _TEA_OUT["output_id"], "path": "price", "note": "Only until Sunday."}
_NEW_GROUP = {
    "group_id": _GROUP_ID,
    "id": 7,
    "display_name": "Shop prices",
    "outputs": 0,
    "last_change": None,
    "cursor": 0,
    "key_fields": ["sku"],
    "schema": None,
    "retain_days": 90,
    "keep_versions": 50,
    "keep_days": 90,
    "countries": {},
    "has_more_countries": False,
    "jobs": [],
    "metadata": _LAST_PAGE,
}
_GROUP = _NEW_GROUP | {
    "outputs": 2,
    "last_change": _REVIEW_DATE,
    "cursor": _REVIEW_CURSOR,
    "countries": {"DE": 2},
    "jobs": [{"job_id": _JOB_ID, "outputs": 2, "approved": 2, "latest_review": _REVIEW}],
}

_FIELD_COUNTS: list[dict[str, Any]] = [
    {"path": "currency", "filled": 2, "fill_rate": 1.0, "kinds": {"string": 2}},
    {"path": "name", "filled": 2, "fill_rate": 1.0, "kinds": {"string": 2}},
    {"path": "price", "filled": 2, "fill_rate": 1.0, "kinds": {"number": 2}},
    {"path": "sku", "filled": 2, "fill_rate": 1.0, "kinds": {"string": 2}},
]
_RANGES: list[dict[str, Any]] = [
    {"range": None, "length": {"min": 3, "median": 3, "max": 3}},
    {"range": None, "length": {"min": 10, "median": 11, "max": 12}},
    {"range": {"min": 7.5, "max": 18.9}, "length": None},
    {"range": None, "length": {"min": 4, "median": 4, "max": 4}},
]
_TEXT_SCHEMA = {"type": "string", "minLength": 1}
_FIELDS = {
    "group_id": _GROUP_ID,
    "job_id": _JOB_ID,
    "outputs": 2,
    "counted_outputs": 2,
    "fields": [counts | ranges for counts, ranges in zip(_FIELD_COUNTS, _RANGES, strict=True)],
    "scrapes": [
        {
            "job_id": _JOB_ID,
            "started": _SCRAPE_DATE,
            "last_seen": _SCRAPE_DATE,
            "outputs": 2,
            "fields": _FIELD_COUNTS,
        }
    ],
    "drift": [],
    "schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "currency": _TEXT_SCHEMA,
            "name": _TEXT_SCHEMA,
            "price": {"type": "number"},
            "sku": _TEXT_SCHEMA,
        },
        "required": ["currency", "name", "price", "sku"],
    },
}

# --- exports ------------------------------------------------------------------------------------

_APPROVED = {"is_approved": True, "update_date": _REVIEW_DATE}
_EXPORT = "".join(json.dumps(output | _APPROVED) + "\n" for output in (_COFFEE_OUT, _TEA_OUT))
_EXPORT_PARAMETERS = {
    "job_id": _JOB_ID,
    "organization": "1",
    "token": "5",
    "expires": "1772452800",
    "signature": "5f2b8c0d9e1a7f364b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2",
}

# --- cookies and local storage ------------------------------------------------------------------

_COOKIE = {
    "domain": ".shop.example.com",
    "name": "session",
    "value": "3f9a1c",
    "secure": True,
    "http_only": True,
    "expires": "2030-01-01T00:00:00Z",
    "path": "/",
}
_ENTRY = {
    "domain": "shop.example.com",
    "key": "currency",
    "value": "EUR",
    "path": "/",
    "expires": "2030-01-01T00:00:00Z",
}
_STORED_COOKIE = {
    "name": "session",
    "value": "8d21e7",
    "domain": ".shop.example.com",
    "path": "/",
    "expires": 1893456000,
    "httpOnly": True,
    "secure": True,
    "sameSite": "Lax",
}
_STORAGE_STATE = {
    "cookies": [_STORED_COOKIE],
    "origins": [
        {
            "origin": "https://shop.example.com",
            "localStorage": [{"name": "currency", "value": "EUR"}],
        }
    ],
}

_NEW_STORAGE_STATE = _STORAGE_STATE | {"cookies": [_STORED_COOKIE | {"value": "b40c52"}]}
_LEASE_ID = "9c1f4be2a7d84d0f8a53c6b0e1d27f34"
_LEASE = {
    "id": _LEASE_ID,
    "domain": "shop.example.com",
    "profile": "second-account",
    "holder": "worker-3",
    "token_id": 5,
    "acquire_date": _SCRAPE_DATE,
    "expires": "2026-03-02T09:05:00Z",
    "seconds": 300,
}
_ONE_UPDATED = {"created": 0, "updated": 1, "unchanged": 0, "deleted": 0}
_ONE_UNCHANGED = {"created": 0, "updated": 0, "unchanged": 1, "deleted": 0}

# --- the story ----------------------------------------------------------------------------------

EXAMPLES: dict[str, Example] = {
    "set_group": Example(path=_IN_GROUP, body=_GROUP_SETTINGS, response=_NEW_GROUP),
    "store_file": Example(
        query={**_FILE_SOURCE, "filename": "coffee.txt"}, body=_FILE_TEXT, response=_STORED_FILE
    ),
    "find_file": Example(query=_FILE_SOURCE, response=_STORED_FILE),
    "store_ndjson": Example(
        path=_IN_GROUP,
        body=json.dumps(_COFFEE_IN) + "\n",
        response={"created": 1, "updated": 0, "unchanged": 0, "lines": 1},
    ),
    "store_outputs": Example(
        path=_IN_GROUP,
        headers={"Idempotency-Key": "shop-prices-2026-03-02"},
        body=[_TEA_IN],  # without a file, so that it works without the examples before
        response={
            "created": 1,
            "updated": 0,
            "unchanged": 0,
            "results": [
                {"id": _TEA_OUT["id"], "output_id": _TEA_OUT["output_id"], "change": "created"}
            ],
        },
    ),
    "get_outputs": Example(
        path=_IN_GROUP,
        query={"job_id": _JOB_ID, "limit": 1},
        response={
            "metadata": {
                "next_url": f"{SERVICE_URL}/v1/outputs/{_GROUP_ID}?job_id={_JOB_ID}&limit=1"
                f"&cursor={_FIRST_CURSOR}",
                "next_cursor": _FIRST_CURSOR,
            },
            "items": [_COFFEE_OUT],
        },
    ),
    "get_output": Example(
        path={**_IN_GROUP, "output_id": str(_TEA_OUT["output_id"])}, response=_TEA_OUT
    ),
    "get_history": Example(
        path={**_IN_GROUP, "output_id": str(_TEA_OUT["output_id"])},
        query={"limit": 20},
        response={
            "metadata": _LAST_PAGE,
            "versions": [
                {
                    "change": "create",
                    "cursor": _LAST_CURSOR,
                    "version_date": _SCRAPE_DATE,
                    "replaced_date": None,
                    "key_hash": _TEA_OUT["key_hash"],
                    "value_hash": _TEA_OUT["value_hash"],
                    "is_approved": False,
                    "fields": [],
                }
            ],
        },
    ),
    "get_changes": Example(
        path=_IN_GROUP,
        query={"cursor": _FIRST_CURSOR, "limit": 100},
        response={
            "metadata": _LAST_PAGE,
            "cursor": _LAST_CURSOR,
            "changes": [
                {
                    "change": "create",
                    "cursor": _LAST_CURSOR,
                    "change_date": _SCRAPE_DATE,
                    "group_id": _GROUP_ID,
                    "output_id": _TEA_OUT["output_id"],
                    "output": _TEA_OUT,
                }
            ],
        },
    ),
    "get_file": Example(path={"id": _FILE_ID}, response=_FILE_TEXT),
    "get_blob": Example(path={"id": _FILE_ID}, query=_LINK_PARAMETERS, response=_FILE_TEXT),
    "get_review_sample": Example(
        path=_IN_GROUP,
        query={"job_id": _JOB_ID, "seed": "march"},
        response={
            "seed": "march",
            "job_id": _JOB_ID,
            "cursor": _LAST_CURSOR,
            "outputs": 2,
            "sample": [
                {
                    "reason": "random",
                    "detail": None,
                    "output": output,
                    "approved_output": None,
                    "fields": None,
                }
                for output in (_TEA_OUT, _COFFEE_OUT)
            ],
        },
    ),
    "add_review": Example(
        path=_IN_GROUP,
        body={
            "job_id": _JOB_ID,
            "status": "approved",
            "comment": _REVIEW["comment"],
            "as_of": _LAST_CURSOR,
            "findings": [_FINDING],
        },
        response=_REVIEW,
    ),
    "get_latest_reviews": Example(path=_IN_GROUP, response=[_REVIEW]),
    "get_review": Example(
        path={**_IN_GROUP, "review_id": _REVIEW["review_id"]},
        response=_REVIEW
        | {
            "person": None,
            "as_of": _LAST_CURSOR,
            "output_ids": None,
            "skipped_output_ids": None,
            "findings": [_FINDING],
        },
    ),
    "get_groups": Example(query={"limit": 100}, response=[_GROUP]),
    "get_group": Example(path=_IN_GROUP, response=_GROUP),
    "get_fields": Example(path=_IN_GROUP, query={"job_id": _JOB_ID}, response=_FIELDS),
    "export_outputs": Example(
        path=_IN_GROUP, query={"job_id": _JOB_ID, "approved": "true"}, response=_EXPORT
    ),
    "create_export_link": Example(
        path=_IN_GROUP,
        query={"job_id": _JOB_ID, "valid_seconds": 3600},
        response={
            "url": f"{SERVICE_URL}/v1/exports/{_GROUP_ID}/outputs.jsonl?"
            + "&".join(f"{name}={value}" for name, value in _EXPORT_PARAMETERS.items()),
            "expires": "2026-03-02T12:00:00Z",
        },
    ),
    "get_signed_export": Example(
        path=_IN_GROUP | {"file_name": "outputs.jsonl"}, query=_EXPORT_PARAMETERS, response=_EXPORT
    ),
    "set_cookies": Example(body=[_COOKIE], response={"created": 1, "updated": 0, "unchanged": 0}),
    "get_cookies": Example(
        query={"domain": "shop.example.com"},
        response=[
            {
                "name": "session",
                "value": "3f9a1c",
                "url": "https://shop.example.com/",
                "domain": ".shop.example.com",
                "path": "/",
                "expires": 1893456000,
                "http_only": True,
                "secure": True,
            }
        ],
    ),
    "import_session": Example(
        query={"profile": "second-account"},
        body=_STORAGE_STATE,
        response={
            "format": "playwright",
            "profile": "second-account",
            "dry_run": False,
            "cookies": {"created": 1, "updated": 0, "unchanged": 0, "deleted": 0},
            "local_storage": {"created": 1, "updated": 0, "unchanged": 0, "deleted": 0},
            "losses": [],
        },
    ),
    "list_sessions": Example(
        query={"profile": "second-account", "limit": 100},
        response=[
            {
                "domain": "shop.example.com",
                "profile": "second-account",
                "cookies": 1,
                "local_storage": 1,
                "expired": 0,
                "expiring": 0,
                "first_expiry": "2030-01-01T00:00:00Z",
                "last_change": "2026-03-02T10:30:00Z",
            }
        ],
    ),
    "export_session": Example(
        query={
            "format": "playwright",
            "url": "https://shop.example.com/cart",
            "profile": "second-account",
        },
        response=_STORAGE_STATE,
    ),
    "acquire_lease": Example(
        body={
            "domain": "shop.example.com",
            "profile": "second-account",
            "seconds": 300,
            "holder": "worker-3",
        },
        response=_LEASE | {"state": _STORAGE_STATE, "losses": []},
    ),
    "list_leases": Example(response=[_LEASE | {"seconds": 287}]),
    "renew_lease": Example(
        path={"lease_id": _LEASE_ID},
        body={"state": _NEW_STORAGE_STATE, "seconds": 300},
        response=_LEASE | {"cookies": _ONE_UPDATED, "local_storage": _ONE_UNCHANGED, "losses": []},
    ),
    "release_lease": Example(path={"lease_id": _LEASE_ID}, response=_DELETED),
    "delete_cookies": Example(
        query={"domain": ".shop.example.com", "name": "session"}, response=_DELETED
    ),
    "delete_session": Example(
        query={"domain": "shop.example.com", "profile": "second-account"},
        response={"deleted": 2},
    ),
    "set_local_storage": Example(
        body=[_ENTRY], response={"created": 1, "updated": 0, "unchanged": 0}
    ),
    "get_local_storage": Example(
        query={"domain": "shop.example.com"},
        response=[
            {
                "organization_id": 1,
                "domain": "shop.example.com",
                "key": "currency",
                "value": "EUR",
                "expires": "2030-01-01T00:00:00Z",
                "id": 23,
                "group_id": 0,
                "path": "/",
                "create_date": _SCRAPE_DATE,
                "update_date": _SCRAPE_DATE,
            }
        ],
    ),
    "delete_local_storage": Example(
        query={"domain": "shop.example.com", "key": "currency"}, response=_DELETED
    ),
    "get_audit": Example(
        query={"limit": 3},
        response={
            "cursor": 1772447400104601,
            "entries": [
                {
                    "id": 1772438400922067,
                    "date": "2026-03-02T08:00:00Z",
                    "token_id": None,
                    "request_id": None,
                    "action": "create_token",
                    "about": {"token_id": 5, "scopes": sorted(tokens.SCOPES)},
                },
                {
                    "id": 1772440200310442,
                    "date": "2026-03-02T08:30:00Z",
                    "token_id": 5,
                    "request_id": "0c44a1d87be25f90e6a1",
                    "action": "set_group",
                    "about": {"group_id": _GROUP_ID, "settings": list(_GROUP_SETTINGS)},
                },
                {
                    "id": 1772447400104601,
                    "date": _REVIEW_DATE,
                    "token_id": 5,
                    "request_id": "137b19b763d239e45e9c",
                    "action": "add_review",
                    "about": {
                        "group_id": _GROUP_ID,
                        "job_id": _JOB_ID,
                        "review_id": _REVIEW["review_id"],
                        "status": "approved",
                    },
                },
            ],
        },
    ),
    "delete_output": Example(
        path={**_IN_GROUP, "output_id": str(_TEA_OUT["output_id"])}, response=_DELETED
    ),
    "delete_job": Example(path={**_IN_GROUP, "job_id": _JOB_ID}, response=_DELETED),
    "delete_group": Example(path=_IN_GROUP, response={"deleted": 0}),
    "healthz": Example(response={"status": "ok"}),
    "readyz": Example(response={"status": "ready"}),
    "metrics": Example(
        response="# HELP gleanery_info Always 1; the label is the version of the program.\n"
        "# TYPE gleanery_info gauge\n"
        f'gleanery_info{{version="{__version__}"}} 1.0\n',
        is_excerpt=True,
    ),
    "openapi": Example(
        response={"openapi": "3.1.0", "info": {"title": "Gleanery", "version": __version__}},
        is_excerpt=True,
    ),
    "docs": Example(response="<!doctype html>\n", is_excerpt=True),
}
