"""Real proxies for tests: nginx and HAProxy in their own processes."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import TIMEOUT_SECONDS, wait_until

_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"


@contextmanager
def running_proxy(
    command: str, arguments: tuple[str, ...], configuration: str, folder: Path, port: int
) -> Iterator[None]:
    """Runs the proxy until the end of the block. Skips the test where it is not installed.

    ``arguments`` come before the name of the configuration file.
    """
    path = shutil.which(command, path=_PATH)
    if path is None:
        pytest.skip(f"needs {command}: run make proxies")
    file = folder / "configuration"
    file.write_text(configuration)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([path, *arguments, str(file)], stdout=log, stderr=log)
        try:
            wait_until(lambda: process.poll() is not None or is_listening(port))
            assert process.poll() is None, (folder / "log").read_text()
            yield
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
