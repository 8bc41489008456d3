"""The console's operations about access: signing in, sessions of people, and tokens."""

from __future__ import annotations

from gleanery.service.api.operation import Operation, Resource
from gleanery.service.resources.access import console_login, console_tokens

_CONSOLE_OPERATIONS = (
    Operation(
        method="POST",
        path="/console/api/login",
        handler=console_login.sign_in,
        title="Sign in",
        description="Creates a session from a token or a one-time link.",
        body=console_login.Login,
        max_body_bytes=console_login.MAX_BODY_BYTES,
        response=console_login.SignedIn,
        extra_errors=(401, 429),
    ),
    Operation(
        method="GET",
        path="/console/api/session",
        handler=console_login.get_session,
        title="Session",
        description="Who is signed in, and with which rights.",
        needs_session=True,
        response=console_login.SessionOut,
    ),
    Operation(
        method="POST",
        path="/console/api/confirm",
        handler=console_login.confirm,
        title="Confirm",
        description="Proves again that the person has the token, or a new login link of it.",
        needs_session=True,
        body=console_login.Confirmation,
        response=console_login.SessionOut,
    ),
    Operation(
        method="POST",
        path="/console/api/logout",
        handler=console_login.sign_out,
        title="Sign out",
        description="Ends the session, or all sessions of its token.",
        needs_session=True,
        body=console_login.SignOut,
        response=console_login.SignedOut,
    ),
    Operation(
        method="GET",
        path="/console/api/sessions",
        handler=console_tokens.list_console_sessions,
        title="Sessions",
        description="Who is signed in with the caller's token, or with any of the organization.",
        needs_session=True,
        response=console_tokens.Sessions,
    ),
    Operation(
        method="DELETE",
        path="/console/api/sessions/{session_id}",
        handler=console_tokens.end_session,
        title="End a session",
        description="Signs somebody out.",
        needs_session=True,
        response=console_tokens.Ended,
    ),
    Operation(
        method="GET",
        path="/console/api/tokens",
        handler=console_tokens.list_tokens,
        title="Tokens",
        description="The tokens of the organization.",
        needs_session=True,
        scopes=(console_tokens.SCOPE,),
        query=console_tokens.TokensQuery,
        response=console_tokens.Tokens,
    ),
    Operation(
        method="POST",
        path="/console/api/tokens",
        handler=console_tokens.create_token,
        title="Create a token",
        description="Creates a token with at most the rights of the caller's token.",
        needs_session=True,
        scopes=(console_tokens.SCOPE,),
        body=console_tokens.TokenIn,
        response=console_tokens.CreatedToken,
    ),
    Operation(
        method="DELETE",
        path="/console/api/tokens/{token_id}",
        handler=console_tokens.revoke_token,
        title="Revoke a token",
        description="Ends a token and its sessions.",
        needs_session=True,
        scopes=(console_tokens.SCOPE,),
        response=console_tokens.Revoked,
    ),
)

RESOURCE = Resource(
    console_operations=_CONSOLE_OPERATIONS,
)
