"""The handlers of sessions: cookies, local storage, the exchange with browsers and tools, leases.

The records of one host and profile are a session.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from gleanery import sessions
from gleanery.common.settings import Settings
from gleanery.service.api import binding
from gleanery.service.api.context import (
    AnyContext,
    RequestContext,
    array_response,
    limits_of,
    next_page,
)
from gleanery.service.api.response import Response
from gleanery.service.foundation.errors import (
    ErrorDetail,
    InvalidRequest,
    NotFound,
    UnsupportedMedia,
)
from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.http import Header
from gleanery.service.http.request import is_not_modified
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.log import ReadAuditor
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions import (
    cookies,
    documents,
    leases,
    local_storage,
    records,
    states,
    summaries,
    writing,
)
from gleanery.service.resources.sessions.documents import (
    NO_REPLACEMENT,
    Destination,
    PreparedState,
    Replacement,
)
from gleanery.service.resources.sessions.kinds import In, Out, RecordKind
from gleanery.service.resources.sessions.leases import Lease
from gleanery.service.resources.sessions.models import (
    AcquiredLease,
    ChangedLease,
    CookieDeletion,
    DomainQuery,
    LeaseChange,
    LeaseIn,
    LocalStorageDeletion,
    LocalStorageQuery,
    SessionDeletion,
    SessionExport,
    SessionImport,
    SessionsQuery,
)
from gleanery.service.resources.sessions.records import ALL_GROUPS, Filter
from gleanery.service.resources.sessions.state_models import Cookie, LocalStorageEntry
from gleanery.service.resources.sessions.states import FoundState, StateFilter
from gleanery.service.storage import group_lock
from gleanery.sessions import FORMATS, InvalidSession, ReadResult, WriteResult, browser_rules
from gleanery.sessions.document import JSON, Format
from gleanery.sessions.model import MissingUrl

_TRUE = "true"
_FORM = b"multipart/form-data"
_NO_FORM = "A form is not understood: send the document itself, in curl with --data-binary @file"
_NO_LINES = (
    "The document has no line breaks, or no cookies: in curl, use --data-binary @file, not -d @file"
)
_NO_RECORD = "No record matches: check domain, url, group_id and profile."


# --- sessions -----------------------------------------------------------------------------------


async def list_sessions(context: RequestContext[SessionsQuery, None]) -> Response:
    query = context.query
    host = None if query.domain is None else query.domain.removeprefix(".")
    page = await summaries.list_sessions(
        context.database,
        summaries.SummaryFilter(host, query.profile),
        query.cursor,
        query.limit,
        context.services.clock(),
    )
    headers: tuple[Header, ...] = ()
    if page.next_cursor is not None:
        parameters = dict(context.next_page_parameters) | {"cursor": page.next_cursor}
        headers = next_page(context, "sessions", query=parameters)
    return Response(encode(page.sessions), headers=headers)


async def delete_session(context: RequestContext[SessionDeletion, None]) -> Response:
    query, now = context.query, context.services.clock()
    host = query.domain.removeprefix(".")
    deleted = await summaries.delete_session(
        context.database, host, query.profile, now, context.actor, context.if_match
    )
    return Response(b'{"deleted":%d}' % deleted)


# --- cookies and local storage ------------------------------------------------------------------


async def set_cookies(context: RequestContext[None, list[Cookie]]) -> Response:
    return await _store_records(context, cookies.COOKIES)


async def get_cookies(context: RequestContext[DomainQuery, None]) -> Response:
    filter_ = Filter(context.query.domain)
    return await _read_records(context, cookies.COOKIES, filter_, "cookies")


async def delete_cookies(context: RequestContext[CookieDeletion, None]) -> Response:
    return await _delete_records(context, cookies.COOKIES, context.query.name)


async def set_local_storage(context: RequestContext[None, list[LocalStorageEntry]]) -> Response:
    return await _store_records(context, local_storage.LOCAL_STORAGE)


async def get_local_storage(context: RequestContext[LocalStorageQuery, None]) -> Response:
    filter_ = Filter(context.query.domain, context.query.for_group)
    return await _read_records(context, local_storage.LOCAL_STORAGE, filter_, "local-storage")


async def delete_local_storage(context: RequestContext[LocalStorageDeletion, None]) -> Response:
    return await _delete_records(context, local_storage.LOCAL_STORAGE, context.query.key)


async def _store_records(context: AnyContext, kind: RecordKind[In, Out]) -> Response:
    services = context.services
    counts = await writing.store(
        kind,
        context.database,
        services.vault,
        context.body,
        services.clock(),
        context.actor,
        context.if_match,
    )
    return Response(encode(counts))


async def _read_records(
    context: AnyContext, kind: RecordKind[In, Out], filter_: Filter, segment: str
) -> Response:
    services, database = context.services, context.database
    scope = filter_.scope(kind.table)
    found = await records.read_etag(database.read, database.organization_id, scope)
    etag = b'"%s"' % found.encode()
    if is_not_modified(context.request.headers, etag):
        return Response(b"", 304, headers=((b"etag", etag),))
    page = await records.read(
        kind,
        database,
        services.vault,
        services[ReadAuditor],
        filter_,
        limits_of(context),
        services.clock(),
        context.actor,
    )
    response = array_response(context, page, segment)
    return response._replace(headers=(*response.headers, (b"etag", etag)))


async def _delete_records(
    context: AnyContext, kind: RecordKind[In, Out], name: str | None
) -> Response:
    domain, now = context.query.domain, context.services.clock()
    deleted = await writing.delete(
        kind, context.database, domain, name, now, context.actor, context.if_match
    )
    return Response(b'{"deleted":%d}' % deleted)


# --- export -------------------------------------------------------------------------------------


class _Export(NamedTuple):
    """A document, and what it cannot carry."""

    body: bytes
    losses: bytes


async def export_session(context: RequestContext[SessionExport, None]) -> Response:
    query, now = context.query, context.services.clock()
    _require_url(query)
    filter_ = await _filter(context)
    etag = await _etag(context, filter_)
    found = await _read_state(context, filter_, now)
    # A record that expires changes the document, but not the version of the records.
    if is_not_modified(context.request.headers, etag) and not found.has_expired:
        return Response(b"", 304, headers=((b"etag", etag),))
    write = partial(_write, found, query, context.services.settings.max_page_bytes)
    written = await context.services.computations.run(context.organization_id, write)
    entry = log.Entry(context.actor, now, "export_session", _about(found, filter_, query))
    await context.services[ReadAuditor].record(context.database, entry)
    return _to_response(written, FORMATS[query.format], etag)


async def _etag(context: RequestContext[SessionExport, None], filter_: StateFilter) -> bytes:
    database = context.database
    version = await records.read_etag(database.read_large, database.organization_id, filter_.scope)
    return b'"%s"' % version.encode()


async def _read_state(
    context: RequestContext[SessionExport, None], filter_: StateFilter, now: int
) -> FoundState:
    services, max_bytes = context.services, context.services.settings.max_page_bytes
    try:
        return await states.read_state(context.database, services.vault, filter_, now, max_bytes)
    except states.StateTooLarge:
        raise _too_large(max_bytes) from None


def _to_response(written: _Export, chosen: Format, etag: bytes) -> Response:
    headers = (
        (b"etag", etag),
        (b"gleanery-losses", written.losses),
        (b"content-disposition", b'attachment; filename="%s"' % chosen.file_name.encode()),
    )
    return Response(written.body, content_type=chosen.media_type.encode(), headers=headers)


def _require_url(query: SessionExport) -> None:
    chosen = FORMATS[query.format]
    if chosen.needs_url and query.url is None:
        msg = f"is missing: {chosen.title} has the cookies of one page"
        raise InvalidRequest(ErrorDetail(("query", "url"), msg, "missing"))


async def _filter(context: RequestContext[SessionExport, None]) -> StateFilter:
    query = context.query
    page = None if query.url is None else browser_rules.parse_url(query.url)
    return StateFilter(query.profile, query.domain, page, await _group_number(context))


async def _group_number(
    context: RequestContext[SessionExport, None] | RequestContext[SessionImport, bytes],
) -> int | None:
    name = context.query.group_id
    return None if name is None else await group_lock.find_number(context.database, name)


def _write(found: FoundState, query: SessionExport, max_bytes: int) -> _Export:
    """Write the document. A thread runs it, because it takes long for a large state."""
    try:
        written = sessions.write(found.state, query.format, query.url)
    except InvalidSession as error:
        raise InvalidRequest(ErrorDetail(("query",), str(error), "session_format")) from None
    content = written.content
    body = content.encode() if isinstance(content, str) else encode(content)
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    losses = [str(loss) for loss in (*found.losses, *written.losses)]
    if not losses and states.is_empty(found.state):
        losses = [_NO_RECORD]
    return _Export(body, json.dumps(losses).encode("ascii"))


def _too_large(max_bytes: int) -> InvalidRequest:
    msg = f"The state has more than {max_bytes} bytes: select a part of it with domain or url"
    return InvalidRequest(ErrorDetail(("query",), msg, "too_large"))


def _about(found: FoundState, filter_: StateFilter, query: SessionExport) -> AuditAbout:
    count = len(found.state.cookies) + len(found.state.local_storage)
    about = AuditAbout(records=count, profile=filter_.profile, format=query.format)
    if filter_.host is not None:
        about["domains"] = [filter_.host]
    if filter_.for_group is not None:
        about["for_group"] = filter_.for_group
    return about


# --- import -------------------------------------------------------------------------------------


async def import_session(context: RequestContext[SessionImport, bytes]) -> Response:
    services, query = context.services, context.query
    if context.request.headers.get(b"content-type", b"").lower().startswith(_FORM):
        raise UnsupportedMedia("content-type", _NO_FORM)
    read = partial(_read, context.body, query, services.settings)
    document = await services.computations.run(context.organization_id, read)
    group_id = await _group_number(context) or ALL_GROUPS
    imported = await documents.import_state(
        context.database,
        services.vault,
        document,
        Destination(query.profile, group_id),
        documents.ImportOptions(query.replace == _TRUE, query.dry_run == _TRUE),
        services.clock(),
        context.actor,
        context.if_match,
    )
    etag = b'"%s"' % imported.etag.encode()
    return Response(encode(imported.result), headers=((b"etag", etag),))


def _read(body: bytes, query: SessionImport, settings: Settings) -> ReadResult:
    """Read the document. A thread runs it, because it takes long for a large document."""
    binding.check_value_count(body, settings.max_json_values)
    if body.startswith(b"#") and b"\n" not in body:
        raise _invalid_document(_NO_LINES)
    try:
        document = sessions.read(_parse_json(body, query.format), query.format, query.url)
    except MissingUrl as error:
        raise InvalidRequest(ErrorDetail(("query", "url"), str(error), "missing")) from None
    except InvalidSession as error:
        raise _invalid_document(str(error)) from None
    if query.replace == _TRUE and states.is_empty(document.state):
        raise _invalid_document(documents.NOTHING_TO_REPLACE_WITH)
    count = len(document.state.cookies) + len(document.state.local_storage)
    if count > settings.max_records:
        msg = f"The document may have at most {settings.max_records} records: send less at a time"
        raise InvalidRequest(ErrorDetail(("body",), msg, "too_long"))
    return document


def _parse_json(body: bytes, format_: str) -> Any:
    """Return the value of a JSON text, and any other body as it is.

    A parser of JSON stops all other requests of the worker. This one is the fastest.
    """
    is_text = format_ in FORMATS and FORMATS[format_].media_type != JSON
    if is_text or not body.lstrip().startswith((b"{", b"[")):
        return body
    try:
        return json_text.decode(body)
    except json_text.InvalidJson:
        return body  # the reader says what is wrong


def _invalid_document(msg: str) -> InvalidRequest:
    return InvalidRequest(ErrorDetail(("body",), msg, "session_format"))


# --- leases: acquisition ------------------------------------------------------------------------


async def acquire_lease(context: RequestContext[None, LeaseIn]) -> Response:
    body, clock = context.body, context.services.clock
    wanted = leases.Wanted(body.domain, body.profile, body.seconds, body.holder, body.format)
    engine, organization_id = context.services.database, context.organization_id
    acquired = await leases.acquire(engine, organization_id, wanted, clock, context.actor)
    try:
        etag = await leases.read_etag(context.database.read_large, organization_id, acquired.lease)
        written, losses = await _read_leased_state(context, acquired.lease)
        content = encode(
            AcquiredLease(**acquired.to_response(), state=written.content, losses=losses)
        )
        context.hold_response(len(content))
    except Exception:  # nobody will know of this lease
        with suppress(NotFound):  # it has expired meanwhile
            await leases.release(context.database, acquired.lease.id, clock, context.actor)
        raise
    return Response(content, headers=_etag_header(etag))


def _etag_header(etag: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"etag", b'"%s"' % etag.encode()),)


async def _read_leased_state(
    context: RequestContext[None, LeaseIn], lease: Lease
) -> tuple[WriteResult, list[str]]:
    """Read the session after the lease is durable: only its holder changes the session now."""
    services, now = context.services, context.services.clock()
    max_bytes = services.settings.max_page_bytes
    filter_ = StateFilter(lease.profile, lease.domain, for_group=ALL_GROUPS)
    try:
        found = await states.read_state(context.database, services.vault, filter_, now, max_bytes)
    except states.StateTooLarge:
        msg = f"The state has more than {max_bytes} bytes: delete what is not needed"
        raise InvalidRequest(ErrorDetail(("body", "domain"), msg, "too_large")) from None
    write = partial(sessions.write, found.state, context.body.format, _url(lease))
    written = await services.computations.run(context.organization_id, write)
    return written, [str(loss) for loss in (*found.losses, *written.losses)]


def _url(lease: Lease) -> str:
    """Return the page for a format that is for one page."""
    return f"https://{lease.host}/"


# --- leases: changes ----------------------------------------------------------------------------


async def renew_lease(context: RequestContext[None, LeaseChange]) -> Response:
    body, services = context.body, context.services
    lease = await leases.read(context.database, context.path["lease_id"])
    prepared, replacement, losses = await _prepare(context, lease)
    wanted = leases.Change(body.seconds, body.release, prepared, replacement, context.if_match)
    changed = await leases.change(
        context.database, services.vault, lease.id, wanted, services.clock, context.actor
    )
    result = ChangedLease(
        **changed.timed.to_response(),
        cookies=documents.count_changes(changed.changes.cookies),
        local_storage=documents.count_changes(changed.changes.local_storage),
        losses=losses,
    )
    return Response(encode(result), headers=_etag_header(changed.etag))


async def _prepare(
    context: RequestContext[None, LeaseChange], lease: Lease
) -> tuple[PreparedState | None, Replacement, list[str]]:
    """Return the records to store, which others are deleted, and what is lost."""
    body, services = context.body, context.services
    if body.state is None:
        return None, NO_REPLACEMENT, []
    read = partial(_read_document, body, lease, services.settings.max_records)
    document = await services.computations.run(context.organization_id, read)
    destination = Destination(lease.profile)
    prepared = await documents.prepare_state(context.organization_id, document, destination)
    has_local_storage = "local_storage" in FORMATS[document.format].carries
    others = Replacement((lease.domain,), has_local_storage) if body.replace else NO_REPLACEMENT
    return prepared, others, documents.described_losses(document)


def _read_document(body: LeaseChange, lease: Lease, max_records: int) -> ReadResult:
    """Read the state. A thread runs it, because it takes long for a large state."""
    try:
        document = sessions.read(body.state, body.format, _url(lease))
    except InvalidSession as error:
        raise _invalid_state(str(error), "session_format") from None
    count = len(document.state.cookies) + len(document.state.local_storage)
    if count > max_records:
        msg = f"The state may have at most {max_records} records: send less at a time"
        raise _invalid_state(msg, "too_long")
    document = leases.within(lease, document)
    if body.replace and states.is_empty(document.state):
        raise _invalid_state(documents.NOTHING_TO_REPLACE_WITH, "session_format")
    return document


def _invalid_state(msg: str, type_: str) -> InvalidRequest:
    return InvalidRequest(ErrorDetail(("body", "state"), msg, type_))


# --- leases: return and list --------------------------------------------------------------------


async def release_lease(context: AnyContext) -> Response:
    clock = context.services.clock
    await leases.release(context.database, context.path["lease_id"], clock, context.actor)
    return Response(b'{"deleted":1}')


async def list_leases(context: AnyContext) -> Response:
    services = context.services
    found = await leases.list_current(services.database, context.organization_id, services.clock)
    return Response(encode(found))
