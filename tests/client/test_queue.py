"""The durable queue: batches in memory, and the spool on disk."""

from __future__ import annotations

import fcntl
import shutil
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from gleanery.client.queue.batches import BatchQueue, in_batches
from gleanery.client.queue.spool import Spool, spool_folder
from tests.support.waiting import wait_until


def add_all(pending: BatchQueue[bytes], count: int, size: int = 1) -> int:
    """Add lines until there is no room. Return the number of those that were added."""
    return sum(1 for _ in range(count) if pending.add(b"x" * size, size))


def lines(pending: BatchQueue[bytes]) -> int | None:
    batch = pending.first(0)
    return None if batch is None else len(batch.entries)


def test_a_batch_is_closed_when_it_is_full() -> None:
    pending: BatchQueue[bytes] = BatchQueue(max_items=10, max_seconds=60)
    add_all(pending, 9)
    assert lines(pending) is None
    add_all(pending, 6)
    assert lines(pending) == 10
    pending.remove_first()
    assert lines(pending) is None
    pending.end()
    assert lines(pending) == 5


def test_a_batch_is_closed_before_it_is_too_large() -> None:
    pending: BatchQueue[bytes] = BatchQueue(max_items=1000, max_seconds=60)
    add_all(pending, 3, 500_000)
    assert lines(pending) == 2
    pending.add(b"x", 3_000_000)  # a line that is larger than a batch is alone in one
    pending.remove_first()
    assert lines(pending) == 1
    pending.remove_first()
    pending.end()
    assert lines(pending) == 1


def test_a_batch_is_closed_when_it_is_old() -> None:
    pending: BatchQueue[bytes] = BatchQueue(max_items=10, max_seconds=0.01)
    pending.add(b"x", 1)
    batch = pending.first(30)
    assert batch is not None
    assert len(batch.entries) == 1


def test_eight_batches_are_in_memory() -> None:
    pending: BatchQueue[bytes] = BatchQueue(max_items=10, max_seconds=60)
    assert add_all(pending, 200) == 80
    pending.remove_first()
    assert add_all(pending, 200) == 10
    assert pending.items() == 80


def test_the_end_wakes_the_thread_that_waits() -> None:
    pending: BatchQueue[bytes] = BatchQueue(max_items=10, max_seconds=60)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(pending.first()))
    thread.start()
    pending.end()
    thread.join(30)
    assert found == [None]


def test_a_batch_is_taken_only_if_it_is_stored() -> None:
    pending: BatchQueue[bytes] = BatchQueue(max_items=2, max_seconds=60)
    add_all(pending, 3)

    def fail(_: object) -> None:
        raise OSError("The disk is full")

    with pytest.raises(OSError, match="full"):
        pending.take_all(fail)
    assert pending.items() == 3
    pending.take_all(lambda _: None)
    assert pending.items() == 0


def test_items_that_stay_together_are_in_one_batch() -> None:
    queue: BatchQueue[str] = BatchQueue(max_items=10, max_seconds=0, max_batches=inf)
    for name, items in (("a", 4), ("b", 6), ("c", 3), ("d", 8), ("e", 1)):
        assert queue.add(name, 0, items)
    assert queue.items() == 22
    found = []
    while (batch := queue.first(0)) is not None:
        found.append((batch.entries, batch.items))
        queue.remove_first()
    assert found == [(["a", "b"], 10), (["c"], 3), (["d", "e"], 9)]


def test_a_producer_can_wait_for_room() -> None:
    queue: BatchQueue[int] = BatchQueue(max_items=10, max_seconds=60, max_batches=2)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.extend(queue.put(n, 1) for n in range(50)))
    thread.start()
    taken: list[int] = []
    while len(taken) < 20:
        batch = queue.first(30)
        assert batch is not None
        assert queue.items() <= 20
        taken += batch.entries
        queue.remove_first()
    wait_until(lambda: queue.items() == 20)
    queue.end()
    thread.join(30)
    assert not thread.is_alive()
    assert taken == list(range(20))
    assert results == [True] * 40 + [False] * 10
    assert queue.items() == 20, "what was added before the end is kept"


def test_lines_are_divided_into_batches() -> None:
    lines = [b"x" * size for size in (500_000, 500_000, 500_000, 3_000_000, 1, 1, 1)]
    sizes = [list(map(len, batch)) for batch in in_batches(lines, max_items=2)]
    assert sizes == [[500_000, 500_000], [500_000], [3_000_000], [1, 1], [1]]
    assert list(in_batches([], max_items=2)) == []


def read_all(spool: Spool) -> list[list[bytes]]:
    found = []
    while len(spool) > 0:
        lines = spool.read_first()
        assert lines is not None
        found.append(lines)
        spool.remove_first()
    return found


def test_a_run_takes_the_batches_of_ended_runs_in_their_order(tmp_path: Path) -> None:
    first = Spool(tmp_path / "spool")
    first.append([b"1", b"2"])
    first.append([b"3"])
    other = Spool(tmp_path / "spool")  # while the first has not ended
    assert len(other) == 0
    other.append([b"4"])
    first.close()
    other.close()
    next_ = Spool(tmp_path / "spool")
    next_.append([b"5"])
    assert read_all(next_) == [[b"1", b"2"], [b"3"], [b"4"], [b"5"]]
    next_.close()
    assert not (tmp_path / "spool").exists()


def test_an_unfinished_file_is_removed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append([b"1"])
    [path] = tmp_path.glob("spool/*/*.jsonl")
    path.with_name("00000000000000000001.tmp").write_bytes(b"half a l")
    spool.close()
    next_ = Spool(tmp_path / "spool")
    assert read_all(next_) == [[b"1"]]
    next_.close()
    assert not (tmp_path / "spool").exists()


def test_a_batch_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(b"")  # no folder
    spool = Spool(tmp_path / "spool")
    with pytest.raises(FileExistsError):
        spool.append([b"1"])
    assert len(spool) == 0


def test_each_target_has_a_folder(tmp_path: Path) -> None:
    names = {
        spool_folder(tmp_path, url, group, job)
        for url in ("http://a", "http://b")
        for group in ("g", "h")
        for job in ("../x", "x/y", ".." * 100)
    }
    assert len(names) == 12
    assert {name.parent for name in names} == {tmp_path}
    spool = Spool(min(names))
    spool.append([b"1"])
    spool.close()


def call_after(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, then: Callable[[], object]
) -> None:
    """Let a function call another one at its end, once."""
    function = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        result = function(*arguments, **options)
        then()
        return result

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(("owner", "name"), [(fcntl, "flock"), (Path, "mkdir"), (Path, "open")])
def test_a_run_that_starts_takes_no_folder_that_is_being_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    others: list[Spool] = []
    spool = Spool(tmp_path)
    call_after(monkeypatch, owner, name, lambda: others.append(Spool(tmp_path)))
    spool.append([b"1"])
    [other] = others
    assert len(other) == 0
    other.close()
    spool.append([b"2"])
    assert read_all(spool) == [[b"1"], [b"2"]]
    spool.close()


def test_a_run_that_ends_is_not_taken_with_a_lock_that_it_has_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = Spool(tmp_path / "spool")
    ending.append([b"1"])
    read_all(ending)
    call_after(monkeypatch, Path, "open", ending.close)  # the other run has opened the lock
    starting = Spool(tmp_path / "spool")
    starting.append([b"2"])
    next_ = Spool(tmp_path / "spool")
    assert len(next_) == 0  # the second run has not ended
    starting.close()
    next_.close()
    assert len(list(tmp_path.glob("spool/*/*.jsonl"))) == 1


def test_a_spool_that_somebody_has_removed_is_created_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append([b"1"])
    shutil.rmtree(tmp_path / "spool")
    spool.append([b"2"])
    assert spool.read_first() is None
    assert spool.read_first() == [b"2"]


def test_an_unreadable_batch_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = Spool(tmp_path)
    spool.append([b"1", b"1"])
    spool.append([b"2"])
    path = min(tmp_path.glob("*/*.jsonl"))
    path.unlink()
    path.mkdir()  # it cannot be read; permissions would not stop root
    assert (spool.items(), spool.count_first()) == (3, 2)  # they are not stored yet
    assert spool.read_first() is None
    assert (spool.items(), spool.count_first()) == (1, 1)
    assert read_all(spool) == [[b"2"]]
    spool.close()
    kept = path.with_suffix(".bad")
    assert kept.exists()
    assert f"Items in {kept} cannot be read" in caplog.text
    assert len(Spool(tmp_path)) == 0


def test_batches_of_an_earlier_run_are_counted_at_the_end(tmp_path: Path) -> None:
    earlier = Spool(tmp_path)
    earlier.append([b"1", b"2"])
    earlier.close()
    spool = Spool(tmp_path)
    assert (spool.items(), spool.count_first()) == (2, 0)
