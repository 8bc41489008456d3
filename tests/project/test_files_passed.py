"""How many of our own files one request passes: a reader of the code follows it through them all.

``pytest -s`` prints the lists. Work in other processes does not count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

import gleanery
from gleanery.common.settings import Settings
from tests.support.outputs import output
from tests.support.service import Client, Service
from tests.support.session_documents import cookie, document, export, imported, origin
from tests.support.waiting import wait_until

SOURCE = Path(gleanery.__file__).parent
LIMITS = {"batch": 40, "page": 25, "session export": 35}
ROUNDS = 3  # the regular work in the background does not occur in all of them
END_SECONDS = 0.05  # for what the service does after it has sent a response
QUIET_SECONDS = 0.2  # without work after the start


class Recorder:
    """Records the files whose code runs in the threads that start after it."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":  # of a function, or of a generator that continues
            self._names.add(frame.f_code.co_filename)

    def files_of(self, send: Callable[[], object]) -> set[str]:
        """Return our files whose code runs during a request."""
        self._names = set()
        send()
        time.sleep(END_SECONDS)
        paths = [Path(name) for name in tuple(self._names)]
        return {str(path.relative_to(SOURCE)) for path in paths if path.is_relative_to(SOURCE)}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    before = threading.getprofile()
    made = Recorder()
    threading.setprofile(made)
    yield made
    threading.setprofile(before)


@pytest.fixture
def service(recorder: Recorder, tmp_path: Path) -> Iterator[Service]:
    """A service on SQLite, with the log of a service in production."""
    running = Service(Settings(data=tmp_path, port=0, log_format="json"))
    yield running
    running.stop()


def test_files_passed(service: Service, recorder: Recorder) -> None:
    numbers = count()
    requests: dict[str, Callable[[Client], object]] = {
        "batch": lambda client: client.store("group", *(output(next(numbers)) for _ in range(5))),
        "page": lambda client: client.get("/v1/outputs/group?limit=3").raise_for_status(),
        "session export": export,
    }
    passed = {}
    with service.client() as client:
        imported(client, document(cookie("sid"), origins=(origin("https://shop.example", k="v"),)))
        for send in requests.values():
            send(client)  # fills the caches
        wait_until(lambda: not recorder.files_of(lambda: time.sleep(QUIET_SECONDS)))

        def files_of(send: Callable[[Client], object]) -> set[str]:
            # The service parses and binds only what the last request on the connection did not say.
            client.headers["x-request-id"] = f"request-{next(numbers)}"
            return recorder.files_of(lambda: send(client))

        for name, send in requests.items():
            passed[name] = set.intersection(*(files_of(send) for _ in range(ROUNDS)))
            print(f"\n{name}: {len(passed[name])} files", *sorted(passed[name]), sep="\n  ")
    assert all("http/connection.py" in str(files) for files in passed.values())
    too_many = {name: len(files) for name, files in passed.items() if len(files) > LIMITS[name]}
    assert not too_many, f"the limits are {LIMITS}; pytest -s prints the files"
