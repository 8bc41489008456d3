"""What cannot be read or kept: the errors of a session, and the losses of a conversion.

Losses are counted, and described in one sentence each.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class InvalidSession(ValueError):
    """A document, a record or a URL is invalid. The message never contains a value."""


class MissingUrl(InvalidSession):
    """A document belongs to a page, and nobody says to which one."""


_AUTHORIZATION = (
    "The Authorization header is not kept: a session has only cookies and local storage"
)


class Loss(NamedTuple):
    """One kind of loss. The sentence contains no name and no value."""

    subject: str
    """What is lost: a field of ``Cookie``, ``cookie``, ``local_storage``, ``indexed_db``,
    ``authorization``, ``priority`` or ``member``."""
    records: int
    """Number of records that are affected."""
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class Losses:
    """Collects the losses of one conversion."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str, str]]()

    def add(self, subject: str, reason: str, noun: str = "cookie", count: int = 1) -> None:
        """Add a loss, if the count is not 0. Equal reasons become one sentence with the sum."""
        if count:
            self._counts[subject, reason, noun] += count

    def add_authorization(self, count: int = 1) -> None:
        """Add requests whose login is in the Authorization header, if there are any."""
        self.add("authorization", _AUTHORIZATION, "request", count)

    def found(self) -> tuple[Loss, ...]:
        return tuple(
            Loss(subject, count, f"{reason} ({count} {_plural(noun, count)}).")
            for (subject, reason, noun), count in self._counts.items()
        )


def _plural(noun: str, count: int) -> str:
    if count == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
