"""Choice of fields: members of an output, and keys of its ``data``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gleanery.client.exports.errors import InvalidExport

MEMBERS = (
    "source_url",
    "data",
    "id",
    "output_id",
    "root_job_id",
    "create_date",
    "update_date",
    "last_scraped_date",
    "key_hash",
    "value_hash",
    "is_approved",
    "tags",
    "files",
)
"""Members of an output, in the order of the columns."""


@dataclass(frozen=True)
class Field:
    """A member of an output, or a key of its ``data``."""

    member: str
    key: str | None = None
    given: str = field(default="", compare=False)
    """Name that the caller gave."""

    @property
    def column(self) -> str:
        """Name of the column. No two fields have the same."""
        return self.member if self.key is None else f"data_{self.key}"


def read_fields(names: Sequence[str]) -> tuple[Field, ...]:
    """Return the chosen fields, each once.

    A name is a member of an output. Any other name is a key of ``data``, with or without ``data.``
    or, as in the name of its column, ``data_`` before it.
    """
    if not names or not all(names):
        raise InvalidExport("A list of fields needs names, separated by commas")
    return tuple(dict.fromkeys(_read_field(name) for name in names))


def _read_field(name: str) -> Field:
    if name in MEMBERS:
        return Field(name)
    for prefix in ("data.", "data_"):
        if name.startswith(prefix):
            return Field("data", name.removeprefix(prefix), name)
    return Field("data", name, name)
