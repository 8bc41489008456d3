"""Which worker of Citus has the rows of an organization."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gleanery.errors import Overloaded, Unavailable
from gleanery.storage.database import Row
from gleanery.storage.tenancy import NO_TENANT

_MAX_AGE_SECONDS = 60.0  # an operator may move shards to another worker
_MAX_KNOWN = 10_000
# All tenant tables are distributed in the same way. The catalog is the coordinator's. A shard has
# more than one place if citus.shard_replication_factor was greater than 1 at the distribution.
_WORKER = """
SELECT groupid, format('%s:%s', nodename, nodeport)
FROM pg_dist_placement JOIN pg_dist_node USING (groupid)
WHERE noderole = 'primary'
    AND shardid = get_shard_id_for_distribution_column('outputs', CAST($1 AS BIGINT))
ORDER BY groupid LIMIT 1
"""


class _Worker(NamedTuple):
    number: int
    address: str
    known_until: float


_UNKNOWN = _Worker(-2, "", 0.0)  # its number is neither a worker nor ALL_TENANTS


class WorkerPlaces:
    """The workers of organizations, each read from the catalog once per minute of use."""

    def __init__(self, fetch: Callable[[str, int], Awaitable[Sequence[Row]]]) -> None:
        self._fetch = fetch
        self._known: dict[int, _Worker] = {}

    def worker_of(self, organization_id: int) -> int:
        """Return a number for the worker. Work without a tenant has a number of its own."""
        if organization_id <= NO_TENANT:
            return organization_id
        return self._known.get(organization_id, _UNKNOWN).number

    def describe(self, organization_id: int) -> str:
        """Says for the log which worker an organization needs; empty if that is not known."""
        address = self._known.get(organization_id, _UNKNOWN).address
        return address and f"organization {organization_id} is on the worker {address} of Citus"

    async def find(self, organization_id: int) -> None:
        """Read the worker of the organization, unless it is known."""
        now = time.monotonic()
        known = self._known.get(organization_id, _UNKNOWN)
        if organization_id <= NO_TENANT or now < known.known_until:
            return
        with suppress(Overloaded, Unavailable):  # what was known holds
            [[number, address]] = await self._fetch(_WORKER, organization_id)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[organization_id] = _Worker(number, address, now + _MAX_AGE_SECONDS)
