"""The operations of the console. They are not a part of the public API and may change."""

from __future__ import annotations

from gleanery.api.console import assets, login, rows
from gleanery.api.operations import Operation

CONSOLE_OPERATIONS = (
    Operation(
        method="GET",
        path="/console",
        handler=assets.console_page,
        title="Console",
        description="The page of the console.",
        media_type="text/html",
        response=str,
    ),
    Operation(
        method="GET",
        path="/console/",
        handler=assets.console_without_slash,
        title="Console",
        description="Redirects to the page of the console.",
        status=307,
    ),
    Operation(
        method="GET",
        path="/console/assets/{version}/{name}",
        handler=assets.console_asset,
        title="File of the console",
        description="A file of this version.",
        response=str,
    ),
    Operation(
        method="GET",
        path="/console/assets/{version}/{name}/{file}",
        handler=assets.console_asset,
        title="File of the console",
        description="A file of this version, in a folder.",
        response=str,
    ),
    Operation(
        method="POST",
        path="/console/api/login",
        handler=login.sign_in,
        title="Sign in",
        description="Creates a session from a token or a one-time link.",
        body=login.Login,
        response=login.SignedIn,
        extra_errors=(401,),
    ),
    Operation(
        method="GET",
        path="/console/api/session",
        handler=login.get_session,
        title="Session",
        description="Who is signed in, and with which rights.",
        needs_session=True,
        response=login.SessionOut,
    ),
    Operation(
        method="POST",
        path="/console/api/confirm",
        handler=login.confirm,
        title="Confirm",
        description="Proves again that the person has the token.",
        needs_session=True,
        body=login.Confirmation,
        response=login.SessionOut,
    ),
    Operation(
        method="POST",
        path="/console/api/logout",
        handler=login.sign_out,
        title="Sign out",
        description="Ends the session, or all sessions of its token.",
        needs_session=True,
        body=login.SignOut,
        response=login.SignedOut,
    ),
    Operation(
        method="GET",
        path="/console/api/rows/{group_id}",
        handler=rows.get_rows,
        title="Rows",
        description="A page of the grid of outputs, around a position.",
        scopes=("outputs:read",),
        needs_session=True,
        query=rows.RowQuery,
        response=rows.GridRows,
    ),
)
