"""The errors of a session that cannot be read or written."""

from __future__ import annotations


class InvalidSession(ValueError):
    """A document, a record or a URL is invalid. The message never contains a value."""


class MissingUrl(InvalidSession):
    """A document belongs to a page, and nobody says to which one."""
