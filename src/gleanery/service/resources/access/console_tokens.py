"""The handlers of the console's access screen: tokens, and who is signed in with them."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.api.context import AnyContext, RequestContext
from gleanery.service.api.response import Response
from gleanery.service.foundation.errors import (
    ConfirmationRequired,
    ErrorDetail,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from gleanery.service.foundation.field_types import MAX_INT64, Text, WholeNumber
from gleanery.service.foundation.models import Input, Query
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.access import console_sessions, organizations
from gleanery.service.resources.access.authentication import TokenAuthenticator, TokenUse
from gleanery.service.resources.access.console_login import grant_of, is_fresh, session_of

SCOPE = "tokens:write"
_PAGE_SIZE = 100
_MAX_NAME = 100
_MAX_DAYS = 36_500
_DAY = 24 * 3600 * timestamps.SECOND


class TokensQuery(Query):
    """Part of the list of tokens."""

    before: WholeNumber = Field(default=MAX_INT64, ge=1, le=MAX_INT64)


class TokenIn(Input):
    """A token to create."""

    name: Text = Field(max_length=_MAX_NAME)
    scopes: list[Annotated[Text, Field(max_length=50)]] = Field(max_length=100)
    days: int | None = Field(ge=1, le=_MAX_DAYS, description="Lifetime; null has no end.")


class SessionRow(TypedDict):
    """A session of the console."""

    id: int
    token_id: int
    person: str
    created: int
    last_used: int


class Sessions(TypedDict):
    """Sessions, the last used first."""

    sessions: list[SessionRow]


class TokenRow(TypedDict):
    """A token that is not revoked. The token itself is not stored."""

    id: int
    name: str | None
    scopes: list[str]
    created: int
    expires: int | None
    last_used: int | None


class Tokens(TypedDict):
    """Tokens of the organization, newest first; the id to continue from is null at the end."""

    tokens: list[TokenRow]
    next_before: int | None
    scopes: dict[str, str]
    """All scopes, and what they allow."""


class CreatedToken(TypedDict):
    """A new token, which cannot be shown again."""

    id: int
    token: str
    expires: int | None


class Revoked(TypedDict):
    """Result of a revocation."""

    revoked: bool


class Ended(TypedDict):
    """Result of ending a session."""

    ended: bool


async def list_tokens(context: RequestContext[TokensQuery, None]) -> Response:
    with suppress(Unavailable):  # a read must not need a write, for example on a full disk
        await context.services[TokenUse].store()
    found = await organizations.list_valid_tokens(
        context.database, context.query.before, _PAGE_SIZE + 1
    )
    rows = [_token_row(token) for token in found[:_PAGE_SIZE]]
    next_before = rows[-1]["id"] if len(found) > _PAGE_SIZE else None
    page = Tokens(tokens=rows, next_before=next_before, scopes=tokens.SCOPES)
    return Response(encode(page))


def _token_row(token: organizations.OwnToken) -> TokenRow:
    return TokenRow(
        id=token.id,
        name=token.name,
        scopes=token.scopes,
        created=token.created_at,
        expires=token.expires_at,
        last_used=token.last_used_at,
    )


async def list_console_sessions(context: AnyContext) -> Response:
    """Return the sessions of the organization, or without the scope those of the caller's token."""
    grant, now = grant_of(context), context.services.clock()
    if SCOPE in grant.scopes:
        found = await console_sessions.list_all(context.database, now)
    else:
        found = await console_sessions.list_of_token(context.database, grant.token_id, now)
    return Response(encode(Sessions(sessions=[_session_row(one) for one in found])))


def _session_row(session: console_sessions.ListedSession) -> SessionRow:
    return SessionRow(
        id=session.id,
        token_id=session.token_id,
        person=session.person,
        created=session.created_at,
        last_used=session.last_used_at,
    )


async def create_token(context: RequestContext[None, TokenIn]) -> Response:
    """Create a token with at most the rights of the creator's, and not for longer."""
    now, body = context.services.clock(), context.body
    if not is_fresh(session_of(context), now):
        raise ConfirmationRequired
    name, scopes = body.name.strip(), frozenset(body.scopes)
    _check(name, scopes)
    grant = grant_of(context)
    for scope in sorted(scopes - grant.scopes):
        raise Forbidden(scope)
    expires = _expiry(body.days, grant.expires, now)
    created = await organizations.add_token(
        context.database, name, scopes, context.actor, now, expires
    )
    return Response(encode(CreatedToken(id=created.id, token=created.token, expires=expires)))


def _check(name: str, scopes: frozenset[str]) -> None:
    if not name:
        raise InvalidRequest(ErrorDetail(("body", "name"), "Give the token a name", "missing"))
    if not scopes or not scopes <= tokens.SCOPES.keys():
        msg = f"Choose one or more of {', '.join(tokens.SCOPES)}"
        raise InvalidRequest(ErrorDetail(("body", "scopes"), msg, "scopes"))


def _expiry(days: int | None, limit: int | None, now: int) -> int | None:
    """Return the expiry. A token that expires cannot create one that lasts longer."""
    chosen = None if days is None else now + days * _DAY
    return min((time for time in (chosen, limit) if time is not None), default=None)


async def revoke_token(context: AnyContext) -> Response:
    """Revoke a token of the organization, which also ends its sessions."""
    id_, now = _number(context.path["token_id"]), context.services.clock()
    if not await organizations.revoke_own_token(context.database, id_, context.actor, now):
        raise NotFound(("path", "token_id"), "There is no valid token with this id")
    context.services[TokenAuthenticator].forget_token(id_)
    return Response(encode(Revoked(revoked=True)))


async def end_session(context: AnyContext) -> Response:
    """End a session of the caller's token, or with the scope of any token."""
    id_, grant = _number(context.path["session_id"]), grant_of(context)
    token_id = await console_sessions.token_of(context.database, id_)
    if token_id is None:
        raise NotFound(("path", "session_id"), "This session has ended")
    if token_id != grant.token_id and SCOPE not in grant.scopes:
        raise Forbidden(SCOPE)
    await console_sessions.end(context.database, id_, context.actor, context.services.clock())
    return Response(encode(Ended(ended=True)))


def _number(text: str) -> int:
    """Return the id in a path; an id that no record has for any other text."""
    is_id = text.isascii() and text.isdecimal() and len(text) < len(str(MAX_INT64))
    return int(text) if is_id else 0
