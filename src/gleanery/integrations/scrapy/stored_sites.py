"""The sites whose session a crawl uses."""

from __future__ import annotations

import asyncio
import logging

from gleanery.client import AsyncClient
from gleanery.integrations.scrapy.sites import session_domain

_log = logging.getLogger(__name__)


class StoredSites:
    """Sites of the settings, or else those whose session the service has.

    The list of the service is read once for each profile, so that other sites cost no requests.
    """

    def __init__(self, client: AsyncClient, chosen: frozenset[str]) -> None:
        self._client = client
        self._chosen = chosen
        self._stored: dict[str, frozenset[str | None]] = {}
        self._lock = asyncio.Lock()

    async def has(self, site: str, profile: str) -> bool:
        """Return True if the crawl uses the session of a site and profile."""
        if self._chosen:
            return site in self._chosen
        async with self._lock:
            if profile not in self._stored:
                self._stored[profile] = await self._list(profile)
        return site in self._stored[profile]

    async def _list(self, profile: str) -> frozenset[str | None]:
        summaries = await self._client.sessions(profile=profile)
        if not summaries:
            _log.warning(
                "There is no session of the profile %r, so requests have no login. To store the "
                "cookies of a site, name it in GLEANERY_SESSION_DOMAINS",
                profile,
            )
        return frozenset(session_domain(summary.domain) for summary in summaries)
