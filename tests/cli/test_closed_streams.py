"""Commands with closed output streams: they exit without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.support.process import environment, free_port, gleanery_in_process, is_ready
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.thorough

SCRIPT = """
import asyncio, sys
from pathlib import Path
from gleanery.common.settings import Settings
from gleanery.service.storage.engines import create_engine

async def work():
    database = create_engine(Settings(data=Path(sys.argv[1])))
    await database.open()
    while True:
        print("a line", flush=True)

asyncio.run(work())
"""


def start(*arguments: str, **streams: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *arguments], env=environment(), **streams)


def read_one_line_of(process: subprocess.Popen[bytes]) -> None:
    """Reads as ``head -1`` does."""
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()


@pytest.mark.parametrize("command", [["--help"], ["serve", "--help"], ["token", "list"]])
def test_a_command_whose_output_is_cut_off_prints_no_traceback(
    tmp_path: Path, command: list[str]
) -> None:
    data = ["--data", str(tmp_path)] if command[0] == "token" else []
    if data:
        gleanery_in_process("token", "create", "--organization", "a", *data)
    process = start(
        *("-m", "gleanery", *command, *data), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before the first line
    assert process.stderr.read() == b""
    assert process.wait(TIMEOUT_SECONDS) == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_whose_log_is_cut_off_serves_and_stops(tmp_path: Path, workers: str) -> None:
    port = free_port()
    options = ("--data", str(tmp_path), "--port", str(port), "--workers", workers)
    process = start(
        *("-m", "gleanery", "serve", *options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        read_one_line_of(process)
        wait_until(lambda: is_ready(f"http://127.0.0.1:{port}"))
        for _ in range(3):
            assert httpx2.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 0
    finally:
        process.kill()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("descriptors", [[2], [0, 1, 2]])
def test_a_service_starts_with_closed_streams(
    tmp_path: Path, descriptors: list[int], workers: str
) -> None:
    port = free_port()
    closing = " ".join(f"{number}>&-" for number in descriptors)
    options = f"--port {port} --workers {workers}"
    command = f'exec "$0" -m gleanery serve --data "$1" {options} {closing}'
    process = subprocess.Popen(
        ["sh", "-c", command, sys.executable, str(tmp_path)], env=environment()
    )
    try:
        wait_until(lambda: is_ready(f"http://127.0.0.1:{port}"))
        assert httpx2.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 0
    finally:
        process.kill()


def test_a_script_that_leaves_a_database_open_ends(tmp_path: Path) -> None:
    process = start(
        *("-c", SCRIPT, str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        read_one_line_of(process)
        assert process.wait(TIMEOUT_SECONDS) == 1
    finally:
        process.kill()
