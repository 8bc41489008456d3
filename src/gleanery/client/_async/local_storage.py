"""Single local-storage entries of the profile ``default``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gleanery.client._async.record_lists import read_list
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.record_lists import RecordList, condition, to_json, write_headers
from gleanery.client.requests import Request, path

if TYPE_CHECKING:
    from gleanery.client.session_models import NewEntry, StoredEntry, WriteCounts

_PATH = path("local-storage")


class AsyncLocalStorage:
    """Methods of the client for single local-storage entries."""

    _requester: AsyncRequester

    async def local_storage(
        self, domain: str | None = None, *, for_group: int | None = None
    ) -> RecordList[StoredEntry]:
        """Return the stored entries in the order of their creation, also expired ones.

        With ``domain``, only those that a page on this host sees. With ``for_group``, only those
        that the group with this number uses: its own, and those for every group.
        """
        from gleanery.client.session_models import StoredEntry

        parameters = {"domain": domain, "for_group": for_group}
        return await read_list(self._requester, _PATH, parameters, StoredEntry)

    async def store_local_storage(
        self,
        entries: Iterable[NewEntry | StoredEntry | Mapping[str, Any]],
        *,
        if_match: str | None = None,
    ) -> WriteCounts:
        """Store entries, all or none. An entry replaces one with its domain, path and key.

        ``if_match`` is the ``etag`` of a list: if the list has changed since, nothing is stored,
        and the error is Conflict. After a lost response, Conflict can also mean that this call has
        stored them.
        """
        from gleanery.client.session_models import WriteCounts

        request = Request(
            "POST", _PATH, headers=write_headers(if_match), body=to_json(list(entries))
        )
        return await self._requester.fetch(request, WriteCounts)

    async def delete_local_storage(
        self, domain: str, *, key: str | None = None, if_match: str | None = None
    ) -> int:
        """Delete the entries of exactly this domain, with its leading dot. Return their number."""
        from gleanery.client.session_models import Deleted

        parameters = {"domain": domain, "key": key}
        request = Request("DELETE", _PATH, parameters, condition(if_match))
        return (await self._requester.fetch(request, Deleted)).deleted
