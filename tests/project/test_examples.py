"""Runs the commands of the documentation as written, and compares their output with the page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gleanery.security.tokens import SCOPES
from tests.support.process import Running, environment, free_port, gleanery

ROOT = Path(__file__).parent.parent.parent
# Installation, and services that the test starts itself or cannot start.
_NOT_RUN = re.compile(
    r"(CLONE=|mkdir |python3 -m venv|\. venv|pip |make |gleanery serve|export AWS)"
)
_SCRIPTS = {"docs/tutorial.md": "sync.py", "docs/how-to/hand-cookies-to-a-scraper.md": "cookies.py"}

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


class Example(NamedTuple):
    """A command of a page, and the output that the page shows for it."""

    command: str
    output: str


def examples(text: str) -> Iterator[Example]:
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            lines = part.splitlines()
            end = _command_length(lines)
            yield Example("\n".join(lines[:end]), "\n".join(lines[end:]))


def _command_length(lines: list[str]) -> int:
    """Counts the lines of a command: up to a here-document's end, or without an open quote."""
    if "<<" in lines[0]:
        return lines.index("END") + 1
    for number, line in enumerate(lines, 1):
        if not line.endswith("\\") and "\n".join(lines[:number]).count("'") % 2 == 0:
            return number
    raise ValueError(lines)


def is_shown(printed: str, shown: str) -> bool:
    """Returns True if the page shows this output; … matches any text, white space is ignored."""
    pattern = ".*".join(map(re.escape, re.sub(r"\s", "", shown).split("…")))
    return re.fullmatch(pattern, re.sub(r"\s", "", printed), re.S) is not None


def run(commands: list[str], folder: Path, **variables: str) -> list[str]:
    """Runs the commands in one shell, and gives the output of each."""
    script = "\n".join(f"{command}\nprintf '\\0'" for command in commands)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.split("\0")[:-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the commands that an installation puts on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, program in (
        ("gleanery", f"{sys.executable} -m gleanery"),
        ("python", sys.executable),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (programs / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/tutorial.md",
        "docs/how-to/store-files.md",
        "docs/how-to/hand-cookies-to-a-scraper.md",
    ],
)
def test_examples_work_as_written(page: str, folder: Path) -> None:
    port = str(free_port())
    text = (ROOT / page).read_text().replace(":8000", f":{port}")
    if page in _SCRIPTS:
        [script] = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
        (folder / _SCRIPTS[page]).write_text(script)
    text = text.split("## Use it")[-1]  # the README starts with the demo, which has its own tests
    chosen = [example for example in examples(text) if not _NOT_RUN.match(example.command)]
    data = str(folder / "gleanery-data")
    with Running("serve", "--data", data, "--port", port) as running:
        running.wait_ready(f"http://127.0.0.1:{port}")
        scopes = ",".join(SCOPES)
        made = gleanery(
            "token", "create", "--organization", "a", "--scopes", scopes, "--data", data
        )
        path = f"{folder / 'bin'}:{environment()['PATH']}"
        commands = [example.command for example in chosen]
        outputs = run(commands, folder, PATH=path, TOKEN=made.stdout.strip())
    assert len(outputs) == len(chosen) > 3
    for example, printed in zip(chosen, outputs, strict=True):
        if example.output:
            assert is_shown(printed, example.output), (example, printed)
        elif example.command.startswith("curl"):
            assert '"detail"' not in printed, (example, printed)
