"""Changes and syncs with the client: positions, following, deletions and old positions."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gleanery import AsyncClient, Client
from gleanery.client import (
    CursorExpired,
    Deletion,
    Invalid,
    InvalidState,
    NotFound,
    SyncBatch,
    Update,
)
from tests.support.faulty_server import faulty_server, respond
from tests.support.outputs import output
from tests.support.process import environment
from tests.support.service import DAY, Clock, Service
from tests.support.service import Client as HttpClient
from tests.support.waiting import wait_until


class MemoryState:
    """Position of a sync in memory."""

    def __init__(self) -> None:
        self.cursor: int | None = None

    def read(self) -> int | None:
        return self.cursor

    def write(self, cursor: int) -> None:
        self.cursor = cursor


@pytest.fixture
def stored(client: HttpClient) -> list[str]:
    """The ids of seven outputs."""
    results = client.store("group", *(output(n) for n in range(7)))["results"]
    return [result["output_id"] for result in results]


@pytest.fixture
def reader(service: Service, client: HttpClient) -> Client:
    return Client(service.url, client.token)


def delete(client: HttpClient, output_id: str) -> None:
    assert client.delete(f"/v1/outputs/group/{output_id}").status_code == 200


def apply(batch: SyncBatch, copy: dict[str, int]) -> None:
    """Brings a copy of the group up to date."""
    if batch.restarted:
        copy.clear()
    for deleted in batch.deletions:
        copy.pop(deleted.output_id, None)
    for upsert in batch.upserts:
        copy[upsert.output_id] = upsert.data["number"]


def test_changes_are_read_in_order(reader: Client, client: HttpClient, stored: list[str]) -> None:
    delete(client, stored[3])
    client.store("group", output(5, data={"number": 50}))
    changes = list(reader.changes("group", page_size=2))
    kinds = [change.change for change in changes]
    assert kinds == ["create"] * 5 + ["delete", "update"]
    assert isinstance(changes[5], Deletion)
    assert changes[5].output_id == changes[5].output.output_id == stored[3]
    assert isinstance(changes[6], Update)
    assert changes[6].output.data == {"number": 50}
    assert [change.cursor for change in changes] == sorted(change.cursor for change in changes)


def test_the_cursor_of_each_change_is_exact(reader: Client, stored: list[str]) -> None:
    pager = reader.changes("group", page_size=3)
    for change in pager:
        if change.output_id == stored[4]:
            break
    rest = reader.changes("group", cursor=pager.cursor)
    assert [change.output_id for change in rest] == stored[4:]
    assert list(reader.changes("group", cursor=rest.cursor)) == []


def test_a_limit_ends_the_changes_with_an_exact_cursor(reader: Client, stored: list[str]) -> None:
    pager = reader.changes("group", page_size=3, limit=4)
    assert [change.output_id for change in pager] == stored[:4]
    rest = reader.changes("group", cursor=pager.cursor)
    assert [change.output_id for change in rest] == stored[4:]


def test_raw_changes_are_the_bytes_of_the_service(reader: Client, stored: list[str]) -> None:
    raw = list(reader.changes("group", page_size=3).raw())
    assert [json.loads(change)["output_id"] for change in raw] == stored


@pytest.mark.thorough
def test_following_waits_for_changes(reader: Client, client: HttpClient, stored: list[str]) -> None:
    following = iter(reader.changes("group", follow=True, wait=1))
    assert [next(following).output_id for _ in stored] == stored
    later = threading.Timer(1.5, client.store, ("group", output(8)))  # after an empty response
    later.start()
    assert next(following).change == "create"
    later.join()


def test_following_without_a_wait_is_an_error(reader: Client) -> None:
    """It would send requests without a pause."""
    with pytest.raises(ValueError, match="wait must be at least 1"):
        reader.changes("group", follow=True, wait=0)


@pytest.mark.thorough
def test_an_interrupt_ends_following_at_once(
    service: Service, client: HttpClient, stored: list[str]
) -> None:
    program = (
        "import sys; from gleanery import Client\n"
        "for change in Client().changes('group', follow=True, wait=60):\n"
        "    print(change.output_id, flush=True)\n"
    )
    variables = environment(GLEANERY_URL=service.url, GLEANERY_TOKEN=client.token or "")
    with subprocess.Popen(
        [sys.executable, "-c", program], env=variables, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert [running.stdout.readline().strip() for _ in stored] == stored
        running.send_signal(signal.SIGINT)
        assert running.wait(30) != 0  # the request would wait for 60 seconds


def test_a_sync_continues_where_it_ended(
    reader: Client, client: HttpClient, stored: list[str], tmp_path: Path
) -> None:
    state, copy = tmp_path / "state.json", dict[str, int]()
    for batch in reader.sync("group", state, page_size=3):
        assert len(batch.changes) <= 3
        apply(batch, copy)
    assert copy == {output_id: number for number, output_id in enumerate(stored)}
    assert list(reader.sync("group", str(state))) == []

    delete(client, stored[0])
    client.store("group", output(1, data={"number": 10}), output(7))
    [batch] = reader.sync("group", state)
    assert [deleted.output_id for deleted in batch.deletions] == [stored[0]]
    assert [upsert.data["number"] for upsert in batch.upserts] == [10, 7]
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_position_is_stored_when_the_next_batch_is_asked_for(
    reader: Client, stored: list[str]
) -> None:
    state = MemoryState()
    batches = reader.sync("group", state, page_size=3)
    first = next(batches)
    assert state.cursor is None
    second = next(batches)
    assert state.cursor == first.cursor
    del batches  # as if the consumer had failed
    assert next(reader.sync("group", state, page_size=3)) == second


def test_an_output_that_comes_back_is_not_deleted(
    reader: Client, client: HttpClient, stored: list[str]
) -> None:
    state, copy = MemoryState(), dict[str, int]()
    for batch in reader.sync("group", state):
        apply(batch, copy)
    delete(client, stored[6])
    client.store("group", output(6))
    for batch in reader.sync("group", state):
        apply(batch, copy)
        assert len(batch.changes) == 2
    assert sorted(copy.values()) == list(range(7))


def test_a_sync_does_not_start_again_because_of_a_proxy() -> None:
    """The consumer would delete its copy."""
    state = MemoryState()
    state.write(7)
    with faulty_server(respond(410, b"<html>Gone</html>")) as server:
        with pytest.raises(Invalid, match="without an explanation"):
            list(Client(server.url, "t", max_retries=0).sync("group", state))
        assert len(server.heads) == 1


@pytest.mark.thorough
def test_a_sync_with_an_old_position_starts_again(
    timed_service: Service, timed: HttpClient, clock: Clock
) -> None:
    results = timed.store("group", *(output(n) for n in range(4)))["results"]
    reader, state, copy = Client(timed_service.url, timed.token), MemoryState(), dict[str, int]()
    for batch in reader.sync("group", state):
        apply(batch, copy)
    old = state.cursor or 0
    clock.move(seconds=60)
    delete(timed, results[0]["output_id"])
    clock.move(seconds=31 * DAY)
    timed_service.sweep(clock)
    wait_until(lambda: timed.get(f"/v1/changes/group?cursor={old}").status_code == 410)
    with pytest.raises(CursorExpired, match="start again with cursor 0"):
        list(reader.changes("group", cursor=old))

    batches = list(reader.sync("group", state, page_size=2))
    assert [batch.restarted for batch in batches] == [True] + [False] * (len(batches) - 1)
    for batch in batches:
        apply(batch, copy)
    assert sorted(copy.values()) == [1, 2, 3]
    assert list(reader.sync("group", state)) == []


@pytest.mark.thorough
def test_a_restart_of_an_empty_group_is_reported(
    timed_service: Service, timed: HttpClient, clock: Clock
) -> None:
    [result] = timed.store("group", output(1))["results"]
    reader, state = Client(timed_service.url, timed.token), MemoryState()
    assert len(list(reader.sync("group", state))) == 1
    clock.move(seconds=60)
    delete(timed, result["output_id"])
    clock.move(seconds=31 * DAY)
    timed_service.sweep(clock)
    [batch] = reader.sync("group", state)
    assert (batch.restarted, list(batch.changes)) == (True, [])


def test_a_state_file_belongs_to_one_group_and_service(
    reader: Client, client: HttpClient, stored: list[str], tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    list(reader.sync("group", state))
    content = json.loads(state.read_text())
    assert content.keys() == {"url", "group", "view", "cursor"}
    with pytest.raises(InvalidState, match="state of another group or service"):
        list(reader.sync("other", state))
    for damaged in ("", "{}", "[]", "7", json.dumps(content | {"cursor": "1"}), "\ud800"):
        state.write_text(damaged, errors="surrogatepass")
        with pytest.raises(InvalidState, match=r"state\.json"):
            list(reader.sync("group", state))
    with pytest.raises(TypeError, match="path, or an object"):
        list(reader.sync("group", 5))  # type: ignore[arg-type]


def test_a_sync_of_the_approved_view_has_approved_values_only(
    reader: Client, client: HttpClient, stored: list[str], tmp_path: Path
) -> None:
    state, copy = tmp_path / "state.json", dict[str, int]()
    reader.approve("group", "job")
    client.store("group", output(1, data={"number": 11}))
    for batch in reader.sync("group", state, page_size=3, view="approved"):
        apply(batch, copy)
    assert copy == dict(zip(stored, range(7), strict=True))
    assert [*reader.sync("group", state, view="approved")] == []
    reader.approve("group", "job")
    [change] = reader.changes("group", cursor=cursor_of(state), view="approved")
    assert (change.change, change.output_id) == ("update", stored[1])
    delete(client, stored[0])
    for batch in reader.sync("group", state, view="approved"):
        apply(batch, copy)
    assert copy == {stored[1]: 11} | dict(zip(stored[2:], range(2, 7), strict=True))


def cursor_of(state: Path) -> int:
    return int(json.loads(state.read_text())["cursor"])


def test_a_state_file_belongs_to_one_view(
    reader: Client, stored: list[str], tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    list(reader.sync("group", state))
    with pytest.raises(InvalidState, match=r"state of view=full, not of view=approved: use"):
        list(reader.sync("group", state, view="approved"))
    content = json.loads(state.read_text())
    del content["view"]  # as an earlier version has written it
    state.write_text(json.dumps(content))
    assert list(reader.sync("group", state)) == []


def test_the_next_sync_deletes_what_a_killed_one_has_left(
    reader: Client, stored: list[str], tmp_path: Path
) -> None:
    (tmp_path / ".state.json.123.tmp").write_text("{")
    list(reader.sync("group", tmp_path / "state.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_an_unknown_group_is_not_found(reader: Client, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(reader.changes("other"))
    with pytest.raises(NotFound):
        list(reader.sync("other", tmp_path / "state.json"))
    assert list(tmp_path.iterdir()) == []


def test_the_asynchronous_client_syncs_too(
    service: Service, client: HttpClient, stored: list[str], tmp_path: Path
) -> None:
    async def sync() -> list[SyncBatch]:
        async with AsyncClient(service.url, client.token) as made:
            return [batch async for batch in made.sync("group", tmp_path / "state", page_size=3)]

    found = [upsert.output_id for batch in asyncio.run(sync()) for upsert in batch.upserts]
    assert found == stored
    assert asyncio.run(sync()) == []
