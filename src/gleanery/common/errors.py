"""The bases of errors: those of the library, and those that a command explains in one sentence."""

from __future__ import annotations


class ClientError(Exception):
    """Error of the client; every other error of the library is one."""

    attempts = 1
    """Number of times that the request was sent."""

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} (after {self.attempts} attempts)" if self.attempts > 1 else message


class ExplainedError(Exception):
    """An error whose message says what to do. A command prints it without a traceback."""

    @property
    def explanation(self) -> str:
        """The message for the person at the command line."""
        return str(self)


class SettingsError(ExplainedError):
    """A setting or its environment is wrong. The message says what to do."""
