"""Stored login of one profile, as the cookies of sessions of Crawlee."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING, Any, Self

from crawlee.sessions import Session

from gleanery import sessions
from gleanery.client.session_models import page_of, prepare
from gleanery.integrations.logins import states
from gleanery.integrations.logins.async_login import AsyncLogin, AsyncSavedSession
from gleanery.integrations.logins.errors import login_expired, login_failed

if TYPE_CHECKING:
    from gleanery.client.session_models import SessionDocument
    from gleanery.sessions import ReadResult

    LoginFunction = Callable[[str], Awaitable[SessionDocument]]
    LoginCheck = Callable[[str, CookieJar], Awaitable[bool]]

_PLAYWRIGHT = "playwright"


class PooledLogin(AsyncSavedSession):
    """Login of one profile. Its cookie jar is used by one session after the other."""

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
                self._stored.problem = login_expired(self._stored.domain, self.profile, True)
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
        self._jar = self.session.cookies.jar  # for an empty jar, the session has one of its own
        return self.session

    async def save(self) -> None:
        """Store the cookies, if a response has changed them."""
        for cookie in self._jar:  # Crawlee forgets which cookies of a browser are for one host
            cookie.domain_specified = cookie.domain.startswith(".")
        state = self._read_jar()
        if states.is_changed(self._loaded, state):
            await self._stored.save(states.with_removed(self._loaded, state))

    def _fill_jar(self) -> None:
        self._jar = sessions.to_cookiejar(sessions.read(self._stored.state, _PLAYWRIGHT)).content
        self._loaded = self._read_jar()

    async def _log_in(self, login: LoginFunction) -> None:
        page, names = page_of(self._stored.domain), self._stored.login_cookies
        prepared = prepare(await login(self.profile), "auto", page)
        found = sessions.read(prepared.content, prepared.format, page)
        jar = sessions.to_cookiejar(found).content
        if not states.has_login(_to_state(found), names) or not await self._passes_check(jar):
            raise login_failed(self._stored.domain, names)
        await self._stored.save_login(prepared.content)

    async def _passes_check(self, jar: CookieJar) -> bool:
        return self._is_logged_in is None or await self._is_logged_in(self.profile, jar)

    def _read_jar(self) -> states.State:
        return _to_state(sessions.from_cookiejar(self._jar, page_of(self._stored.domain)))


def _to_state(found: ReadResult) -> states.State:
    state: states.State = sessions.write(found, _PLAYWRIGHT).content
    return state
