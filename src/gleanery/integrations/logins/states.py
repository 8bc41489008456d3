"""States of sessions, as Playwright writes them: the login in them, what changed, and errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from gleanery.client import ClientError, Conflict, ErrorDetail

State = dict[str, Any]
_LONG_AGO = 1
"""Second of 1970. The service takes a cookie with such an expiry for deleted."""


def check_names(login_cookies: Sequence[str]) -> tuple[str, ...]:
    """Return the names of cookies. Raise TypeError for one name that is not in a list."""
    if isinstance(login_cookies, str):
        raise TypeError("login_cookies must be a list of names")
    return tuple(login_cookies)


def has_login(state: State, login_cookies: Sequence[str]) -> bool:
    """Return True if the state has all these cookies; without names, if it is not empty."""
    now = time.time()
    valid = {one["name"] for one in state["cookies"] if not 0 <= one.get("expires", -1) <= now}
    if login_cookies:
        return valid.issuperset(login_cookies)
    return bool(valid or state["origins"])


def take_indexed_db(state: State) -> tuple[State, list[str]]:
    """Return the state without IndexedDB, which is not stored, and the origins that have one."""
    origins = [origin["origin"] for origin in state["origins"] if origin.get("indexedDB")]
    kept = [
        {"origin": origin["origin"], "localStorage": origin["localStorage"]}
        for origin in state["origins"]
        if origin["localStorage"]
    ]
    return {**state, "origins": kept}, origins


def is_changed(loaded: State, state: State) -> bool:
    """Return True if a cookie or an entry of the local storage is new, changed or gone."""
    return _content(loaded) != _content(state)


def with_removed(loaded: State, state: State) -> State:
    """Return the state, in which the cookies that were loaded and are gone have expired."""
    kept = {_identity(cookie) for cookie in state["cookies"]}
    removed = [
        {**cookie, "value": "", "expires": _LONG_AGO}
        for cookie in loaded["cookies"]
        if _identity(cookie) not in kept
    ]
    return {**state, "cookies": [*state["cookies"], *removed]}


def _content(state: State) -> tuple[dict[Any, Any], dict[Any, Any]]:
    cookies = {_identity(one): (one["value"], one.get("expires")) for one in state["cookies"]}
    entries = {
        (one["origin"], entry["name"]): entry["value"]
        for one in state["origins"]
        for entry in one["localStorage"]
    }
    return cookies, entries


def _identity(cookie: dict[str, Any]) -> tuple[Any, ...]:
    return cookie["domain"], cookie["path"], cookie["name"], cookie.get("partitionKey")


# --- errors -------------------------------------------------------------------------------------


class LoginExpired(ClientError):
    """The service has no login, or it has expired: log in again.

    Raise it if a page shows that the site has ended the login. The session is then not saved.
    """


class SessionChanged(Conflict):
    """Another client has changed the session since it was loaded, so it was not saved."""


def login_expired(
    domain: str, profile: str, is_stored: bool, login_cookies: Sequence[str] = ()
) -> LoginExpired:
    """Return the error for a session without a valid login."""
    state = "has expired" if is_stored else "is not stored"
    return LoginExpired(
        f"The login of {domain} in the profile {profile!r} {state}{_missing(login_cookies)}. Log "
        "in, and store the session with 'gleanery sessions import', or give a function that logs in"
    )


def login_failed(domain: str, login_cookies: Sequence[str]) -> LoginExpired:
    """Return the error for a function that has returned without a login."""
    return LoginExpired(
        f"The function that logs in has returned, but there is no login of {domain}"
        f"{_missing(login_cookies)}. Nothing is saved. Let the function wait for a proof of the "
        "login, such as a text of the page"
    )


def _missing(login_cookies: Sequence[str]) -> str:
    return f" (it needs the cookies {', '.join(login_cookies)})" if login_cookies else ""


def has_no_login(error: BaseException) -> bool:
    """Return True if an error, or one of a group of errors, says that the login has expired."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(LoginExpired) is not None
    return isinstance(error, LoginExpired)


def session_changed(domain: str, error: Conflict) -> SessionChanged:
    """Return the error for a session that another client has changed."""
    message = (
        f"The session of {domain} is not saved: another client has changed it since it was "
        "loaded, and its version is kept. With a lease, clients take turns"
    )
    if error.attempts > 1:
        message += ". It is also possible that an earlier attempt of this request has saved it"
    detail = ErrorDetail((), message, error.detail[0].type)
    return SessionChanged(error.status, [detail], error.request_id)
