"""Progress of long work: a bar on a terminal, lines in a log, nothing with --quiet."""

from __future__ import annotations

from pathlib import Path

import pytest

from gleanery.cli.data import progress
from tests.cli.data.conftest import CommandLine
from tests.support.service import Client
from tests.support.terminal import Terminal

pytestmark = pytest.mark.thorough

_HIDE_CURSOR = "\x1b[?25l"
_SHOW_CURSOR = "\x1b[?25h"


@pytest.fixture
def stored(client: Client) -> Client:
    outputs = (
        {"job_id": "j", "source_url": f"https://a.example/{n}", "data": {}} for n in range(2500)
    )
    client.store("g", *outputs)
    return client


def test_a_terminal_shows_a_bar(gleanery: CommandLine, stored: Client, tmp_path: Path) -> None:
    with Terminal(
        "pull", "g", "-o", str(tmp_path / "copy"), **gleanery.variables, NO_COLOR="1"
    ) as terminal:
        assert terminal.wait() == 0
    assert "Pulled 1,000 of 2,500 changes, " in terminal.shown
    assert " s left" in terminal.shown
    assert "Pulled 2,500 changes, " in terminal.shown
    assert _HIDE_CURSOR in terminal.shown
    assert f"to {tmp_path / 'copy'}" in terminal.shown
    assert terminal.shown.rfind(_SHOW_CURSOR) > terminal.shown.rfind(_HIDE_CURSOR)
    assert "\x1b[3" not in terminal.shown, "a colour"


def test_a_pull_that_waits_shows_all_its_changes(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    with Terminal("pull", "g", "-o", str(tmp_path / "copy"), "-f", **gleanery.variables) as shown:
        shown.wait_for("Pulled 2,500 changes, ")
        shown.write("\x03")
        assert shown.wait() == 130


def test_a_simple_terminal_gets_lines(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    variables = {**gleanery.variables, "TERM": "dumb"}
    with Terminal("pull", "g", "-o", str(tmp_path / "copy"), **variables) as terminal:
        assert terminal.wait() == 0
    assert "\x1b" not in terminal.shown
    assert "Pulled 2,500 changes" in terminal.shown


def test_a_log_gets_a_line_from_time_to_time(
    gleanery: CommandLine, stored: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    lines = gleanery("pull", "g", "-o", str(tmp_path / "copy")).stderr.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("Pulled 1,000 of 2,500 changes, ")
    assert "/s" in lines[0]
    assert lines[-1].startswith("Pulled 2,500 changes, ")


@pytest.mark.parametrize("option", ["--quiet", "-q"])
def test_quiet_work_shows_nothing(
    gleanery: CommandLine, stored: Client, tmp_path: Path, option: str
) -> None:
    with Terminal("pull", "g", "-o", str(tmp_path / "copy"), option, **gleanery.variables) as shown:
        assert shown.wait() == 0
    assert shown.shown == ""
