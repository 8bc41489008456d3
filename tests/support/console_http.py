"""Requests of the console without a browser, for the tests of its login."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx2

from gleanery.common.settings import Settings
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import console_sessions, organizations
from gleanery.service.storage.database import Engine
from gleanery.service.storage.engines import open_engine
from tests.support.console import PERSON
from tests.support.service import Client

T = TypeVar("T")
OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


def on_engine(settings: Settings, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Runs work on the database of a service, also while Playwright occupies the event loop."""

    async def run() -> T:
        async with open_engine(settings) as engine:
            return await work(engine)

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, run()).result()


def sign_in(stranger: Client, **body: Any) -> httpx2.Response:
    """Sends a login as the console's page does."""
    body = {"person": PERSON} | body
    return stranger.post("/console/api/login", json=body, headers=OWN_PAGE)


def credentials(answer: httpx2.Response) -> dict[str, str]:
    """The headers that the console's page sends after this login."""
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return OWN_PAGE | {"Cookie": cookie, "Gleanery-Session-Key": answer.json()["key"]}


def new_link(
    settings: Settings, token_id: int, person: str | None = None, now: int | None = None
) -> str:
    """The secret of a new login link."""

    async def create(engine: Engine) -> str:
        grant = await organizations.find_grant_by_id(engine, token_id)
        assert grant is not None
        time = timestamps.now() if now is None else now
        return await console_sessions.create_link(engine, grant, person, time)

    return on_engine(settings, create)


def revoke(settings: Settings, token_id: int) -> None:
    """Revokes a token as the command does, in another process than the service's."""
    on_engine(settings, lambda e: organizations.revoke_token(e, token_id, timestamps.now()))
