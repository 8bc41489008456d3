"""Sessions: the cookies and the local storage of a site, in the formats of browsers and tools.

Single cookies and entries are those of the profile ``default``. The Link header connects the pages
of their lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from gleanery.client._async.concurrency import run_in_thread
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.pages import RecordList
from gleanery.client.requests import Parameter, Request, condition, path, to_json, write_headers
from gleanery.client.responses import decode, next_cursor

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    from gleanery.client._async.leases import AsyncLease
    from gleanery.client.session_models import (
        ImportResult,
        NewCookie,
        NewEntry,
        SessionDocument,
        SessionExport,
        SessionSummary,
        StoredCookie,
        StoredEntry,
        WriteCounts,
    )
    from gleanery.sessions import SessionState


DEFAULT_PROFILE = "default"
_PLAYWRIGHT = "playwright"
_COOKIES_PATH = path("cookies")
_STORAGE_PATH = path("local-storage")

T = TypeVar("T")


class AsyncSession:
    """Session of one domain and profile at the service.

        session = client.session("shop.example")
        context = await browser.new_context(storage_state=await session.playwright())
        ...
        await session.store(await context.storage_state())

    A leading dot of the domain includes its subdomains.
    """

    def __init__(
        self,
        requester: AsyncRequester,
        domain: str,
        profile: str,
        group: str | int | None,
        url: str | None,
    ) -> None:
        self._requester = requester
        self.domain = domain
        self.profile = profile
        self._group = group
        self._url = url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.domain!r}, profile={self.profile!r})"

    async def export(self, format: str = _PLAYWRIGHT, *, url: str | None = None) -> SessionExport:  # noqa: A002
        """Return the session in a format, without expired records.

        With ``url``, only what the page at this URL sees. The formats ``cookie``, ``set-cookie``
        and ``curl`` need it. The service logs who exports a session.
        """
        from gleanery.client.session_models import read_export

        parameters = {
            "format": format,
            "domain": self.domain,
            "profile": self.profile,
            "group_id": self._group,
            "url": url or self._url,
        }
        request = Request("GET", path("sessions", "export"), parameters)
        return read_export(await self._requester.send(request), format)

    async def state(self) -> SessionState:
        """Return the session as cookies and entries, which ``gleanery.sessions`` converts.

        Cookies that every browser rejects are left out. ``export`` counts them in its losses.
        """
        from gleanery import sessions

        exported = await self.export(_PLAYWRIGHT)
        return (await run_in_thread(sessions.read, exported.body, _PLAYWRIGHT)).state

    async def playwright(self) -> dict[str, Any]:
        """Return the session for ``new_context(storage_state=…)`` of Playwright."""
        content: dict[str, Any] = (await self.export(_PLAYWRIGHT)).content
        return content

    async def cookiejar(self) -> CookieJar:
        """Return the cookies for requests, httpx2, httpx and urllib."""
        from gleanery import sessions

        content: CookieJar = sessions.to_cookiejar(await self.state()).content
        return content

    async def header(self, url: str) -> dict[str, str]:
        """Return the Cookie header of a request to this URL; empty if the page gets no cookie."""
        line = (await self.export("cookie", url=url)).text
        value = line.removeprefix("Cookie:").strip()
        return {"Cookie": value} if value else {}

    async def store(
        self,
        document: SessionDocument,
        *,
        format: str = "auto",  # noqa: A002
        url: str | None = None,
        replace: bool = False,
        dry_run: bool = False,
        if_match: str | None = None,
    ) -> ImportResult:
        """Store all records of a document, including those of other hosts, or none.

        It can be a state, a cookie jar, the file of a browser or tool as a path, its text or its
        JSON value. ``url`` is the page of a document that does not say it. With ``replace``, other
        records of its hosts are deleted. With ``dry_run``, nothing is stored.

        ``if_match`` is the ``etag`` of an export: if the records have changed since, nothing is
        stored, and the error is Conflict. After a lost response, Conflict can also mean that this
        call has stored them.
        """
        from gleanery.client.session_models import page_of

        return await import_document(
            self._requester,
            document,
            format,
            url or self._url or page_of(self.domain),
            if_match,
            {
                "profile": self.profile,
                "group_id": self._group,
                "replace": replace,
                "dry_run": dry_run,
            },
        )

    async def delete(self, *, if_match: str | None = None) -> int:
        """Delete the records of exactly this host and profile, and end its leases.

        Records of subdomains stay. Return the number of deleted records.
        """
        from gleanery.client.session_models import Deleted

        parameters = {"domain": self.domain, "profile": self.profile}
        request = Request("DELETE", path("sessions"), parameters, condition(if_match))
        return (await self._requester.fetch(request, Deleted)).deleted

    def lease(
        self, seconds: int = 300, *, holder: str | None = None, wait: float | None = None
    ) -> AsyncLease:
        """Return a lease to use in an ``async with`` statement, which acquires it.

        Others get Conflict until it is returned, or ``seconds`` (1 to 3600) after its last
        renewal. ``wait`` is how long to wait for another holder; without it, the error is Conflict
        at once. ``holder`` names this worker in the list of leases.
        """
        from gleanery.client._async.leases import AsyncLease

        return AsyncLease(self._requester, self.domain, self.profile, seconds, holder, wait)


async def import_document(
    requester: AsyncRequester,
    document: SessionDocument,
    format_: str,
    url: str | None,
    if_match: str | None,
    parameters: dict[str, str | int | bool | None],
) -> ImportResult:
    """Send a document to the service, and return what was stored."""
    from msgspec.structs import replace as with_members

    from gleanery.client.responses import decode
    from gleanery.client.session_models import ImportResult, prepare

    prepared = await run_in_thread(prepare, document, format_, url)
    response = await requester.send(
        Request(
            "POST",
            path("sessions", "import"),
            {**parameters, "format": prepared.format, "url": url},
            condition(if_match),
            await run_in_thread(prepared.to_body),
        )
    )
    result = decode(response, ImportResult)
    return with_members(
        result, losses=[*prepared.losses, *result.losses], etag=response.headers.get("etag", "")
    )


class AsyncSessions:
    """Methods of the client for sessions."""

    _requester: AsyncRequester

    async def sessions(
        self, domain: str | None = None, *, profile: str | None = None
    ) -> list[SessionSummary]:
        """Return a summary of each host and profile with cookies or local storage, no values."""
        from gleanery.client.session_models import SessionSummary

        parameters = {"domain": domain, "profile": profile, "limit": 1000}
        return await _read_list(self._requester, path("sessions"), parameters, SessionSummary)

    def session(
        self,
        domain: str,
        *,
        profile: str = DEFAULT_PROFILE,
        group: str | int | None = None,
        url: str | None = None,
    ) -> AsyncSession:
        """Return the session of a domain. Its methods call the service.

        ``profile`` names an account, if there are several. ``group`` is the group whose local
        storage is used: its name or number. ``url`` limits exports to what one page sees.
        """
        return AsyncSession(self._requester, domain, profile, group, url)

    async def import_session(
        self,
        document: SessionDocument,
        *,
        format: str = "auto",  # noqa: A002
        profile: str = DEFAULT_PROFILE,
        group: str | int | None = None,
        url: str | None = None,
        replace: bool = False,
        dry_run: bool = False,
        if_match: str | None = None,
    ) -> ImportResult:
        """Store a document whose records say their hosts; ``AsyncSession.store`` explains it."""
        parameters = {
            "profile": profile,
            "group_id": group,
            "replace": replace,
            "dry_run": dry_run,
        }
        return await import_document(self._requester, document, format, url, if_match, parameters)


class AsyncCookies:
    """Methods of the client for single cookies."""

    _requester: AsyncRequester

    async def cookies(self, domain: str | None = None) -> RecordList[StoredCookie]:
        """Return the stored cookies in the order of their creation, including expired ones.

        With ``domain``, only those that a page on this host gets.
        """
        from gleanery.client.session_models import StoredCookie

        return await _read_list(self._requester, _COOKIES_PATH, {"domain": domain}, StoredCookie)

    async def store_cookies(
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
            "POST", _COOKIES_PATH, headers=write_headers(if_match), body=to_json(list(cookies))
        )
        return await self._requester.fetch(request, WriteCounts)

    async def delete_cookies(
        self, domain: str, *, name: str | None = None, if_match: str | None = None
    ) -> int:
        """Delete the cookies of exactly this domain, with its leading dot. Return their number."""
        from gleanery.client.session_models import Deleted

        parameters = {"domain": domain, "name": name}
        request = Request("DELETE", _COOKIES_PATH, parameters, condition(if_match))
        return (await self._requester.fetch(request, Deleted)).deleted


class AsyncLocalStorage:
    """Methods of the client for single local-storage entries."""

    _requester: AsyncRequester

    async def local_storage(
        self, domain: str | None = None, *, for_group: int | None = None
    ) -> RecordList[StoredEntry]:
        """Return the stored entries in the order of their creation, including expired ones.

        With ``domain``, only those that a page on this host sees. With ``for_group``, only those
        that the group with this number uses: its own, and those for every group.
        """
        from gleanery.client.session_models import StoredEntry

        parameters = {"domain": domain, "for_group": for_group}
        return await _read_list(self._requester, _STORAGE_PATH, parameters, StoredEntry)

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
            "POST", _STORAGE_PATH, headers=write_headers(if_match), body=to_json(list(entries))
        )
        return await self._requester.fetch(request, WriteCounts)

    async def delete_local_storage(
        self, domain: str, *, key: str | None = None, if_match: str | None = None
    ) -> int:
        """Delete the entries of exactly this domain, with its leading dot. Return their number."""
        from gleanery.client.session_models import Deleted

        parameters = {"domain": domain, "key": key}
        request = Request("DELETE", _STORAGE_PATH, parameters, condition(if_match))
        return (await self._requester.fetch(request, Deleted)).deleted


async def _read_list(
    requester: AsyncRequester, target: str, parameters: Mapping[str, Parameter], kind: type[T]
) -> RecordList[T]:
    """Read all pages of a list.

    If the list changes meanwhile, its version is that before the change: a write with it fails.
    """
    response = await requester.send(Request("GET", target, parameters))
    found = RecordList(decode(response, list[kind]), response.headers.get("etag", ""))  # type: ignore[valid-type]
    while (cursor := next_cursor(response)) is not None:
        response = await requester.send(Request("GET", target, {**parameters, "cursor": cursor}))
        found.extend(decode(response, list[kind]))  # type: ignore[valid-type]
    return found
