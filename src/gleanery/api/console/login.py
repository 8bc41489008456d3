"""The handlers of the console's login: sign in, confirm, sign out."""

from __future__ import annotations

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.api.context import AnyContext, RequestContext, Response
from gleanery.errors import ErrorDetail, InvalidRequest, Unauthenticated, no_session
from gleanery.models.fields import Text
from gleanery.models.inputs import Input
from gleanery.security import console_login
from gleanery.security.tokens import ConsoleSession, Grant
from gleanery.storage import console_sessions, organizations
from gleanery.values import timestamps
from gleanery.values.json_text import encode

FRESH = 10 * 60 * timestamps.SECOND
"""For this time after a login or a confirmation, a person may create tokens."""
_MAX_NAME = 100


class Login(Input):
    """A token or the secret of a one-time link, and who uses it."""

    token: Text | None = Field(default=None, max_length=200)
    link: Text | None = Field(default=None, max_length=200)
    person: Text | None = Field(default=None, max_length=_MAX_NAME)


class Confirmation(Input):
    """The token of the session."""

    token: Text = Field(max_length=200)


class SignOut(Input):
    """Which sessions to end."""

    everywhere: bool = Field(default=False, description="All sessions of the token.")


class SessionOut(TypedDict):
    """Who is signed in, and with which rights."""

    organization: str
    person: str
    token_id: int
    token_name: str | None
    scopes: list[str]
    expires: int | None
    is_fresh: bool
    """True if tokens can be created without another confirmation."""


class SignedIn(TypedDict):
    """A new session. The key goes into the header of every request."""

    key: str
    session: SessionOut


class SignedOut(TypedDict):
    """Result of signing out."""

    signed_out: bool


async def sign_in(context: RequestContext[None, Login]) -> Response:
    """Create a session. It always has new secrets, whatever cookie the browser sent."""
    if context.request.headers.get(console_login.SITE_HEADER) != console_login.SAME_ORIGIN:
        raise Unauthenticated("Sign in on the page of the console, at https or on localhost")
    services, now = context.services, context.services.clock()
    grant, person = await _find_grant(context, context.body)
    if grant.expires is not None and grant.expires <= now:
        raise Unauthenticated("This access token has expired", is_token_invalid=True)
    cookie, key = console_login.new_secret(), console_login.new_secret()
    credentials = console_login.Credentials(cookie.encode(), key.encode())
    await console_sessions.create(services.database, grant, credentials, person, now)
    created = await console_sessions.find(services.database, credentials, now)
    if created is None:
        raise no_session()
    body = SignedIn(key=key, session=await _describe(context, created))
    headers = ((b"set-cookie", console_login.set_cookie(cookie)),)
    return Response(encode(body), headers=headers)


async def _find_grant(context: AnyContext, login: Login) -> tuple[Grant, str]:
    services = context.services
    if (login.token is None) == (login.link is None):
        detail = ErrorDetail(("body", "token"), "Give a token, or use a login link", "missing")
        raise InvalidRequest(detail)
    person = (login.person or "").strip()
    if login.token is not None:
        grant = await services.authenticator.find_token(login.token.strip())
    else:
        assert login.link is not None
        used = await console_sessions.use_link(services.database, login.link, services.clock())
        found = None
        if used is not None:
            found = await organizations.find_grant_by_id(services.database, used.token_id)
        if used is None or found is None:
            msg = "This login link was used before or has expired: ask for a new one"
            raise Unauthenticated(msg, is_token_invalid=True)
        grant, person = found, used.person or person
    return grant, person or "Somebody"


async def get_session(context: AnyContext) -> Response:
    return Response(encode(await _describe(context, grant_of(context))))


async def confirm(context: RequestContext[None, Confirmation]) -> Response:
    services, grant = context.services, grant_of(context)
    given = await services.authenticator.find_token(context.body.token.strip())
    if given.token_id != grant.token_id:
        raise Unauthenticated("This is another token than the one of your session")
    session = session_of(context)
    now = services.clock()
    await console_sessions.confirm(services.database, session.id, now)
    services.authenticator.forget_session(session.id)
    return Response(encode(await _describe(context, grant, confirmed_at=now)))


async def sign_out(context: RequestContext[None, SignOut]) -> Response:
    services, grant, session = context.services, grant_of(context), session_of(context)
    if context.body.everywhere:
        await console_sessions.end_all_of_token(services.database, grant.token_id)
        services.authenticator.forget_token(grant.token_id)
    else:
        await console_sessions.end(services.database, session.id)
        services.authenticator.forget_session(session.id)
    headers = ((b"set-cookie", console_login.clear_cookie()),)
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
    return now - session.confirmed_at < FRESH


async def _describe(
    context: AnyContext, grant: Grant, confirmed_at: int | None = None
) -> SessionOut:
    assert grant.session is not None
    database, now = context.services.database, context.services.clock()
    names = await organizations.names_of_token(database, grant.token_id)
    confirmed = grant.session.confirmed_at if confirmed_at is None else confirmed_at
    return SessionOut(
        organization=names.organization,
        person=grant.session.person,
        token_id=grant.token_id,
        token_name=names.token,
        scopes=sorted(grant.scopes),
        expires=grant.expires,
        is_fresh=now - confirmed < FRESH,
    )
