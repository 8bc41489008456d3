"""Runs the commands of the guide about monitors. ``sleep`` moves the clock of the service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.project.test_examples import ROOT, folder, run
from tests.support.examples import examples, is_shown
from tests.support.process import environment
from tests.support.service import DAY, Clock, Service

__all__ = ["folder"]

GUIDE = ROOT / "docs" / "how-to" / "know-when-a-scraper-breaks.md"
SWEEPS_OF_A_DAY = 4  # a running service has one each minute

pytestmark = [
    pytest.mark.extended,  # 33 days take half a minute
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.parametrize("engine", ["sqlite"], indirect=True, scope="session"),
]


@contextmanager
def days(service: Service, clock: Clock) -> Iterator[str]:
    """Serve an address. Each request to it lets one day pass."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            for _ in range(SWEEPS_OF_A_DAY):
                clock.move(seconds=DAY / SWEEPS_OF_A_DAY)
                service.sweep(clock)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_five_spiders_open_their_alerts(
    timed_service: Service, clock: Clock, folder: Path
) -> None:
    text = GUIDE.read_text().replace("http://127.0.0.1:8000", timed_service.url)
    chosen = [example for example in examples(text) if not example.command.startswith("CLONE=")]
    with days(timed_service, clock) as address:
        sleep = folder / "bin" / "sleep"
        sleep.write_text(f'#!/bin/sh\ntest "$1" = 1d && exec curl -sf -X POST {address}\n')
        sleep.chmod(0o755)
        variables = {
            "PATH": f"{folder / 'bin'}:{environment()['PATH']}",
            "CLONE": str(ROOT),
            "TOKEN": timed_service.token(),
        }
        outputs = run([example.command for example in chosen], folder, **variables)
    assert len(outputs) == len(chosen)
    for example, printed in zip(chosen, outputs, strict=True):
        assert not example.output or is_shown(printed, example.output), (example, printed)
