"""The base class of the library's errors, which the client and the export files share."""

from __future__ import annotations


class ClientError(Exception):
    """Error of the client; every other error of the library is one."""

    attempts = 1
    """Number of times that the request was sent."""

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} (after {self.attempts} attempts)" if self.attempts > 1 else message


class SettingsError(Exception):
    """A setting or its environment is wrong. The message says what to do."""
