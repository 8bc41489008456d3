"""The handlers of the console's login: sign in, confirm, sign out.

With a confirmation, a person who is signed in proves again to have the token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.api.context import AnyContext, RequestContext
from gleanery.service.api.response import Response
from gleanery.service.foundation.errors import (
    ErrorDetail,
    InvalidRequest,
    RateLimited,
    Unauthenticated,
    expired_token,
    incomplete_token,
    invalid_token,
)
from gleanery.service.foundation.field_types import MAX_INT64, Text
from gleanery.service.foundation.models import Input
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.security.tokens import Actor, ConsoleSession, Grant
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.access import console_sessions, organizations
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.log import ReadAuditor
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.tables import available_formats

FRESH = 10 * 60 * timestamps.SECOND
"""For this time after a login or a confirmation, a person may create tokens."""
MAX_BODY_BYTES = 4096
"""Size of a login. Strangers may send one, so it is small."""
_MAX_NAME = 100
_NAMELESS = "Somebody"  # for a login link without a name, if the person gives none either
_REFUSAL_INTERVAL = 60 * timestamps.SECOND
_RECENT_ENTRIES = 50
_NOT_OUR_PAGE = (
    "Sign in on the page of the console, in a current browser, at an https address or on localhost"
)
_NO_LINK = "This login link was used before or has expired: ask for a new one"

Reason = Literal["expired_token", "revoked_token", "expired_link"]


class Login(Input):
    """A token or the secret of a one-time link, and who uses it."""

    token: Text | None = Field(default=None, max_length=200)
    link: Text | None = Field(default=None, max_length=200)
    person: Text | None = Field(default=None, max_length=_MAX_NAME)
    stay: bool = True
    """False removes the cookie when the browser ends."""


class SignOut(Input):
    """Which sessions to end."""

    everywhere: bool = Field(default=False, description="All sessions of the token.")


class SessionOut(TypedDict):
    """Who is signed in, and with which rights."""

    session_id: int
    organization: str
    person: str
    token_id: int
    token_name: str | None
    scopes: list[str]
    expires: int | None
    is_fresh: bool
    """True if tokens can be created without another confirmation."""
    export_formats: list[str]
    """What the service can write: Parquet needs a library."""


class SignedIn(TypedDict):
    """A new session. The key goes into the header of every request."""

    key: str
    session: SessionOut


class SignedOut(TypedDict):
    """Result of signing out."""

    signed_out: bool


async def sign_in(context: RequestContext[None, Login]) -> Response:
    """Create a session. It always has new secrets, whatever cookie the browser sent."""
    if context.request.headers.get(console_sessions.SITE_HEADER) != console_sessions.SAME_ORIGIN:
        raise Unauthenticated(_NOT_OUR_PAGE)
    services, now = context.services, context.services.clock()
    grant, person = await _find_grant(context, context.body)
    cookie_name = console_sessions.cookie_name(services.settings.address)
    replaced = console_sessions.find_credentials(cookie_name, context.request.headers)
    if replaced is not None:
        await console_sessions.end_replaced(services.database, replaced)
    cookie, key = console_sessions.new_secret(), console_sessions.new_secret()
    credentials = console_sessions.Credentials(cookie.encode(), key.encode())
    database = services.database.for_tenant(grant.organization_id)
    actor = _actor(context, grant.token_id, person)
    id_ = await console_sessions.create(database, grant.token_id, credentials, actor, now)
    created = replace(grant, session=ConsoleSession(id_, person, now))
    body = SignedIn(key=key, session=await describe(context, created))
    max_age = console_sessions.LIFETIME // timestamps.SECOND if context.body.stay else None
    headers = ((b"set-cookie", console_sessions.set_cookie(cookie_name, cookie, max_age)),)
    return Response(encode(body), headers=headers)


async def _count(context: AnyContext, token_id: int) -> None:
    """Count the login as a request of its token, because it adds to the audit log."""
    rate_limiter = context.services.rate_limiter
    if rate_limiter is not None:
        counted = await rate_limiter.count(token_id)
        if counted.is_exceeded:
            raise RateLimited(counted.seconds)


async def _find_grant(context: AnyContext, login: Login) -> tuple[Grant, str]:
    """Return the rights of the token or link, and the name of the person."""
    if (login.token is None) == (login.link is None):
        detail = ErrorDetail(("body", "token"), "Give a token, or use a login link", "missing")
        raise InvalidRequest(detail)
    person = (login.person or "").strip()
    if login.token is not None:
        _require_name(person)
        grant = await _grant_of_token(context, login.token.strip(), person)
        await _count(context, grant.token_id)
        return grant, person
    assert login.link is not None
    return await _grant_of_link(context, login.link, person)


def _require_name(person: str) -> None:
    if not person:
        raise InvalidRequest(ErrorDetail(("body", "person"), "Give your name", "missing"))


async def _grant_of_token(context: AnyContext, token: str, person: str) -> Grant:
    if not tokens.is_well_formed(token):
        raise incomplete_token()
    database, now = context.services.database, context.services.clock()
    state = await organizations.token_state(database, tokens.digest(token))
    if state is None:
        raise invalid_token()
    return await _valid_grant(context, state, person, now)


async def _grant_of_link(context: AnyContext, link: str, person: str) -> tuple[Grant, str]:
    database, now = context.services.database, context.services.clock()
    token_id = await console_sessions.token_of_link(database, link)
    state = None if token_id is None else await organizations.token_state_by_id(database, token_id)
    if state is None:
        raise Unauthenticated(_NO_LINK, is_token_invalid=True)
    await _count(context, state.id)  # before the link is used up
    used = await console_sessions.use_link(database, link, now)
    if used is None:
        raise Unauthenticated(_NO_LINK, is_token_invalid=True)
    person = used.person or person
    if not used.is_valid:
        await _record_refusal(context, state, person, "expired_link")
        raise Unauthenticated(_NO_LINK, is_token_invalid=True)
    return await _valid_grant(context, state, person or _NAMELESS, now), person or _NAMELESS


async def _valid_grant(
    context: AnyContext, state: organizations.TokenState, person: str, now: int
) -> Grant:
    """Return the grant of a token that still works; otherwise record the refused sign-in."""
    if state.expires_at is not None and state.expires_at <= now:
        await _record_refusal(context, state, person, "expired_token")
        raise expired_token()
    grant = await organizations.find_grant_by_id(context.services.database, state.id)
    if grant is None:
        await _record_refusal(context, state, person, "revoked_token")
        raise invalid_token()
    return grant


async def _record_refusal(
    context: AnyContext, state: organizations.TokenState, person: str, reason: Reason
) -> None:
    """Record a refused sign-in in the audit log, but not each one: a stranger may repeat it."""
    database, now = context.services.database.for_tenant(state.organization_id), _now(context)
    newest, _ = await log.read_newest(database, MAX_INT64, log.Filter(), _RECENT_ENTRIES)
    for entry in newest:
        is_same = (entry["action"], entry["token_id"]) == ("refuse_sign_in", state.id)
        if is_same and now - entry["id"] < _REFUSAL_INTERVAL:
            return
    actor = _actor(context, state.id, person or None)
    entry_ = log.Entry(actor, now, "refuse_sign_in", AuditAbout(reason=reason))
    await context.services[ReadAuditor].record(database, entry_)


def _actor(context: AnyContext, token_id: int, person: str | None) -> Actor:
    return Actor(token_id, context.request_id.decode("ascii"), person)


def _now(context: AnyContext) -> int:
    return context.services.clock()


async def get_session(context: AnyContext) -> Response:
    return Response(encode(await describe(context, grant_of(context))))


async def sign_out(context: RequestContext[None, SignOut]) -> Response:
    grant, database, now = grant_of(context), context.database, _now(context)
    if context.body.everywhere:
        await console_sessions.end_all_of_token(database, grant.token_id, context.actor, now)
    else:
        await console_sessions.end(database, session_of(context).id, context.actor, now)
    cookie_name = console_sessions.cookie_name(context.services.settings.address)
    headers = ((b"set-cookie", console_sessions.clear_cookie(cookie_name)),)
    return Response(encode(SignedOut(signed_out=True)), headers=headers)


def grant_of(context: AnyContext) -> Grant:
    """Return the rights of the caller of an operation that needs a session."""
    assert context.grant is not None
    return context.grant


def session_of(context: AnyContext) -> ConsoleSession:
    session = grant_of(context).session
    assert session is not None
    return session


def is_fresh(session: ConsoleSession, now: int) -> bool:
    return abs(now - session.confirmed_at) < FRESH  # the clock may have been wrong


async def describe(context: AnyContext, grant: Grant) -> SessionOut:
    """Return who is signed in, and with which rights."""
    session = grant.session
    assert session is not None
    names = await organizations.names_of_token(context.services.database, grant.token_id)
    return SessionOut(
        session_id=session.id,
        organization=names.organization,
        person=session.person,
        token_id=grant.token_id,
        token_name=names.token,
        scopes=sorted(grant.scopes),
        expires=grant.expires,
        is_fresh=is_fresh(session, _now(context)),
        export_formats=available_formats(),
    )


_WRONG_TOKEN = "This is not the token of your session"
_WRONG_LINK = "This login link was used before, has expired, or is of another token than yours"


class Confirmation(Input):
    """The token of the session, or the secret of a new login link of it."""

    token: Text | None = Field(default=None, max_length=200)
    link: Text | None = Field(default=None, max_length=200)


async def confirm(context: RequestContext[None, Confirmation]) -> Response:
    """Record the proof. A wrong one is 422, because the session stays."""
    session, now, body = session_of(context), context.services.clock(), context.body
    if body.link is not None:
        _require(await _use_link(context, body.link, now), _WRONG_LINK)
    else:
        _require(await _is_own_token(context, (body.token or "").strip()), _WRONG_TOKEN)
    await console_sessions.confirm(context.database, session.id, now)
    confirmed = replace(grant_of(context), session=replace(session, confirmed_at=now))
    return Response(encode(await describe(context, confirmed)))


def _require(is_proved: bool, msg: str) -> None:
    if not is_proved:
        raise InvalidRequest(ErrorDetail(("body", "token"), msg, "wrong_token"))


async def _is_own_token(context: AnyContext, token: str) -> bool:
    if not tokens.is_well_formed(token):
        return False
    grant = await organizations.find_grant(context.services.database, tokens.digest(token))
    return grant is not None and grant.token_id == context.token_id


async def _use_link(context: AnyContext, link: str, now: int) -> bool:
    """Use a login link of the session's token. One of another token stays unused."""
    database = context.services.database
    if await console_sessions.token_of_link(database, link) != context.token_id:
        return False
    used = await console_sessions.use_link(database, link, now)
    return used is not None and used.is_valid
