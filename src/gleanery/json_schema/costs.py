"""Memory of costly schemas: which of them run at a low priority, and which are suspended."""

from __future__ import annotations

import time
from hashlib import sha256
from math import ceil
from typing import NamedTuple

_MEMORY_SECONDS = 60
_MAX_COSTLY_SCHEMAS = 3  # of one organization; with more, all its schemas are costly


class Work(NamedTuple):
    """One kind of request: an organization checks a schema, or data against it."""

    organization_id: int
    schema_hash: bytes
    has_values: bool


def work_of(organization_id: int, schema: str, has_values: bool) -> Work:
    return Work(organization_id, sha256(schema.encode()).digest(), has_values)


class CostMemory:
    """Forgets everything after a minute, because costs depend on the data too.

    It needs no other limit: each entry has taken a second of processor time, or much memory.
    """

    def __init__(self) -> None:
        self._costly: dict[Work, float] = {}  # with the time at which the entry expires
        self._too_costly: dict[Work, float] = {}

    def is_costly(self, work: Work) -> bool:
        now = time.monotonic()
        costly = {entry for entry, expires in self._costly.items() if expires > now}
        of_organization = sum(entry.organization_id == work.organization_id for entry in costly)
        return work in costly or of_organization > _MAX_COSTLY_SCHEMAS

    def suspended_seconds(self, work: Work) -> int:
        """Return for how long the work is suspended; 0 if it is not."""
        return max(0, ceil(self._too_costly.get(work, 0.0) - time.monotonic()))

    def add_costly(self, work: Work) -> None:
        _remember(self._costly, work)

    def add_too_costly(self, work: Work) -> None:
        _remember(self._too_costly, work)


def _remember(entries: dict[Work, float], work: Work) -> None:
    now = time.monotonic()
    for entry in [entry for entry, expires in entries.items() if expires <= now]:
        del entries[entry]
    entries[work] = now + _MEMORY_SECONDS
