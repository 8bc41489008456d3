"""Exports on the command line: destinations, formats, filters, and what is left after an end."""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from gleanery.cli import main
from gleanery.cli.data import connection, progress
from tests.cli.data.conftest import CommandLine
from tests.support.faulty_server import STALL, faulty_server, respond
from tests.support.process import Running, environment, gleanery_in_process
from tests.support.service import Client
from tests.support.terminal import Terminal
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.thorough


@pytest.fixture
def stored(client: Client) -> Client:
    client.store("prices", *(_output("uk", n) for n in range(5)), _output("de", 5))
    return client


def _output(job: str, n: int, **data: Any) -> dict[str, Any]:
    return {
        "job_id": job,
        "source_url": f"https://a.example/{n}",
        "data": {"n": n, **data},
        "tags": {"country": "United Kingdom" if job == "uk" else "Germany"},
    }


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_ending_of_the_file_is_the_format(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    for name in ("a.jsonl", "b.ndjson", "c.csv", "d.parquet"):
        done = gleanery("export", "prices", "-o", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        *_, last = done.stderr.splitlines()  # before it is the progress, if it takes seconds
        assert last.startswith("Exported 6 outputs, ")
        assert last.endswith(f"to {tmp_path / name}")
    items = stored.items("prices", limit=1000)
    assert lines(tmp_path / "a.jsonl") == lines(tmp_path / "b.ndjson") == items
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert [row["data_n"] for row in rows] == [str(n) for n in range(6)]
    table = pyarrow.parquet.read_table(tmp_path / "d.parquet")
    assert table.column("data_n").to_pylist() == list(range(6))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a.jsonl", "b.ndjson", "c.csv", "d.parquet")
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--job", "de"], [5]),
        (["--url", "https://a.example/2"], [2]),
        (["--country", "Germany"], [5]),
        (["--not-approved", "-n", "2"], [0, 1]),
        (["--approved"], []),
        (["--created-after", "2001-01-01"], [0, 1, 2, 3, 4, 5]),
        (["--limit", "0"], []),
    ],
)
def test_filters_choose_outputs(
    gleanery: CommandLine, stored: Client, tmp_path: Path, options: list[str], expected: list[int]
) -> None:
    file = tmp_path / "a.jsonl"
    done = gleanery("export", "prices", "-o", str(file), *options, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert [item["data"]["n"] for item in lines(file)] == expected


def test_the_approved_view_is_exported(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    stored.post("/v1/reviews/prices", json={"job_id": "uk", "status": "approved"})
    stored.store("prices", _output("uk", 2, new=True))
    file = tmp_path / "a.jsonl"
    arguments = ("export", "prices", "-o", str(file), "--view", "approved")
    assert gleanery(*arguments, "--quiet").returncode == 0
    assert [item["data"] for item in lines(file)] == [{"n": n} for n in range(5)]
    done = gleanery(*arguments, "--overwrite", "--country", "DE")
    assert done.stderr.startswith("No output matches the filters\n")


def test_fields_are_chosen_and_missing_ones_named(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    file = tmp_path / "a.csv"
    done = gleanery("export", "prices", "-o", str(file), "--fields", "data.n,source_url,data.m")
    assert file.read_text().splitlines()[0] == "data_n,source_url,data_m"
    assert "No output has the field data.m\n" in done.stderr


def test_a_column_that_is_widened_is_reported(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    client.store("g", _output("j", 1), _output("j", 2), _output("j", 3) | {"data": {"n": "3"}})
    file = tmp_path / "a.parquet"
    done = gleanery("export", "g", "-o", str(file), "--json")
    assert (
        "Column data_n has integers and 1 value of another kind: it is stored as JSON text; "
        "first in row 3\n"
    ) in done.stderr
    report = json.loads(done.stdout)
    assert report["outputs"] == 3
    assert report["widenings"][0]["field"] == "data_n"
    assert report["cursor"] == client.get("/v1/changes/g").json()["cursor"]
    values = pyarrow.parquet.read_table(file).column("data_n").to_pylist()
    assert values == ["1", "2", '"3"']


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("a.csv", ["Read", "Checked", "Wrote", "Exported"]),
        ("a.parquet", ["Read", "Wrote", "Exported"]),
        ("a.jsonl", ["Exported"]),
    ],
)
def test_each_step_of_an_export_has_its_own_progress(
    gleanery: CommandLine,
    stored: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    steps: list[str],
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    shown = gleanery("export", "prices", "-o", str(tmp_path / name)).stderr.splitlines()
    assert [*dict.fromkeys(line.partition(" ")[0] for line in shown)] == steps
    assert all(" of 6 outputs" in line for line in shown[:-1])
    assert shown[-1].startswith("Exported 6 outputs, ")


def test_filters_that_nothing_matches_are_noted(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    done = gleanery("export", "prices", "-o", str(tmp_path / "a.csv"), "--job", "nothing")
    assert done.returncode == 0
    assert done.stderr.startswith("No output matches the filters\n")


def test_formulas_are_escaped_unless_the_user_says_otherwise(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    client.store("g", _output("j", 1, text="=1+1"))
    file = tmp_path / "a.csv"
    gleanery("export", "g", "-o", str(file), "--fields", "text")
    assert file.read_text().splitlines()[1] == '"\'=1+1"'
    options = ("--no-escape-formulas", "--overwrite")
    gleanery("export", "g", "-o", str(file), "--fields", "text", *options)
    assert file.read_text().splitlines()[1].strip('"') == "=1+1"


def test_a_file_is_overwritten_only_on_request(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("mine")
    done = gleanery("export", "prices", "-o", str(file))
    assert done.returncode == 2
    assert "or give --overwrite to replace it" in done.stderr
    assert "overwrite=" not in done.stderr
    assert file.read_text() == "mine"
    assert gleanery("export", "prices", "-o", str(file), "--overwrite").returncode == 0
    assert len(lines(file)) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "a.xlsx"], "give --format"),
        (["-o", "-", "--json"], "leave out --json"),
        (["-o", "a.csv", "--approved", "--not-approved"], "--approved and --not-approved"),
        (["-o", "a.csv", "--not-approved", "--view", "approved"], "leave out --not-approved"),
        (["--created-after", "yesterday", "-o", "{folder}/a.csv"], "created_after"),
        (["--region", "Bavaria", "-o", "{folder}/a.csv"], "region"),
        (["-o", "/missing/folder/a.csv"], "does not exist"),
        (["--fields", ",", "-o", "-"], "fields"),
    ],
)
def test_a_wrong_option_is_a_user_error(
    gleanery: CommandLine, stored: Client, tmp_path: Path, options: list[str], message: str
) -> None:
    done = gleanery("export", "prices", *(text.format(folder=tmp_path) for text in options))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_misspelled_group_is_suggested(gleanery: CommandLine, stored: Client) -> None:
    done = gleanery("export", "price", "-o", "-")
    assert done.returncode == 2
    assert "did you mean prices?" in done.stderr


def start(gleanery: CommandLine, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gleanery", "export", *arguments],
        env=environment(**gleanery.variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_outputs_go_to_a_pipe(gleanery: CommandLine, stored: Client) -> None:
    out, err = start(gleanery, "prices").communicate(timeout=TIMEOUT_SECONDS)
    assert [json.loads(line) for line in out.splitlines()] == stored.items("prices", limit=1000)
    assert err.decode().rstrip().endswith("to standard output")


def test_outputs_go_to_the_pipe_of_another_program(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    """As the shell names it: /dev/stdout, and /dev/fd/3 for >(program)."""
    for shell in (
        '"$0" -m gleanery "$@" -o /dev/stdout',
        '"$0" -m gleanery "$@" -o /dev/fd/3 3>&1',
    ):
        done = subprocess.run(
            ["sh", "-c", f"{shell} | cat", sys.executable, *("export", "prices"), "--format=jsonl"],
            env=environment(**gleanery.variables),
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(done.stdout.splitlines()) == 6, done.stderr


def test_a_reader_that_has_enough_ends_the_export_quietly(
    gleanery: CommandLine, client: Client
) -> None:
    client.store("g", *(_output("j", n, text="x" * 1000) for n in range(2000)))
    process = start(gleanery, "g", "-o", "-")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()  # as head -1 does
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(TIMEOUT_SECONDS) == 1


def test_a_person_gets_a_file_with_the_name_of_the_group(
    gleanery: CommandLine, stored: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Terminal("export", "prices", "--format", "csv", **gleanery.variables) as terminal:
        assert terminal.wait() == 0
    assert "Exported 6 outputs" in terminal.shown
    assert (tmp_path / "prices.csv").read_text().count("\n") == 7


def test_the_bar_has_the_total(gleanery: CommandLine, stored: Client, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    with Terminal("export", "prices", "-o", str(file), **gleanery.variables) as terminal:
        assert terminal.wait() == 0
    assert " of 6 outputs, " in terminal.shown
    assert " left" in terminal.shown


POSITION = respond(200, b"", gleanery_cursor="9")  # of the group, at the start
CHANGES = respond(
    200,
    {
        "metadata": {"next_url": None, "next_cursor": None},
        "cursor": 10,
        "changes": [{"change": "update", "output_id": "x"}],
    },
)


def page(*ids: int, next_cursor: int | None) -> dict[str, Any]:
    return {
        "metadata": {"next_url": None, "next_cursor": next_cursor},
        "items": [{**_SAMPLE, "id": n, "data": {"n": n}} for n in ids],
    }


def exported(file: Path) -> list[int]:
    if file.suffix == ".parquet":
        return [int(n) for n in pyarrow.parquet.read_table(file).column("data_n").to_pylist()]
    if file.suffix == ".csv":
        return [int(row["data_n"]) for row in csv.DictReader(io.StringIO(file.read_text()))]
    return [item["data"]["n"] for item in lines(file)]


@pytest.mark.parametrize(
    ("name", "number", "status"),
    [
        ("a.jsonl", signal.SIGINT, 130),
        ("a.jsonl", signal.SIGHUP, 129),
        ("a.csv", signal.SIGTERM, 143),
        ("a.parquet", signal.SIGINT, 130),
    ],
)
def test_an_export_that_is_stopped_continues(
    tmp_path: Path, name: str, number: int, status: int
) -> None:
    """An output that has changed in between comes again, and is left out."""
    folder = tmp_path / "exports"
    folder.mkdir()
    script = [
        POSITION,
        respond(200, page(1, 2, 3, next_cursor=5)),
        STALL,
        respond(200, page(2, 4, 5, next_cursor=None)),
        CHANGES,
    ]
    arguments = ("export", "g", "--approved", "-o", str(folder / name))
    with faulty_server(*script) as server:
        variables = {
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "GLEANERY_URL": server.url,
            "GLEANERY_TOKEN": "glean_" + "0" * 49,
        }
        with Running(*arguments, **variables) as running:
            running.wait_for(lambda: len(server.heads) == 3)
            assert running.stop(number) == status
        command = f"gleanery {' '.join(arguments)} --resume"
        assert "(3) are kept in " in running.log[-1]
        assert running.log[-1].endswith(f". To continue, run: {command}\n")
        assert not [path for path in folder.iterdir() if not path.name.startswith(".")]
        again = gleanery_in_process(*arguments, "--resume", **variables)
        assert again.returncode == 0, again.stderr
        assert "cursor=5&" in server.heads[-2]
    assert [path.name for path in folder.iterdir()] == [name]
    assert exported(folder / name) == [1, 2, 3, 4, 5]


def test_a_service_that_is_gone_leaves_a_state_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LONG_WORK_RETRIES", 0)
    script = [
        POSITION,
        respond(200, page(1, next_cursor=5)),
        respond(503, {"detail": []}),
        respond(200, page(2, next_cursor=None)),
        respond(410, {"detail": [{"loc": ["query", "cursor"], "msg": "too old", "type": "gone"}]}),
        respond(200, page(2, next_cursor=None)),
        CHANGES,
    ]
    file = tmp_path / "a.csv"
    arguments = ("export", "g", "--approved", "-o", str(file))
    with faulty_server(*script) as server:
        variables = {"GLEANERY_URL": server.url, "GLEANERY_TOKEN": "glean_" + "0" * 49}
        failed = gleanery_in_process(*arguments, **variables)
        assert failed.returncode == 1
        assert "(1) are kept in " in failed.stderr
        other = gleanery_in_process(*arguments, "--resume", "--job", "j", **variables)
        assert other.returncode == 2
        assert "leave out --resume" in other.stderr
        expired = gleanery_in_process(*arguments, "--resume", **variables)
        assert expired.returncode == 1
        assert expired.stderr.endswith("to continue: leave out --resume to start again\n")
        assert gleanery_in_process(*arguments, "--resume", **variables).returncode == 0
    assert exported(file) == [1, 2]


class InterruptedTerminal(io.StringIO):
    """Sends Ctrl-C when a command shows its progress for the first time."""

    def write(self, text: str) -> int:
        if text.startswith("Exported"):
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


def test_a_stop_while_a_page_is_written_duplicates_nothing(
    gleanery: CommandLine, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.store("prices", *(_output("uk", n) for n in range(1500)))
    arguments = ("export", "prices", "-o", str(tmp_path / "a.jsonl"))
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "argv", ["gleanery", *arguments])
    for name, value in gleanery.variables.items():
        monkeypatch.setenv(name, value)
    with redirect_stderr(InterruptedTerminal()) as errors, pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130, errors.getvalue()
    done = gleanery(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    assert exported(tmp_path / "a.jsonl") == [*range(1500)]


def test_a_killed_export_continues_and_keeps_others_out(tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    script = [
        POSITION,
        respond(200, page(1, 2, next_cursor=5)),
        STALL,
        respond(200, page(3, next_cursor=None)),
        CHANGES,
    ]
    arguments = ("export", "g", "--approved", "-o", str(folder / "a.jsonl"))
    with faulty_server(*script) as server:
        variables = {"GLEANERY_URL": server.url, "GLEANERY_TOKEN": "glean_" + "0" * 49}
        with Running(*arguments, **variables) as running:
            running.wait_for(lambda: len(server.heads) == 3)
            other = gleanery_in_process(*arguments, "--resume", **variables)
            assert other.returncode == 2
            assert "Another export writes this file" in other.stderr
            running.stop(signal.SIGKILL)
        again = gleanery_in_process(*arguments, "--resume", **variables)
        assert again.returncode == 0, again.stderr
    assert exported(folder / "a.jsonl") == [1, 2, 3]
    assert [path.name for path in folder.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(("blocks", "kept"), [(1000, 0), (4000, 1000)])
def test_a_full_disk_keeps_whole_pages(
    gleanery: CommandLine, client: Client, tmp_path: Path, blocks: int, kept: int
) -> None:
    """A limit on the size of files fails a write as a full disk does."""
    client.store("prices", *(_output("uk", n, text="x" * 1000) for n in range(2500)))
    folder = tmp_path / "exports"
    folder.mkdir()
    arguments = ("export", "prices", "-o", str(folder / "a.jsonl"))
    shell = f'ulimit -f {blocks}; exec "$0" -m gleanery "$@"'
    failed = subprocess.run(
        ["sh", "-c", shell, sys.executable, *arguments],
        env=environment(**gleanery.variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    assert f"Cannot write {folder / '.a.jsonl.outputs.jsonl'}: File too large" in failed.stderr
    assert ("(1,000) are kept in" in failed.stderr) == bool(kept)
    assert len([*folder.iterdir()]) == (2 if kept else 0)
    again = gleanery(*arguments, *(["--resume"] if kept else []))
    assert again.returncode == 0, again.stderr
    assert exported(folder / "a.jsonl") == [*range(2500)]


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    script = [POSITION, respond(200, page(1, next_cursor=5)), STALL]
    with faulty_server(*script) as server:
        variables = {"GLEANERY_URL": server.url, "GLEANERY_TOKEN": "glean_" + "0" * 49}
        shell = 'trap "" INT; exec "$0" -m gleanery export g --approved -o "$1"'
        program = ["sh", "-c", shell, sys.executable, str(tmp_path / "a.jsonl")]
        with subprocess.Popen(
            program, env=environment(**variables), stderr=subprocess.PIPE
        ) as process:
            wait_until(lambda: len(server.heads) == 3)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_SECONDS) == 128 + signal.SIGTERM


def no_locks(*_: object) -> None:
    raise OSError(errno.ENOTSUP, "Operation not supported")


def test_a_disk_without_locks_and_a_long_name_are_possible(
    gleanery: CommandLine, stored: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    file = tmp_path / f"{'ü' * 120}.jsonl"
    done = gleanery("export", "prices", "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert len(exported(file)) == 6
    done = gleanery("pull", "prices", "-o", str(tmp_path / "copy"))
    assert done.returncode == 0, done.stderr


def test_nothing_to_continue_is_a_user_error(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    for target in (str(tmp_path / "a.csv"), "-"):
        done = gleanery("export", "prices", "-o", target, "--resume")
        assert done.returncode == 2
        assert "leave out --resume" in done.stderr
    assert not [*tmp_path.iterdir()]


_SAMPLE = {
    "source_url": "https://a.example",
    "data": {},
    "output_id": "x",
    "root_job_id": "j",
    "create_date": "2026-01-01T00:00:00Z",
    "update_date": "2026-01-01T00:00:00Z",
    "last_scraped_date": "2026-01-01T00:00:00Z",
    "key_hash": "k",
    "value_hash": "v",
    "is_approved": False,
    "tags": {},
    "files": [],
}
