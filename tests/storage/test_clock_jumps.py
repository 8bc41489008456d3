"""No data is deleted because a clock shows a wrong time, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.storage.database import Engine
from gleanery.service.storage.engines import open_engine
from tests.support.console_http import credentials, on_engine, sign_in
from tests.support.files import upload
from tests.support.outputs import output
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

WARNING = "nothing expires until the clock has run steadily"


@pytest.fixture
def swept_settings(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return replace(fresh_settings(engine, request, tmp_path), sweep_seconds=0.1)


@pytest.fixture
def swept_service(swept_settings: Settings, clock: Clock) -> Iterator[Service]:
    service = Service(swept_settings, clock)
    yield service
    service.stop()


def last_round(settings: Settings) -> str | None:
    """The state that each round of the sweep stores."""

    async def read() -> str | None:
        async with open_engine(settings) as engine:
            rows = await engine.read("SELECT value FROM metadata WHERE name = 'sweep_clock'")
            return rows[0][0] if rows else None

    return asyncio.run(read())


def wait_for_rounds(settings: Settings, is_lost: Callable[[], bool]) -> None:
    """Waits until one whole round has run, or until data is lost."""
    for _ in range(2):  # the state is stored at the start of a round
        before = last_round(settings)
        wait_until(lambda before=before: is_lost() or last_round(settings) != before)  # type: ignore[misc]


class Data:
    """Data that expires: an output, a tombstone, an idempotency key and a file."""

    def __init__(self, client: Client) -> None:
        self._client = client
        client.put("/v1/groups/group", json={"retain_days": 30})
        self.store()
        deleted = client.store("group", output(2))["results"][0]["output_id"]
        client.delete(f"/v1/outputs/group/{deleted}")
        self._cursor = client.get("/v1/changes/group").json()["cursor"] - 1
        self._file = f"/v1/files/{upload(client)['id']}"

    def store(self) -> Any:
        headers = {"Idempotency-Key": "key"}
        return self._client.post("/v1/outputs/group", json=[output(1)], headers=headers).json()

    def is_complete(self) -> bool:
        changes = self._client.get("/v1/changes/group", params={"cursor": self._cursor})
        return (
            len(self._client.items("group")) == 1
            and changes.status_code == 200
            and self._client.get(self._file).status_code == 200
        )

    def is_lost(self) -> bool:
        return not self.is_complete()

    def has_expired(self) -> bool:
        gone = self._client.get(self._file).status_code == 404
        return gone and self._client.items("group") == []


def go_on(client: Client) -> None:
    """The job stores something in another run: the outputs of a silent job do not expire."""
    run_id = client.post("/v1/runs/group", json={"job_id": "job"}).json()["run_id"]
    stored = client.post(f"/v1/outputs/group?run_id={run_id}", json=[output(3)]).json()
    client.post(f"/v1/runs/group/{run_id}/finish", json={"status": "partial"})
    client.delete(f"/v1/outputs/group/{stored['results'][0]['output_id']}")


def confirm(clock: Clock, settings: Settings) -> None:
    """Lets the first day pass, so that the service deletes expired data."""
    wait_for_rounds(settings, lambda: False)
    clock.move(seconds=2 * DAY)
    wait_for_rounds(settings, lambda: False)


@pytest.mark.parametrize("days", [40, -40])
@pytest.mark.parametrize("which", ["node", "server"])
def test_nothing_is_deleted_while_a_clock_is_wrong(
    swept_service: Service, clock: Clock, which: str, days: int
) -> None:
    settings = swept_service.settings
    with swept_service.client() as client:
        confirm(clock, settings)
        data = Data(client)
        first = data.store()
        jump = clock.jump if which == "node" else clock.jump_server
        jump(seconds=days * DAY)
        wait_for_rounds(settings, data.is_lost)
        assert data.is_complete()
        assert data.store() == first
        jump(seconds=-days * DAY)
        wait_for_rounds(settings, data.is_lost)
        assert data.is_complete()
        assert data.store() == first


def let_days_pass(clock: Clock, settings: Settings) -> None:
    """Lets time pass after a round has noticed the last jump."""
    wait_for_rounds(settings, lambda: False)
    clock.move(seconds=3 * DAY)


def stored_sessions(settings: Settings) -> int:
    async def count(engine: Engine) -> int:
        rows = await engine.read("SELECT count(*) FROM console_sessions")
        return int(rows[0][0])

    return on_engine(settings, count)


def test_console_sessions_are_deleted_by_a_confirmed_clock_only(
    swept_service: Service, clock: Clock
) -> None:
    settings = swept_service.settings
    with swept_service.stranger() as stranger:
        confirm(clock, settings)
        headers = credentials(sign_in(stranger, token=swept_service.token()))
        for jump in (clock.jump, clock.jump_server):
            jump(seconds=40 * DAY)
        wait_for_rounds(settings, lambda: stored_sessions(settings) == 0)
        assert stored_sessions(settings) == 1
        for jump in (clock.jump, clock.jump_server):
            jump(seconds=-40 * DAY)
        assert stranger.get("/console/api/session", headers=headers).status_code == 200
    let_days_pass(clock, settings)
    wait_until(lambda: stored_sessions(settings) == 0)


def test_console_sessions_from_the_future_are_deleted(swept_service: Service, clock: Clock) -> None:
    settings = swept_service.settings
    with swept_service.stranger() as stranger:
        confirm(clock, settings)
        clock.jump(seconds=40 * DAY)
        assert sign_in(stranger, token=swept_service.token()).status_code == 200
        clock.jump(seconds=-40 * DAY)
    let_days_pass(clock, settings)
    wait_until(lambda: stored_sessions(settings) == 0)


def test_a_jump_is_logged(
    swept_service: Service, clock: Clock, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    wait_for_rounds(swept_service.settings, lambda: False)
    jump = clock.jump_server if engine == "postgres" else clock.jump
    jump(seconds=40 * DAY)
    wait_until(lambda: WARNING in caplog.text)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)  # SQLite has one node only
def test_a_wrong_clock_of_one_node_is_logged(
    swept_service: Service, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    wait_for_rounds(swept_service.settings, lambda: False)
    clock.jump(seconds=40 * DAY)
    wait_until(lambda: "differs from the database server's" in caplog.text)
    assert WARNING not in caplog.text  # the server's clock decides


def test_a_time_that_stays_is_confirmed_after_a_day(swept_service: Service, clock: Clock) -> None:
    """A clock that was corrected, or a machine that was suspended."""
    settings = swept_service.settings
    with swept_service.client() as client:
        confirm(clock, settings)
        data = Data(client)
        clock.jump(seconds=40 * DAY)
        clock.jump_server(seconds=40 * DAY)
        go_on(client)
        wait_for_rounds(settings, data.is_lost)
        clock.move(seconds=DAY / 2)
        wait_for_rounds(settings, data.is_lost)
        assert data.is_complete()
        clock.move(seconds=DAY / 2)
        wait_until(data.has_expired)


def test_data_expires_after_a_long_downtime(swept_settings: Settings, clock: Clock) -> None:
    service = Service(swept_settings, clock)
    token = service.token()
    with service.client(token) as client:
        confirm(clock, service.settings)
        Data(client)
    service.stop()
    clock.move(seconds=40 * DAY)
    service = Service(swept_settings, clock)
    with service.client(token) as client:
        assert len(client.items("group")) == 1
        go_on(client)
        wait_for_rounds(service.settings, lambda: client.items("group") == [])
        assert len(client.items("group")) == 1
        clock.move(seconds=DAY)
        wait_until(lambda: client.items("group") == [])
    service.stop()


def test_a_scrape_while_the_clock_is_behind_does_not_expire(
    swept_service: Service, clock: Clock
) -> None:
    settings = swept_service.settings
    with swept_service.client() as client:
        confirm(clock, settings)
        client.put("/v1/groups/group", json={"retain_days": 30})
        client.store("group", output(1))
        clock.jump(seconds=-40 * DAY)
        client.store("group", output(1), output(2))  # one resend and one new output
        clock.jump(seconds=40 * DAY)
        clock.move(seconds=2 * DAY)  # the clock is confirmed again
        is_lost = lambda: len(client.items("group")) < 2  # noqa: E731
        wait_for_rounds(settings, is_lost)
        wait_for_rounds(settings, is_lost)
        assert not is_lost()


def test_dates_in_the_future_do_not_prevent_writes(timed: Client, clock: Clock) -> None:
    """What is stored during a jump has its wrong date; the next changes follow it in order."""
    clock.jump(seconds=40 * DAY)
    timed.store("group", output(1))
    clock.jump(seconds=-40 * DAY)
    cursor = timed.get("/v1/changes/group").json()["cursor"]
    assert timed.store("group", output(1), output(2))["created"] == 1
    assert timed.store("group", output(1, data={"number": 9}))["updated"] == 1
    found = timed.get("/v1/changes/group", params={"cursor": cursor}).json()["changes"]
    assert [change["output"]["data"]["number"] for change in found] == [2, 9]
    assert len(timed.items("group")) == 2
    review = {"job_id": "job", "status": "approved"}
    assert timed.post("/v1/reviews/group", json=review).status_code == 200
    assert timed.delete("/v1/groups/group").json() == {"deleted": 2}
