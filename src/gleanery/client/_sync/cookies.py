# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""Single cookies of the profile ``default``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gleanery.client._sync.record_lists import read_list
from gleanery.client._sync.requester import Requester
from gleanery.client.record_lists import RecordList, condition, to_json, write_headers
from gleanery.client.requests import Request, path

if TYPE_CHECKING:
    from gleanery.client.session_models import NewCookie, StoredCookie, WriteCounts

_PATH = path("cookies")


class Cookies:
    """Methods of the client for single cookies."""

    _requester: Requester

    def cookies(self, domain: str | None = None) -> RecordList[StoredCookie]:
        """Return the stored cookies in the order of their creation, also expired ones.

        With ``domain``, only those that a page on this host gets.
        """
        from gleanery.client.session_models import StoredCookie

        return read_list(self._requester, _PATH, {"domain": domain}, StoredCookie)

    def store_cookies(
        self,
        cookies: Iterable[NewCookie | StoredCookie | Mapping[str, Any]],
        *,
        if_match: str | None = None,
    ) -> WriteCounts:
        """Store cookies, all or none. A cookie replaces one with its domain, path and name.

        A mapping can have the spellings of browsers, such as ``httpOnly``. ``if_match`` is the
        ``etag`` of a list: if the list has changed since, nothing is stored, and the error is
        Conflict. After a lost response, Conflict can also mean that this call has stored them.
        """
        from gleanery.client.session_models import WriteCounts

        request = Request(
            "POST", _PATH, headers=write_headers(if_match), body=to_json(list(cookies))
        )
        return self._requester.fetch(request, WriteCounts)

    def delete_cookies(
        self, domain: str, *, name: str | None = None, if_match: str | None = None
    ) -> int:
        """Delete the cookies of exactly this domain, with its leading dot. Return their number."""
        from gleanery.client.session_models import Deleted

        parameters = {"domain": domain, "name": name}
        request = Request("DELETE", _PATH, parameters, condition(if_match))
        return (self._requester.fetch(request, Deleted)).deleted
