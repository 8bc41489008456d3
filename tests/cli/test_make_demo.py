"""``make demo``: its progress, its options, and a port that is in use."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import environment
from tests.support.waiting import TIMEOUT_SECONDS

ROOT = Path(__file__).parents[2]
_PIP = """#!/bin/sh
case "$*" in *--quiet*) ;; *) echo "Collecting a-package" ;; esac
"""


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment whose pip installs nothing, with the program of this tree."""
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    for name, text in {
        "pip": _PIP,
        "python": "#!/bin/sh\n",
        "gleanery": f'#!/bin/sh\nexec {sys.executable} -m gleanery "$@"\n',
    }.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    (folder / ".made").touch()
    return folder


def make_demo(venv: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs make until it ends: the demo itself must not start."""
    return subprocess.run(
        ["make", "-C", str(ROOT), "demo", f"VENV={venv}", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env=environment(PYTHONPATH=os.pathsep.join(sys.path)),
        check=False,
    )


@pytest.mark.thorough
def test_the_installation_shows_its_progress(venv: Path) -> None:
    told = make_demo(venv, "ARGS=--version-that-is-no-option").stdout
    assert "Collecting a-package" in told
    assert (venv / ".runtime").exists()


@pytest.mark.thorough
def test_a_port_in_use_has_an_advice_that_works_with_make(venv: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = make_demo(venv, f"ARGS=--port {port}")
    assert ended.returncode == 2
    assert f"port {port}" in ended.stderr
    assert 'make demo ARGS="--port 0"' in ended.stderr
    assert "gleanery demo --port 0" in ended.stderr
