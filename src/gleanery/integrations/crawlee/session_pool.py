"""Session pool of Crawlee whose sessions have stored logins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from gleanery.client import AsyncClient
from gleanery.integrations.crawlee.login_pool import LoginPool
from gleanery.integrations.crawlee.pooled_login import PooledLogin
from gleanery.integrations.logins.async_login import AsyncLogin

if TYPE_CHECKING:
    from crawlee.sessions import SessionPool

    from gleanery.integrations.crawlee.pooled_login import LoginCheck, LoginFunction

_LOGIN_LIMITS = {"max_usage_count": 1_000_000_000, "max_age": timedelta(days=3650)}
"""A login is not better after a change of the session, so Crawlee's limits of use do not apply."""


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
            pooled = PooledLogin(stored, login, is_logged_in, options)
            logins.append(await exits.enter_async_context(pooled))
        yield LoginPool(logins, **pool_options)


def _check_options(profiles: Sequence[str], pool_options: dict[str, Any]) -> None:
    if isinstance(profiles, str) or not profiles:
        raise TypeError("profiles must be a list of names that is not empty")
    if pool_options.get("persistence_enabled"):
        raise TypeError("The service stores the sessions: persistence_enabled must be False")
    if "max_pool_size" in pool_options:
        raise TypeError("max_pool_size cannot be given: each profile has one session")
