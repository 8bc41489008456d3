"""Requests of the client, before they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from urllib.parse import quote, urlencode

Parameter = str | int | bool | date | None
"""Value of a query parameter; None leaves it out. A datetime is a date, too."""


@dataclass(slots=True)
class Request:
    """One request. It can be sent several times."""

    method: str
    path: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict, repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    extra_seconds: float = 0
    """Time that the service may wait on purpose before it responds."""
    is_retried: bool = True
    retries: int = 0
    """Number of retries until now."""

    @property
    def target(self) -> str:
        """Return the path with the query."""
        given = {
            name: render(value) for name, value in self.parameters.items() if value is not None
        }
        return f"{self.path}?{urlencode(given)}" if given else self.path


def path(*segments: str) -> str:
    """Return the path under ``/v1``. A segment can contain any character."""
    return "/".join(["/v1", *(quote(segment, safe="") for segment in segments)])


def render(value: str | int | bool | date) -> str:
    """Return the text of a query parameter. A datetime without a zone is in UTC."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else str(value)
