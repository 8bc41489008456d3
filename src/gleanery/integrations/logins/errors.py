"""Errors of stored logins."""

from __future__ import annotations

from gleanery.client import ClientError, Conflict, ErrorDetail


class LoginExpired(ClientError):
    """The service has no login, or all its cookies have expired: log in again."""


class SessionChanged(Conflict):
    """Another client has changed the session meanwhile, so it was not saved."""


def login_expired(domain: str, profile: str, is_stored: bool) -> LoginExpired:
    """Return the error for a session without a valid login."""
    state = "has expired" if is_stored else "is not stored"
    return LoginExpired(
        f"The login of {domain} in the profile {profile!r} {state}. Log in, and store the session "
        "with 'gleanery sessions import', or give a function that logs in"
    )


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
