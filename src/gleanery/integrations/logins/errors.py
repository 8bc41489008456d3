"""Errors of stored logins."""

from __future__ import annotations

from collections.abc import Sequence

from gleanery.client import ClientError, Conflict, ErrorDetail


class LoginExpired(ClientError):
    """The service has no login, or it has expired: log in again.

    Raise it if a page shows that the site has ended the login. The session is then not saved.
    """


class SessionChanged(Conflict):
    """Another client has changed the session meanwhile, so it was not saved."""


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
