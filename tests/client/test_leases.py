"""Leases with the client: one holder, renewal, loss and return."""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from typing import Any

import pytest

from gleanery import AsyncClient, Client, sessions
from gleanery.client import Conflict, ConnectionFailed, Lease, LeaseLost, NotFound
from gleanery.sessions import Cookie, SessionState
from tests.support.databases import execute_sql
from tests.support.faulty_server import CLOSE, STALL, faulty_server, respond
from tests.support.service import Service
from tests.support.waiting import wait_until

SECRET = "planted-s3cret"
CHANGED = "changed-s3cret"
STATE = SessionState((Cookie("sid", SECRET, "shop.example", secure=True),))
NEW_STATE = SessionState((Cookie("sid", CHANGED, "shop.example", secure=True),))
HELD = respond(409, {"detail": [{"loc": [], "msg": "Another holder", "type": "leased"}]})
GONE = respond(404, {"detail": [{"loc": [], "msg": "No such lease", "type": "not_found"}]})
DELETED = respond(200, {"deleted": 1})
COUNTS = {"created": 0, "updated": 0, "unchanged": 0, "deleted": 0}
RENEWED = respond(200, {"seconds": 60, "cookies": COUNTS, "local_storage": COUNTS, "losses": []})


def granted(seconds: int = 60) -> Any:
    return respond(
        200,
        {"id": "1f", "seconds": seconds, "state": {"cookies": [], "origins": []}, "losses": []},
    )


def end_leases(service: Service) -> None:
    """Moves all leases of the service into the past, as if hours had passed."""
    execute_sql(service.settings, "UPDATE session_leases SET expires_at = acquired_at")


@pytest.fixture
def stored(gleanery: Client) -> Client:
    gleanery.session("shop.example").store(STATE)
    return gleanery


def test_a_holder_gets_the_session_alone(stored: Client) -> None:
    session = stored.session("shop.example")
    with session.lease(60) as lease:
        assert lease.is_held
        assert 0 < lease.seconds_left <= 60
        assert lease.state == STATE
        assert lease.playwright()["cookies"][0]["value"] == SECRET
        assert [cookie.value for cookie in lease.cookiejar()] == [SECRET]
        assert lease.losses == []
        with pytest.raises(Conflict, match="Another holder"), session.lease(60):
            pass
        with stored.session("shop.example", profile="second").lease(60):
            pass
    assert not lease.is_held
    with session.lease(60) as lease:
        assert lease.is_held


def test_changes_are_stored_only_by_store(stored: Client) -> None:
    session = stored.session("shop.example")
    with session.lease(60) as lease:
        lease.playwright()["cookies"].clear()
    assert session.state() == STATE
    with session.lease(60) as lease:
        changed = lease.store(NEW_STATE, if_match=lease.etag)
        assert changed.cookies.updated == 1
        lease.store(sessions.to_cookiejar(NEW_STATE).content, replace=True, if_match=lease.etag)
    assert session.state() == NEW_STATE


def test_a_change_without_a_lease_is_noticed(stored: Client) -> None:
    session = stored.session("shop.example")
    with session.lease(60) as lease:
        session.store("Cookie: lang=de")
        with pytest.raises(Conflict):
            lease.store(NEW_STATE, if_match=lease.etag)
        assert lease.is_held
    assert STATE.cookies[0] in session.state().cookies


def test_records_of_other_hosts_are_left_out(stored: Client) -> None:
    other = Cookie("sid", SECRET, "other.example")
    with stored.session("shop.example").lease(60) as lease:
        changed = lease.store(SessionState((other,)))
    assert "A record is left out" in changed.losses[0]
    assert stored.session("other.example").state() == SessionState()


def test_a_lost_lease_stores_nothing(stored: Client, service: Service) -> None:
    session = stored.session("shop.example")
    with pytest.raises(LeaseLost, match="another holder"), session.lease(60) as lease:  # noqa: PT012
        end_leases(service)
        with session.lease(60):
            with pytest.raises(LeaseLost):
                lease.store(NEW_STATE)
            assert not lease.is_held
            with pytest.raises(LeaseLost):
                lease.playwright()
    assert session.state() == STATE


def test_a_holder_learns_at_the_end_that_its_lease_was_lost(
    stored: Client, service: Service
) -> None:
    with pytest.raises(LeaseLost), stored.session("shop.example").lease(60):
        end_leases(service)
    with pytest.raises(ZeroDivisionError), stored.session("shop.example").lease(60):  # noqa: PT012
        end_leases(service)
        raise ZeroDivisionError  # the error of the block is not hidden


@pytest.mark.thorough
def test_a_lease_is_renewed_until_it_is_lost(stored: Client, service: Service) -> None:
    with pytest.raises(LeaseLost), stored.session("shop.example").lease(6) as lease:  # noqa: PT012
        wait_until(partial(is_extended, lease, [lease.seconds_left]))
        end_leases(service)
        wait_until(lambda: not lease.is_held)


def is_extended(lease: Lease, seen: list[float]) -> bool:
    """Return True if the time has grown since the last call."""
    seen.append(lease.seconds_left)
    return seen[-1] > seen[-2]


def test_an_early_return_ends_the_lease(stored: Client) -> None:
    session = stored.session("shop.example")
    with session.lease(60) as lease:
        lease.release()
        assert not lease.is_held
        with session.lease(60):
            pass
        with pytest.raises(LeaseLost):
            lease.store(NEW_STATE)
    with pytest.raises(RuntimeError, match="once"), lease:
        pass


@pytest.mark.thorough
def test_a_waiting_client_gets_the_lease_when_it_is_returned(stored: Client) -> None:
    session = stored.session("shop.example")
    acquired = threading.Event()

    def wait() -> None:
        with session.lease(60, wait=60):
            acquired.set()

    with session.lease(60):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not acquired.is_set()
    waiting.join()
    assert acquired.is_set()


@pytest.mark.thorough
def test_a_wait_ends_with_a_conflict() -> None:
    with faulty_server(HELD) as server, Client(server.url, "t") as client:
        with pytest.raises(Conflict), client.session("shop.example").lease(60, wait=1.5):
            pass
        assert len(server.heads) >= 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("script", "kind"), [([CLOSE], ConnectionFailed), ([CLOSE, HELD], Conflict)]
)
def test_a_lost_response_is_no_success_and_is_explained(
    script: list[Any], kind: type[Exception]
) -> None:
    with faulty_server(*script) as server, Client(server.url, "t", max_retries=1) as client:
        with pytest.raises(kind) as failed, client.session("shop.example").lease(60):
            pass
        assert "ends by itself, 60 seconds later" in failed.value.__notes__[0]


def test_a_conflict_without_a_lost_response_has_no_explanation() -> None:
    with faulty_server(HELD) as server, Client(server.url, "t") as client:
        with pytest.raises(Conflict) as failed, client.session("shop.example").lease(60):
            pass
        assert not hasattr(failed.value, "__notes__")


def test_a_proxy_that_does_not_find_the_service_does_not_end_a_lease() -> None:
    missing = respond(404, b"default backend - 404")
    with faulty_server(granted(), missing, RENEWED, DELETED) as server:
        client = Client(server.url, "t", max_retries=0)
        with client.session("shop.example").lease(60) as lease:
            with pytest.raises(NotFound):
                lease.store(NEW_STATE)
            assert lease.is_held
            lease.store(NEW_STATE)


def test_a_lease_whose_time_was_used_up_is_renewed_at_once() -> None:
    script = [granted(seconds=1), RENEWED, DELETED]
    with faulty_server(*script) as server, Client(server.url, "t") as client:
        with client.session("shop.example").lease(60) as lease:
            assert lease.seconds_left > 1
        assert [head.split()[0] for head in server.heads] == ["POST", "PUT", "DELETE"]


@pytest.mark.thorough
def test_the_time_of_a_lease_counts_from_the_first_request() -> None:
    with (
        faulty_server(CLOSE, granted(), DELETED) as server,
        Client(server.url, "t") as client,
        client.session("shop.example").lease(60) as lease,
    ):
        assert lease.seconds_left <= 59.75  # the client waits at least 0.25 s before the retry


@pytest.mark.thorough
def test_a_lease_ends_on_time_if_the_service_does_not_respond(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        faulty_server(granted(seconds=1), STALL) as server,
        Client(server.url, "t", timeout=0.3, max_retries=0) as client,
        client.session("shop.example").lease(1) as lease,
    ):
        wait_until(lambda: not lease.is_held)
    assert "is not renewed yet" in caplog.text
    assert "The lease of shop.example ends by itself" in caplog.text


@pytest.mark.thorough
def test_a_repeated_return_is_a_success() -> None:
    with faulty_server(granted(), CLOSE, GONE) as server, Client(server.url, "t") as client:
        with client.session("shop.example").lease(60) as lease:
            pass
        assert not lease.is_held


def test_no_value_is_in_a_representation_an_error_or_the_log(
    stored: Client, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="gleanery")
    session, shown = stored.session("shop.example"), []
    with pytest.raises(LeaseLost) as lost, session.lease(60, holder="worker") as lease:  # noqa: PT012
        shown += [lease, lease.state, vars(lease), lease.store(NEW_STATE)]
        end_leases(service)
        lease.store(NEW_STATE)
    text = "".join(map(repr, [*shown, lost.value])) + caplog.text
    assert SECRET not in text
    assert CHANGED not in text


def test_the_asynchronous_client_has_the_same_methods(service: Service) -> None:
    async def run() -> None:
        async with AsyncClient(service.url, service.token()) as client:
            session = client.session("shop.example")
            await session.store(STATE)
            async with session.lease(60) as lease:
                assert lease.state == STATE
                with pytest.raises(Conflict):
                    async with session.lease(60):
                        pass
                await lease.store(NEW_STATE)
            assert await session.state() == NEW_STATE
            with pytest.raises(LeaseLost):
                async with session.lease(60):
                    await asyncio.to_thread(end_leases, service)

    asyncio.run(run())


@pytest.mark.thorough
def test_an_asynchronous_lease_ends_on_time() -> None:
    async def run(url: str) -> None:
        client = AsyncClient(url, "t", timeout=0.3, max_retries=0)
        async with client, client.session("shop.example").lease(1) as lease:
            await asyncio.to_thread(wait_until, lambda: not lease.is_held)

    with faulty_server(granted(seconds=1), STALL) as server:
        asyncio.run(run(server.url))
        assert "PUT" in [head.split()[0] for head in server.heads]
