"""Browser contexts with a stored login, and downloads that become files."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from playwright.async_api import Browser, BrowserContext, Download, Error, Page

from gleanery.client import AsyncClient, AsyncLease, ClientError
from gleanery.integrations.logins import states
from gleanery.integrations.logins.async_login import AsyncLogin, AsyncSavedSession
from gleanery.integrations.logins.states import (
    LoginExpired,
    SessionChanged,
    login_expired,
    login_failed,
)

if TYPE_CHECKING:
    from gleanery.client import StoredFile

__all__ = ["BrowserSession", "LoginExpired", "SessionChanged", "session", "store_download"]

_log = logging.getLogger("gleanery.integrations")
LoginFunction = Callable[["BrowserSession"], Awaitable[object]]
LoginCheck = Callable[["BrowserSession"], Awaitable[bool]]


def session(
    client: AsyncClient,
    browser: Browser,
    domain: str,
    *,
    profile: str = "default",
    login: LoginFunction | None = None,
    login_cookies: Sequence[str] = (),
    is_logged_in: LoginCheck | None = None,
    allow_empty: bool = False,
    lease: bool = True,
    seconds: int = 300,
    wait: float | None = None,
    replace: bool = False,
    **context_options: Any,
) -> BrowserSession:
    """Return a browser context with the stored session of a domain, as a context manager.

        async with session(client, browser, "shop.example", login=log_in) as shop:
            page = await shop.new_page()

    The session is saved at the end of the block, even after an error other than LoginExpired. If
    the stored login has expired, or there is none, ``login`` is called with the session. It waits
    for a proof of the login, and the result is saved at once. Without it, LoginExpired is raised,
    unless ``allow_empty`` is True.

    ``login_cookies`` are the names of the cookies without which there is no login. Otherwise any
    cookie counts. ``is_logged_in`` is called with the session, and looks at a page of the site.

    The lease lasts ``seconds``, and is renewed until the end of the block. ``wait`` is how long to
    wait for another holder. ``lease=False`` is for logins that several workers use at a time.
    With ``replace``, records that the browser no longer has are deleted at the service, too.
    Other options are those of ``browser.new_context``.
    """
    stored = AsyncLogin(
        client,
        domain,
        profile,
        lease=lease,
        seconds=seconds,
        wait=wait,
        login_cookies=login_cookies,
    )
    return BrowserSession(
        stored, browser, login, is_logged_in, allow_empty, replace, context_options
    )


class BrowserSession(AsyncSavedSession):
    """Browser context with a stored session. ``session`` creates it."""

    _errors = (ClientError, Error)

    def __init__(
        self,
        stored: AsyncLogin,
        browser: Browser,
        login: LoginFunction | None,
        is_logged_in: LoginCheck | None,
        allow_empty: bool,
        replace: bool,
        context_options: dict[str, Any],
    ) -> None:
        super().__init__(stored)
        self._browser = browser
        self._login = login
        self._is_logged_in = is_logged_in
        self._allow_empty = allow_empty
        self._replace = replace
        self._context_options = context_options
        self._context: BrowserContext | None = None
        self._loaded: Any = None
        """State of the context when it was created or last saved."""
        self._needs_login = False
        self._has_warned = False
        """True if the log names the origins with IndexedDB."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._stored.domain!r}, profile={self._stored.profile!r})"

    @property
    def context(self) -> BrowserContext:
        """Browser context of Playwright."""
        if self._context is None:
            raise RuntimeError("The session is not open: use it in a with statement")
        return self._context

    @property
    def needs_login(self) -> bool:
        """True if the stored login had expired, or there was none."""
        return self._needs_login

    @property
    def lease(self) -> AsyncLease | None:
        """Lease of the session; None without one."""
        return self._stored.lease

    @property
    def is_held(self) -> bool:
        """False if the lease has ended: stop using the session, another holder may have it."""
        return self._stored.is_held

    async def new_page(self) -> Page:
        """Open a page in the context."""
        return await self.context.new_page()

    async def log_in(self) -> None:
        """Log in with the function ``login``, and save the session.

        Raise LoginExpired if there is no login then. After an error, the session is not saved, also
        not at the end of the block. If another client has saved the session meanwhile, its version
        is kept.
        """
        if self._login is None:
            raise RuntimeError("There is no function that logs in: give login to session()")
        self._has_failed_login = True
        await self._login(self)
        state: Any = await self._read_state()
        names = self._stored.login_cookies
        if not states.has_login(state, names) or not await self._passes_check():
            raise login_failed(self._stored.domain, names)
        self._has_failed_login = False
        await self._save_at_end()

    async def save(self, *, overwrite: bool = False) -> None:
        """Store the cookies and the local storage of the context now, if they have changed.

        Raise SessionChanged if another client has changed the session meanwhile, unless
        ``overwrite`` is True. Raise LeaseLost if the lease has ended. Nothing is stored then.
        """
        state: Any = await self._read_state()
        if not overwrite and not states.is_changed(self._loaded, state):
            return
        # An empty document would delete everything: only what the browser has lost is deleted.
        replace = self._replace and bool(state["cookies"] or state["origins"])
        document = states.with_removed(self._loaded, state)
        await self._stored.save(document, replace=replace, overwrite=overwrite)
        self._loaded = state

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as exits:
            await exits.enter_async_context(self._stored)
            problem = self._stored.problem
            if problem is not None and self._login is None and not self._allow_empty:
                raise problem
            state: Any = self._stored.state
            self._context = await self._browser.new_context(
                storage_state=state, **self._context_options
            )
            exits.push_async_callback(self._close)
            # A browser shortens an expiry, for example: that is no change by the site.
            self._loaded = await self._context.storage_state()
            if problem is None and not await self._passes_check():
                problem = login_expired(self._stored.domain, self._stored.profile, is_stored=True)
            self._needs_login = problem is not None
            if problem is not None and self._login is not None:
                await self.log_in()
            elif problem is not None and not self._allow_empty:
                raise problem
            self._exits = exits.pop_all()
        return self

    async def _read_state(self) -> Any:
        """Return cookies and local storage. Warn once of IndexedDB, which is not stored."""
        if self._has_warned:
            return await self.context.storage_state()
        state: Any
        try:
            found: Any = await self.context.storage_state(indexed_db=True)
            state, origins = states.take_indexed_db(found)
        except Error:  # a value of IndexedDB that Playwright cannot write, or the browser has ended
            state, origins = await self.context.storage_state(), ["a page"]
        if origins:
            self._has_warned = True
            _log.warning(
                "The session of %s is not saved completely: IndexedDB of %s is not kept: only "
                "cookies and local storage are supported",
                self._stored.domain,
                ", ".join(origins),
            )
        return state

    async def _passes_check(self) -> bool:
        return self._is_logged_in is None or await self._is_logged_in(self)

    async def _close(self) -> None:
        try:
            await self.context.close()
        except Error as error:  # the browser has ended
            _log.debug("The context was not closed: %s", error)


async def store_download(
    client: AsyncClient,
    download: Download,
    *,
    source_url: str | None = None,
    etag: str | None = None,
    filename: str | None = None,
    content_type: str | None = None,
) -> StoredFile:
    """Wait for a download, store it as a file, and return its id, which an output can reference.

    ``source_url`` is that of the download, unless it is one of a page (``blob:`` or ``data:``), and
    ``filename`` the name that the site suggests. Bytes that the service has are not sent again.
    """
    if source_url is None and download.url.startswith(("http://", "https://")):
        source_url = download.url
    filename = filename or download.suggested_filename
    with TemporaryDirectory(prefix="gleanery-") as folder:
        return await client.upload(
            await _local_path(download, Path(folder)),
            source_url=source_url,
            etag=etag,
            filename=filename,
            content_type=content_type,
        )


async def _local_path(download: Download, folder: Path) -> Path:
    """Return the path of a complete download. A remote browser has it on another machine."""
    failure = await download.failure()
    if failure is not None:
        raise Error(f"The download of {download.url} has failed: {failure}")
    try:
        return Path(await download.path())
    except Error:
        copy = folder / "download"
        await download.save_as(copy)
        return copy
