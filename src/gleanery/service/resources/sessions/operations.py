"""The operations of sessions, cookies, local storage and leases, with their examples."""

from __future__ import annotations

from typing import Any

from gleanery.service.api.examples import DELETED, SCRAPE_DATE
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.foundation.models import Deleted, WriteCounts
from gleanery.service.resources.sessions import console, handlers
from gleanery.service.resources.sessions.models import (
    AcquiredLease,
    ChangedLease,
    CookieDeletion,
    CookieOut,
    DomainQuery,
    ImportResult,
    LeaseChange,
    LeaseIn,
    LeaseOut,
    LocalStorageDeletion,
    LocalStorageOut,
    LocalStorageQuery,
    SessionDeletion,
    SessionExport,
    SessionImport,
    SessionOut,
    SessionsQuery,
)
from gleanery.service.resources.sessions.state_models import CheckedCookie, CheckedEntry

_LEASE_SCOPES = ("session:read", "session:write")
_LEASE_HEADERS = {"ETag": "Version of the session; `If-Match` takes it."}
_SESSION_HEADERS = {
    "Gleanery-Losses": "JSON array of sentences: what the format cannot carry.",
    "Content-Disposition": "Name of the file, as the tool calls it.",
}
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
    "acquire_date": SCRAPE_DATE,
    "expires": "2026-03-02T09:05:00Z",
    "seconds": 300,
}
_ONE_UPDATED = {"created": 0, "updated": 1, "unchanged": 0, "deleted": 0}
_ONE_UNCHANGED = {"created": 0, "updated": 0, "unchanged": 1, "deleted": 0}

_OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/cookies",
        handler=handlers.set_cookies,
        title="Set cookies",
        description="Stores an array of cookies for the organization's scrapers, completely or not "
        "at all. A cookie with the domain, path and name of a stored one replaces it.",
        accepts_if_match=True,
        scopes=("session:write",),
        body=list[CheckedCookie],
        response=WriteCounts,
        example=Example(body=[_COOKIE], response={"created": 1, "updated": 0, "unchanged": 0}),
    ),
    Operation(
        method="GET",
        path="/v1/cookies",
        handler=handlers.get_cookies,
        title="Get cookies",
        description="Lists the organization's cookies in the order of their creation, including "
        "expired ones. A list is limited in bytes: if it is not complete, the `Link` header has "
        "the URL of the next page.",
        scopes=("session:read",),
        has_etag=True,
        query=DomainQuery,
        response=list[CookieOut],
        example=Example(
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
    ),
    Operation(
        method="DELETE",
        path="/v1/cookies",
        handler=handlers.delete_cookies,
        title="Delete cookies",
        description="Deletes all cookies of a domain, or only those with a given name.",
        accepts_if_match=True,
        scopes=("session:write",),
        query=CookieDeletion,
        response=Deleted,
        example=Example(query={"domain": ".shop.example.com", "name": "session"}, response=DELETED),
    ),
    Operation(
        method="POST",
        path="/v1/local-storage",
        handler=handlers.set_local_storage,
        title="Set local storage",
        description="Stores an array of local-storage entries for the organization's scrapers, "
        "completely or not at all. An entry with the domain, path and key of a stored one replaces "
        "it.",
        accepts_if_match=True,
        scopes=("session:write",),
        body=list[CheckedEntry],
        response=WriteCounts,
        extra_errors=(404,),  # an entry may name an unknown group
        example=Example(body=[_ENTRY], response={"created": 1, "updated": 0, "unchanged": 0}),
    ),
    Operation(
        method="GET",
        path="/v1/local-storage",
        handler=handlers.get_local_storage,
        title="Get local storage",
        description="Lists the organization's local-storage entries in the order of their "
        "creation, including expired ones. A list is limited in bytes: if it is not complete, the "
        "`Link` header has the URL of the next page.",
        scopes=("session:read",),
        has_etag=True,
        query=LocalStorageQuery,
        response=list[LocalStorageOut],
        example=Example(
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
                    "create_date": SCRAPE_DATE,
                    "update_date": SCRAPE_DATE,
                }
            ],
        ),
    ),
    Operation(
        method="DELETE",
        path="/v1/local-storage",
        handler=handlers.delete_local_storage,
        title="Delete local storage",
        description="Deletes all entries of a domain, or only those with a given key.",
        accepts_if_match=True,
        scopes=("session:write",),
        query=LocalStorageDeletion,
        response=Deleted,
        example=Example(query={"domain": "shop.example.com", "key": "currency"}, response=DELETED),
    ),
    Operation(
        method="POST",
        path="/v1/sessions/leases",
        handler=handlers.acquire_lease,
        title="Acquire a lease",
        description="Gives one holder the session of a domain and profile for a time: its cookies "
        "and local storage, without expired ones. A leading dot of the domain includes its "
        "subdomains. While another lease of the host, of a parent or "
        "of a child host exists, the response is 409 with `Retry-After`. Other profiles are "
        "independent. A holder counts `seconds` from the moment at which it sent the request, and "
        "stops using the session after them. A lease does not stop the routes without a lease.",
        scopes=_LEASE_SCOPES,
        body=LeaseIn,
        response=AcquiredLease,
        response_headers=_LEASE_HEADERS,
        extra_errors=(409,),
        example=Example(
            body={
                "domain": "shop.example.com",
                "profile": "second-account",
                "seconds": 300,
                "holder": "worker-3",
            },
            response=_LEASE | {"state": _STORAGE_STATE, "losses": []},
        ),
    ),
    Operation(
        method="GET",
        path="/v1/sessions/leases",
        handler=handlers.list_leases,
        title="Get leases",
        description="The organization's current leases, oldest first, without values. At most 1000 "
        "exist at a time.",
        scopes=("session:read",),
        response=list[LeaseOut],
        example=Example(response=[_LEASE | {"seconds": 287}]),
    ),
    Operation(
        method="PUT",
        path="/v1/sessions/leases/{lease_id}",
        handler=handlers.renew_lease,
        title="Renew or return a lease",
        description="Stores changes of the session, and renews or returns its lease, all or "
        "nothing. A lease that has expired or was returned gets 404, and then nothing is stored. "
        "So a holder that is late cannot overwrite the changes of the next one. `If-Match` also "
        "protects the changes of clients without a lease.",
        scopes=_LEASE_SCOPES,
        body=LeaseChange,
        response=ChangedLease,
        response_headers=_LEASE_HEADERS,
        accepts_if_match=True,
        example=Example(
            path={"lease_id": _LEASE_ID},
            body={"state": _NEW_STORAGE_STATE, "seconds": 300},
            response=_LEASE
            | {"cookies": _ONE_UPDATED, "local_storage": _ONE_UNCHANGED, "losses": []},
        ),
    ),
    Operation(
        method="DELETE",
        path="/v1/sessions/leases/{lease_id}",
        handler=handlers.release_lease,
        title="Return a lease",
        description="Returns a lease without changes. Any token of the organization with the "
        "scopes can return it, so that an operator can end the lease of a worker that failed.",
        scopes=_LEASE_SCOPES,
        response=Deleted,
        example=Example(path={"lease_id": _LEASE_ID}, response=DELETED),
    ),
    Operation(
        method="GET",
        path="/v1/sessions",
        handler=handlers.list_sessions,
        title="List sessions",
        description="One object for each host and profile with cookies or local storage: how many "
        "records there are, how many have expired or expire within a day, and the last change. The "
        "response contains no names and no values. If it is not complete, the `Link` header has "
        "the URL of the next page.",
        scopes=("session:read",),
        query=SessionsQuery,
        response=list[SessionOut],
        example=Example(
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
    ),
    Operation(
        method="DELETE",
        path="/v1/sessions",
        handler=handlers.delete_session,
        title="Delete a session",
        description="Deletes the cookies and the local storage of exactly this host and profile, "
        "with and without a leading dot of the domain. Records of subdomains stay. Leases whose "
        "holders may have these records end, so that a late holder cannot store them again.",
        accepts_if_match=True,
        scopes=("session:write",),
        query=SessionDeletion,
        response=Deleted,
        example=Example(
            query={"domain": "shop.example.com", "profile": "second-account"},
            response={"deleted": 2},
        ),
    ),
    Operation(
        method="GET",
        path="/v1/sessions/export",
        handler=handlers.export_session,
        title="Export session state",
        description="Cookies and local storage in the format of a browser or tool, for example "
        "Playwright's storage state. Expired records are left out. With `url`, the response has "
        "only what a page at this URL sees. What the format cannot carry is left out. The header "
        "`Gleanery-Losses` says so, counts expired records, and says if no record matches. An "
        "entry without an origin gets that of `url`, or else `https` and its host. An export is "
        "limited in bytes: if the state is larger, the response is 422. The export is in the audit "
        "log.",
        scopes=("session:read",),
        has_etag=True,
        query=SessionExport,
        response=Any,
        may_be_text=True,
        response_headers=_SESSION_HEADERS,
        extra_errors=(404,),  # the query may name an unknown group
        example=Example(
            query={
                "format": "playwright",
                "url": "https://shop.example.com/cart",
                "profile": "second-account",
            },
            response=_STORAGE_STATE,
        ),
    ),
    Operation(
        method="POST",
        path="/v1/sessions/import",
        handler=handlers.import_session,
        title="Import session state",
        description="Stores the cookies and the local storage of a document, completely or not at "
        "all. The document can have any of the formats and any `Content-Type`. A record with the "
        "identity of a stored one replaces it. A stored cookie keeps the flags and the partition "
        "that the format does not carry and, if its value is the same, the expiry. The cookies of "
        "a request, such as a Cookie header, have no domain and path. Each one means the only "
        "stored cookie of its name that the page gets; otherwise it becomes a cookie of the page's "
        "host. `losses` says what could not be kept. The response contains no values. The import "
        "is in the audit log, and so is a dry run.",
        scopes=("session:write",),
        accepts_if_match=True,
        query=SessionImport,
        body=str,
        response=ImportResult,
        response_headers={"ETag": "Version of all records of the profile; `If-Match` takes it."},
        extra_errors=(404,),  # the query may name an unknown group
        example=Example(
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
    ),
)

_CONSOLE_OPERATIONS = (
    Operation(
        method="GET",
        path="/console/api/session-records",
        handler=console.list_session_records,
        title="Records of a session",
        description="Cookies or local-storage entries of a host and profile, without values.",
        needs_session=True,
        scopes=("session:read",),
        query=console.SessionRecordsQuery,
        response=console.SessionRecords,
    ),
    Operation(
        method="POST",
        path="/console/api/reveal",
        handler=console.reveal_value,
        title="Reveal a value",
        description="The value of one record. The audit log has an entry before the response.",
        needs_session=True,
        scopes=("session:read",),
        body=console.Reveal,
        response=console.RevealedValue,
        extra_errors=(404,),
    ),
)

RESOURCE = Resource(
    tags={
        "sessions": "Session state in the formats of browsers and tools.",
        "cookies": "Cookies for the organization's scrapers.",
        "local-storage": "Local-storage entries for the organization's scrapers.",
    },
    operations=_OPERATIONS,
    console_operations=_CONSOLE_OPERATIONS,
)
