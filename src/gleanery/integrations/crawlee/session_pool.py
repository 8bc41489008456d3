"""Session pool of Crawlee whose sessions have stored logins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING, Any, Self

from crawlee.sessions import Session, SessionPool

from gleanery.client import AsyncClient, sessions
from gleanery.integrations.logins.async_login import AsyncLogin, AsyncSavedSession

if TYPE_CHECKING:
    from gleanery.client.session_documents import SessionDocument

    LoginFunction = Callable[[str], Awaitable[SessionDocument]]

_LOGIN_LIMITS = {"max_usage_count": 1_000_000_000, "max_age": timedelta(days=3650)}
"""A login is not better after a change of the session, so Crawlee's limits of use do not apply."""


@asynccontextmanager
async def session_pool(
    client: AsyncClient,
    domain: str,
    *,
    profiles: Sequence[str] = ("default",),
    login: LoginFunction | None = None,
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
    after an error. If a profile has no valid cookies, ``login`` is called with its name, and
    returns those of a new login: a cookie jar, or another document that ``client.session().store``
    takes. Without it, LoginExpired is raised.

    The lease is as that of ``client.session(domain).lease(seconds, wait=…)``. ``session_options``
    are those of ``Session``, and other options those of ``SessionPool``.
    """
    if isinstance(profiles, str) or not profiles:
        raise TypeError("profiles must be a list of names that is not empty")
    if pool_options.get("persistence_enabled"):
        raise TypeError("The service stores the sessions: persistence_enabled must be False")
    async with AsyncExitStack() as exits:
        logins = [
            await exits.enter_async_context(
                _PooledLogin(
                    AsyncLogin(client, domain, name, lease=lease, seconds=seconds, wait=wait), login
                )
            )
            for name in sorted(set(profiles))  # workers that wait for each other take one order
        ]
        factory = _SessionFactory(logins, _LOGIN_LIMITS | (session_options or {}))
        pool_options.setdefault("max_pool_size", len(logins))
        yield SessionPool(create_session_function=factory.create, **pool_options)


class _PooledLogin(AsyncSavedSession):
    """Login of one profile. Its cookie jar is used by one session after the other."""

    def __init__(self, stored: AsyncLogin, login: LoginFunction | None) -> None:
        super().__init__(stored)
        self._login = login
        self.profile = stored.profile
        self.jar = CookieJar()
        self.session: Session | None = None
        self._loaded: frozenset[tuple[Any, ...]] = frozenset()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as exits:
            await exits.enter_async_context(self._stored)
            if self._stored.problem is not None and self._login is not None:
                await self._stored.save_login(await self._login(self.profile))
            if self._stored.problem is not None:
                raise self._stored.problem
            state = sessions.read(self._stored.state, "playwright")
            self.jar = sessions.to_cookiejar(state).content
            self._loaded = _content(self.jar)
            self._exits = exits.pop_all()
        return self

    async def save(self) -> None:
        """Store the cookies, if a response has changed them."""
        if _content(self.jar) != self._loaded:
            for cookie in self.jar:  # Crawlee forgets which cookies of a browser are for one host
                cookie.domain_specified = cookie.domain.startswith(".")
            await self._stored.save(self.jar)


class _SessionFactory:
    """Creates the sessions of a pool: one for each login, and another one after it is retired."""

    def __init__(self, logins: Sequence[_PooledLogin], options: dict[str, Any]) -> None:
        self._logins = logins
        self._options = options
        self._created = 0

    def create(self) -> Session:
        login = self._next_login()
        session = Session(id=login.profile, cookies=login.jar, **self._options)
        login.jar = session.cookies.jar  # for an empty jar, the session has one of its own
        login.session = session
        return session

    def _next_login(self) -> _PooledLogin:
        self._created += 1
        for login in self._logins:
            if login.session is None or not login.session.is_usable:
                return login
        return self._logins[self._created % len(self._logins)]


def _content(jar: CookieJar) -> frozenset[tuple[Any, ...]]:
    return frozenset((one.domain, one.path, one.name, one.value, one.expires) for one in jar)
