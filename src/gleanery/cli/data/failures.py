"""Failures of commands on data: one sentence that says what to do, and an exit status."""

from __future__ import annotations

import re

from gleanery.client.errors import (
    ApiError,
    ClientError,
    ConnectionFailed,
    ErrorDetail,
    Forbidden,
    Invalid,
    InvalidResponse,
    InvalidState,
    NotConfigured,
    NotFound,
    ServerError,
    TimedOut,
    Unauthorized,
)
from gleanery.common.errors import SettingsError

FAILURE = 1
USER_ERROR = 2
_USER_ERRORS = (
    SettingsError,
    NotConfigured,
    Unauthorized,
    Forbidden,
    NotFound,
    Invalid,
    InvalidState,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
_ADVICE: tuple[tuple[type[ClientError], str], ...] = (
    (ConnectionFailed, "Is the service running there?"),
    (TimedOut, "Is the service running there?"),
    (InvalidResponse, "Check the address of the service."),
    (Unauthorized, "Run gleanery login with a valid token, or set GLEANERY_TOKEN."),
)


_OPTIONS = {
    "base_url": "--service",
    "token": "--token-file",
    "format": "--format",
    "overwrite=True": "--overwrite",
}
"""Options of commands for the parameters of the library."""
_OPTION_OF_MEMBER = {
    "output_ids": "--output",
    "findings": "--finding",
    "as_of": "--as-of",
    "at": "--at",
}
"""Options of commands for members and parameters of a request."""
_PARAMETER = re.compile(rf"\bgive ({'|'.join(_OPTIONS)})(?!\w)")


class CommandFailed(Exception):
    """Failure of a command, with a message for its user."""

    def __init__(self, message: str, status: int = FAILURE) -> None:
        super().__init__(message)
        self.status = status


class UserError(CommandFailed):
    """Wrong use of a command: other arguments can succeed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USER_ERROR)


def to_failure(error: Exception) -> CommandFailed:
    """Return the message and the exit status of an error."""
    if isinstance(error, CommandFailed):
        return error
    return CommandFailed(
        _message(error), USER_ERROR if isinstance(error, _USER_ERRORS) else FAILURE
    )


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'standard output'}: {error.strerror or error}"
    if isinstance(error, ApiError):
        message = "; ".join(map(_describe, error.detail)).replace("the parameter url", "--url")
    else:
        message = name_options(str(error))
    advice = _advice(error)
    return message if advice is None else join_sentences(message, advice)


def name_options(message: str) -> str:
    """Return a message of the library with options in the place of parameters."""
    return _PARAMETER.sub(lambda found: f"give {_OPTIONS[found[1]]}", message)


def join_sentences(*sentences: str) -> str:
    """Return the sentences as one text. Only the last one may lack its full stop."""
    *others, last = sentences
    ended = [text if text.endswith((".", "?")) else f"{text}." for text in others]
    return " ".join([*ended, last])


def _describe(detail: ErrorDetail) -> str:
    """Return the message, with the name of the parameter or member that the user gave."""
    is_given = detail.loc and detail.loc[0] in ("path", "query", "body")
    if not is_given or not detail.loc[1:]:
        return detail.msg
    _, name, *inner = detail.loc
    option = _OPTION_OF_MEMBER.get(name)
    if option is None:
        return f"{'.'.join(detail.loc[1:])}: {detail.msg}"
    number = f" (number {int(inner[0]) + 1})" if inner and inner[0].isdecimal() else ""
    return f"{option}{number}: {detail.msg}"


def _advice(error: Exception) -> str | None:
    if isinstance(error, ServerError) and error.request_id is not None:
        return f"The log of the service has more under the request id {error.request_id}."
    if isinstance(error, NotFound) and is_about_group(error):
        return "The command gleanery groups lists them."
    if isinstance(error, NotFound) and _is_about_route(error):
        return "Check the address of the service."
    return next((text for kind, text in _ADVICE if isinstance(error, kind)), None)


def _is_about_route(error: NotFound) -> bool:
    """Return True if the service does not know the path: its address has another prefix."""
    return all(detail.loc == ("path",) for detail in error.detail) and error.is_explained


def is_about_group(error: NotFound) -> bool:
    """Return True if the group of the request does not exist."""
    return any(detail.loc == ("path", "group_id") for detail in error.detail)
