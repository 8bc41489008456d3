"""Tables and the line of progress on terminals, narrow ones and pipes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest

from gleanery.cli import terminal
from gleanery.cli.terminal import StatusLine, print_table, progress_bars, width_of, wrap


class Screen(io.StringIO):
    """A terminal that keeps what it gets."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


@contextmanager
def on_screen() -> Iterator[Screen]:
    """Terminal for standard output and standard error."""
    screen = Screen()
    with redirect_stdout(screen), redirect_stderr(screen):
        yield screen


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two", ["one two"]),
        ("one two three", ["one two", "three"]),
        ("abcdefghijkl", ["abcdefgh", "ijkl"]),
        ("a abcdefghijkl b", ["a", "abcdefgh", "ijkl b"]),
        ("价格价格价格", ["价格价格", "价格"]),
        ("e\u0301" * 9, ["e\u0301" * 8, "e\u0301"]),
        ("--dry-run-x", ["--dry-ru", "n-x"]),
    ],
)
def test_lines_are_divided_at_spaces_if_possible(text: str, lines: list[str]) -> None:
    assert wrap(text, 8) == lines


def test_a_width_counts_cells() -> None:
    assert [*map(width_of, ("price", "价格", "Zu\u0308rich", "🔍"))] == [5, 4, 6, 2]


def table(columns: Sequence[str], *rows: Sequence[str], unbroken: Sequence[str] = ()) -> None:
    print_table(columns, rows, unbroken)


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    table(("Name", "Text"), ("价格", "x " * 100), ("abc", "\x1b[31mred"))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["Name  Text", "价格  " + ("x " * 100).strip(), "abc   \\x1b[31mred"]


def test_a_terminal_gets_a_bold_header() -> None:
    with on_screen() as screen:
        table(("Name", "Text"), ("a", "b"))
    assert screen.getvalue() == "\x1b[1mName  Text\x1b[0m\na     b\n"


def test_a_simple_terminal_gets_only_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with on_screen() as screen:
        table(("Name",), ("a",))
        with progress_bars() as start:
            start("Copying", 2)(1)
    assert screen.getvalue() == "Name\na\n"


def test_a_narrow_terminal_divides_words_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "32")
    monkeypatch.setenv("TERM", "dumb")
    with on_screen() as screen:
        table(("Name", "Date"), ("shop-prices", "2026-11-18 21:15:31Z"))
    assert screen.getvalue().splitlines() == [
        "Name         Date",
        "shop-prices  2026-11-18",
        "             21:15:31Z",
    ]
    monkeypatch.setenv("COLUMNS", "20")
    with on_screen() as screen:
        table(("Name", "Date"), ("shop-prices", "2026-11-18 21:15:31Z"))
    lines = screen.getvalue().splitlines()
    assert max(map(width_of, lines)) <= 20
    assert "".join(line[:9].strip() for line in lines[1:]) == "shop-prices"
    assert "".join(line[9:].strip() for line in lines[1:]) == "2026-11-1821:15:31Z"


def test_an_unbroken_column_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    with on_screen() as screen:
        table(("Run", "Message"), ("0123456789abcdef", "one two three four"), unbroken=("Run",))
    assert screen.getvalue().splitlines()[1:] == [
        "0123456789abcdef  one two",
        " " * 18 + "three four",
    ]


def test_a_bar_shows_the_part_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_BAR_SECONDS", 0.0)
    with on_screen() as screen, progress_bars() as start:
        advance = start("Copying", 4)
        advance(2)
        advance(2)
        start("Checking", 0)
    shown = screen.getvalue()
    assert "Copying: 0% [....................]" in shown
    assert "Copying: 50%, 0.0 s left [##########..........]" in shown
    assert "Copying: 100% [####################]\x1b[?25h\n" in shown
    assert shown.endswith("Checking: 100% [####################]\x1b[?25h\n")


def test_a_line_fits_into_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    with on_screen() as screen:
        line = StatusLine()
        line.draw("价格价格价格价格", 0.5)
        line.print_above("A note")
        line.close()
    shown = screen.getvalue().replace("\x1b[?25l", "").split("\r\x1b[K")
    assert shown == ["", "价格价格价…", "A note\n价格价格价…", "\x1b[?25h"]
