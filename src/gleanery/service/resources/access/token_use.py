"""The last use of each token: noted in memory, and stored by the sweep."""

from __future__ import annotations

from collections.abc import Callable

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import organizations
from gleanery.service.storage.database import Database

_INTERVAL = 30 * timestamps.SECOND  # less than a sweep, so that each sweep stores newer uses
_MAX_NOTED = 10_000


class TokenUse:
    """Notes when tokens are used, without a write per request."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._noted: dict[int, int] = {}
        self._stored: dict[int, int] = {}

    def note(self, token_id: int) -> None:
        """Note a use, unless a recent one is stored."""
        now = self._clock()
        if now - self._stored.get(token_id, 0) >= _INTERVAL and len(self._noted) < _MAX_NOTED:
            self._noted[token_id] = now

    async def store(self) -> None:
        """Store what was noted. After a failure, the next call tries again."""
        if not self._noted:
            return
        noted = dict(self._noted)
        await organizations.record_token_use(self._database, noted, _INTERVAL)
        if len(self._stored) >= _MAX_NOTED:
            self._stored.clear()
        self._stored |= noted
        self._noted = {id_: at for id_, at in self._noted.items() if noted.get(id_) != at}
