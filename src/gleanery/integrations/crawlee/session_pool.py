"""Session pool of Crawlee whose sessions have stored logins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING, Any, Self

from crawlee.sessions import Session, SessionPool

from gleanery.client import AsyncClient
from gleanery.client.session_models import page_of, prepare
from gleanery.integrations.logins import states
from gleanery.integrations.logins.async_login import AsyncLogin, AsyncSavedSession
from gleanery.sessions import from_cookiejar, read, to_cookiejar, write

if TYPE_CHECKING:
    from gleanery.client.session_models import SessionDocument
    from gleanery.sessions import ReadResult

    LoginFunction = Callable[[str], Awaitable[SessionDocument]]
    LoginCheck = Callable[[str, CookieJar], Awaitable[bool]]

_LOGIN_LIMITS = {"max_usage_count": 1_000_000_000, "max_age": timedelta(days=3650)}
"""A login is not better after a change of the session, so Crawlee's limits of use do not apply."""
_PLAYWRIGHT = "playwright"


@asynccontextmanager
async def session_pool(
    client: AsyncClient,
    domain: str,
    *,
    profiles: Sequence[str] = ("default",),
    login: LoginFunction | None = None,
    login_cookies: Sequence[str] = (),
    is_logged_in: LoginCheck | None = None,
    lease: bool = True,
    seconds: int = 300,
    wait: float | None = None,
    session_options: dict[str, Any] | None = None,
    **pool_options: Any,
) -> AsyncIterator[SessionPool]:
    """Create a pool with one session for each profile of a domain, with its stored cookies.

        async with session_pool(client, "shop.example", profiles=["ada", "grace"]) as pool:
            await ParselCrawler(session_pool=pool).run([...])

    The id of a session is its profile. At the end of the block, changed cookies are saved, also
    after an error other than LoginExpired. If a profile has no valid login, ``login`` is called
    with its name, and returns the cookies of a new login: a cookie jar, or another document that
    ``client.session().store`` takes. Without it, LoginExpired is raised.

    ``login_cookies`` are the names of the cookies without which there is no login. Otherwise any
    cookie counts. ``is_logged_in`` is called with a profile and its cookie jar, and asks the site.

    The lease is as that of ``client.session(domain).lease(seconds, wait=…)``. When it has ended,
    the pool raises LeaseLost, which ends the crawl. ``session_options`` are those of ``Session``,
    and other options those of ``SessionPool``.
    """
    _check_options(profiles, pool_options)
    async with AsyncExitStack() as exits:
        logins = []
        for name in sorted(set(profiles)):  # workers that wait for each other take one order
            stored = AsyncLogin(
                client,
                domain,
                name,
                lease=lease,
                seconds=seconds,
                wait=wait,
                login_cookies=login_cookies,
            )
            options = _LOGIN_LIMITS | (session_options or {})
            pooled = _PooledLogin(stored, login, is_logged_in, options)
            logins.append(await exits.enter_async_context(pooled))
        yield _LoginPool(logins, **pool_options)


def _check_options(profiles: Sequence[str], pool_options: dict[str, Any]) -> None:
    if isinstance(profiles, str) or not profiles:
        raise TypeError("profiles must be a list of names that is not empty")
    if pool_options.get("persistence_enabled"):
        raise TypeError("The service stores the sessions: persistence_enabled must be False")
    if "max_pool_size" in pool_options:
        raise TypeError("max_pool_size cannot be given: each profile has one session")


class _LoginPool(SessionPool):
    """Pool whose sessions have the profiles of their logins as ids.

    A session that Crawlee has retired, for example after the status 403, is replaced by another one
    with the same login: otherwise the requests that are bound to the profile would fail.
    """

    def __init__(self, logins: Sequence[_PooledLogin], **options: Any) -> None:
        super().__init__(
            max_pool_size=len(logins), create_session_function=self._create_session, **options
        )
        self._logins = logins

    async def __aenter__(self) -> SessionPool:
        for login in self._logins:  # a crawler that runs again starts with an empty pool
            login.session = None
        return await super().__aenter__()

    async def get_session(self) -> Session:
        """Return a random session. Raise LeaseLost if the lease of a login has ended."""
        self._renew()
        return await super().get_session()

    async def get_session_by_id(self, session_id: str) -> Session | None:
        """Return the session of a profile. Raise LeaseLost if the lease of a login has ended."""
        self._renew()
        return await super().get_session_by_id(session_id)

    def _renew(self) -> None:
        """Replace the sessions that are no longer usable."""
        for login in self._logins:
            login.require_held()
        if all(login.has_session for login in self._logins):
            return
        self._remove_retired_sessions()
        for login in self._logins:
            if not login.has_session:
                self.add_session(login.create_session())

    def _create_session(self) -> Session:
        missing = (login for login in self._logins if not login.has_session)
        return next(missing, self._logins[0]).create_session()


class _PooledLogin(AsyncSavedSession):
    """Stored login of one profile. Its cookie jar is used by one session after the other."""

    def __init__(
        self,
        stored: AsyncLogin,
        login: LoginFunction | None,
        is_logged_in: LoginCheck | None,
        session_options: dict[str, Any],
    ) -> None:
        super().__init__(stored)
        self._login = login
        self._is_logged_in = is_logged_in
        self._session_options = session_options
        self.profile = stored.profile
        self.session: Session | None = None
        self._jar = CookieJar()
        self._loaded: states.State = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as exits:
            await exits.enter_async_context(self._stored)
            self._fill_jar()
            if self._stored.problem is None and not await self._passes_check(self._jar):
                self._stored.problem = states.login_expired(self._stored.domain, self.profile, True)
            if self._stored.problem is not None and self._login is not None:
                await self._log_in(self._login)
                self._fill_jar()
            if self._stored.problem is not None:
                raise self._stored.problem
            self._exits = exits.pop_all()
        return self

    @property
    def has_session(self) -> bool:
        """True if there is a session that Crawlee may use."""
        return self.session is not None and self.session.is_usable

    def require_held(self) -> None:
        """Raise LeaseLost if the lease of the login has ended."""
        self._stored.require_held()

    def create_session(self) -> Session:
        """Return a new session with the present cookies."""
        self.session = Session(id=self.profile, cookies=self._jar, **self._session_options)
        self._jar = self.session.cookies.jar  # the session replaces an empty jar
        return self.session

    async def save(self) -> None:
        """Store the cookies, if a response has changed them."""
        for cookie in self._jar:  # Crawlee forgets which cookies of a browser are for one host
            cookie.domain_specified = cookie.domain.startswith(".")
        state = self._read_jar()
        if states.is_changed(self._loaded, state):
            await self._stored.save(states.with_removed(self._loaded, state))

    def _fill_jar(self) -> None:
        self._jar = to_cookiejar(read(self._stored.state, _PLAYWRIGHT)).content
        self._loaded = self._read_jar()

    async def _log_in(self, login: LoginFunction) -> None:
        page, names = page_of(self._stored.domain), self._stored.login_cookies
        prepared = prepare(await login(self.profile), "auto", page)
        found = read(prepared.content, prepared.format, page)
        jar = to_cookiejar(found).content
        if not states.has_login(_to_state(found), names) or not await self._passes_check(jar):
            raise states.login_failed(self._stored.domain, names)
        await self._stored.save_login(prepared.content)

    async def _passes_check(self, jar: CookieJar) -> bool:
        return self._is_logged_in is None or await self._is_logged_in(self.profile, jar)

    def _read_jar(self) -> states.State:
        return _to_state(from_cookiejar(self._jar, page_of(self._stored.domain)))


def _to_state(found: ReadResult) -> states.State:
    state: states.State = write(found, _PLAYWRIGHT).content
    return state
