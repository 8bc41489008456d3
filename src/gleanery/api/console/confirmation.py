"""The handler of a confirmation: a person who is signed in proves again to have the token."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from gleanery.api.console.login import describe, grant_of, session_of
from gleanery.api.context import AnyContext, RequestContext
from gleanery.api.response import Response
from gleanery.errors import ErrorDetail, InvalidRequest
from gleanery.models.fields import Text
from gleanery.models.responses.common import Input
from gleanery.security import tokens
from gleanery.storage import console_sessions, login_links, organizations
from gleanery.values.json_text import encode

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
    if await login_links.token_of(database, link) != context.token_id:
        return False
    used = await login_links.use(database, link, now)
    return used is not None and used.is_valid
