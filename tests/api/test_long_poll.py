"""What waits for a lock: it is dated when it gets it, and it keeps nothing from others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gleanery.values import timestamps
from tests.support.locks import LockHolder
from tests.support.outputs import output
from tests.support.service import Clock, Service


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.3)  # let it reach the lock
    return thread


def test_a_write_that_waited_is_dated_when_it_got_the_lock(
    timed_service: Service, clock: Clock
) -> None:
    """Else a client that synced in between would ask for what came after, and never see it."""
    with timed_service.client() as client:
        client.store("group", output(1))
        with LockHolder(timed_service) as holder:
            waiting = in_background(lambda: client.store("group", output(2)))
            clock.move(seconds=3600)
            synced = timestamps.render_microseconds(clock())
            holder.release()
            waiting.join()
        items = client.items("group", created_after=synced)
        assert [item["data"]["number"] for item in items] == [2]


def test_writers_in_line_for_a_group_keep_nobody_else_waiting(timed_service: Service) -> None:
    with timed_service.client() as crowd, timed_service.client() as other:
        crowd.store("group", output(1))
        other.store("elsewhere", output(1))
        with LockHolder(timed_service) as holder, ThreadPoolExecutor(15) as pool:
            writes = [pool.submit(crowd.store, "group", output(n)) for n in range(15)]
            time.sleep(0.5)
            assert other.get("/v1/outputs/elsewhere").status_code == 200
            assert crowd.get("/v1/outputs/group").status_code == 200
            holder.release()
            assert all(write.result()["results"] for write in writes)
