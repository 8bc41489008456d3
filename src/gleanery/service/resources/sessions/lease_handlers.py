"""The handlers of leases."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from gleanery import sessions
from gleanery.service.api.context import AnyContext, RequestContext
from gleanery.service.api.response import Response
from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest, NotFound
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.sessions import documents, leases, states
from gleanery.service.resources.sessions.documents import (
    NO_REPLACEMENT,
    Destination,
    PreparedState,
    Replacement,
)
from gleanery.service.resources.sessions.leases import Lease
from gleanery.service.resources.sessions.models import (
    AcquiredLease,
    ChangedLease,
    LeaseChange,
    LeaseIn,
)
from gleanery.service.resources.sessions.records import ALL_GROUPS
from gleanery.service.resources.sessions.states import StateFilter
from gleanery.sessions import FORMATS, InvalidSession, ReadResult, WriteResult

# --- acquisition --------------------------------------------------------------------------------


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


# --- changes ------------------------------------------------------------------------------------


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


# --- return and list ----------------------------------------------------------------------------


async def release_lease(context: AnyContext) -> Response:
    clock = context.services.clock
    await leases.release(context.database, context.path["lease_id"], clock, context.actor)
    return Response(b'{"deleted":1}')


async def list_leases(context: AnyContext) -> Response:
    services = context.services
    found = await leases.list_current(services.database, context.organization_id, services.clock)
    return Response(encode(found))
