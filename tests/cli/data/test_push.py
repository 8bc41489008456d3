"""``gleanery push``: formats of files, errors with line numbers, and how to continue."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gleanery.cli.data import progress
from gleanery.cli.data.item_sources import PipeItems, open_input, open_items
from gleanery.cli.data.stop_signals import StopSignals
from gleanery.client.items import FLUSH
from tests.cli.data.conftest import CommandLine
from tests.support.process import environment
from tests.support.service import Client
from tests.support.waiting import TIMEOUT_SECONDS, wait_until


def _items(count: int) -> list[dict[str, Any]]:
    return [{"url": f"https://shop.example/{n}", "sku": n, "name": "Straße"} for n in range(count)]


def _lines(items: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items).encode()


def _data(client: Client) -> list[dict[str, Any]]:
    return [item["data"] for item in client.items("prices", limit=1000)]


def _write(tmp_path: Path, name: str, content: bytes) -> str:
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def _start(gleanery: CommandLine, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gleanery", *arguments],
        env=environment(**gleanery.variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _pipe(
    gleanery: CommandLine, content: bytes, *arguments: str
) -> tuple[int | None, bytes, bytes]:
    with _start(gleanery, *arguments) as process:
        output, errors = process.communicate(content, TIMEOUT_SECONDS)
        return process.returncode, output, errors


def _gzip(content: bytes) -> bytes:
    """Compress without the time, so that the names of the tests are the same in each process."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("items.jsonl", _lines(_items(3))),
        ("items.NDJSON", b"\xef\xbb\xbf" + _lines(_items(3)).replace(b"\n", b"\r\n\r\n")),
        ("items", _lines(_items(3)).rstrip(b"\n")),
        ("items.jl.gz", _gzip(_lines(_items(2))) + _gzip(_lines(_items(3)[2:]))),
        ("items.json", json.dumps(_items(3), indent=2).encode()),
        ("array", b" \n" + json.dumps(_items(3)).encode()),
        ("items.json.gz", _gzip(b"\xef\xbb\xbf \n" + json.dumps(_items(3)).encode())),
    ],
)
def test_the_items_of_a_file_are_stored(
    gleanery: CommandLine, client: Client, tmp_path: Path, name: str, content: bytes
) -> None:
    done = gleanery("push", "prices", _write(tmp_path, name, content), "--job", "shop")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "to prices: 3 new, 0 updated, 0 unchanged" in done.stderr
    assert _data(client) == _items(3)


def test_the_values_of_csv_are_text(gleanery: CommandLine, client: Client, tmp_path: Path) -> None:
    content = 'url,price,note\r\nhttps://a.example/,007,"a ""b"",\nc"\r\n\r\nhttps://b.example/,,ß'
    file = _write(tmp_path, "items.csv", b"\xef\xbb\xbf" + content.encode())
    done = gleanery("push", "prices", file, "--job", "shop", "--key-field", "url")
    assert done.returncode == 0, done.stderr
    assert _data(client) == [
        {"url": "https://a.example/", "price": "007", "note": 'a "b",\nc'},
        {"url": "https://b.example/", "price": "", "note": "ß"},
    ]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv", b"url;price\nx;1\n", "separated by commas"),
        ("a.csv", b"url,url\n", "twice"),
        ("a.csv", b"", "no header"),
        ("a.csv", b"url,n\nx,1\nx,\xfc\n", "Line 3 is not in UTF-8"),
        ("a.csv", b'url,n\nx,1\n"x,1\n', "Line 3 is not CSV"),
        ("a.csv", b'url,n\nx,"a\nb"\nx\n', "line 4: has 1 values, and the header has 2"),
        ("a.jsonl", b'{"url":"x"}\n\n{"n":1}\n{"n":2}\n', "line 3: url: is missing (also line 4)"),
        (
            "a.csv",
            b"url,n\nx\nx,1\ny\nz\n",
            "line 2: has 1 values, and the header has 2 (also lines 4, 5)",
        ),
        ("a.jsonl", b'{"url":"x"}\n{"url":\n', "line 2: not valid JSON"),
        ("a.jsonl", "{}".encode("utf-16"), "UTF-16"),
        ("a.jsonl", b'[{"url":"x"}]', "give --format json"),
        ("a.json", b'{"url":"x"}', "--format jsonl"),
        ("a.json", b'[{"url":"x"},\n{"url":"y"', "after item 1"),
        ("a.json", b'[{"url":"x"}] {}', "after item 1"),
        ("a.jsonl.gz", _gzip(b'{"url":"x"}\n' * 9)[:-9], "not complete"),
        ("a.jsonl.gz", b"\x1f\x8b not gzip", "damaged"),
        ("a.txt", b"", "ending"),
        ("csv", b"url,price\nhttps://a.example/,1\n", "look like CSV: give --format csv"),
    ],
)
def test_a_file_with_a_problem_is_an_error_of_the_user(
    gleanery: CommandLine, tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    done = gleanery("push", "prices", _write(tmp_path, name, content), "--job", "shop")
    assert done.returncode == 2, done.stderr
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_long_elements_of_an_array_are_read_in_pieces(tmp_path: Path) -> None:
    items = [{"text": "x" * size, "n": size / 3} for size in (0, 100, 300_000, 1_200_000, 7)]
    file = _write(tmp_path, "items.json", json.dumps(items).encode())
    with open_input(file) as source:
        assert [json.loads(item) for item in open_items(source, "json")] == items


def test_wrong_use_is_explained(gleanery: CommandLine, tmp_path: Path) -> None:
    file = _write(tmp_path, "items.jsonl", _lines(_items(2)))
    without_job = gleanery("push", "prices", file)
    assert without_job.returncode == 2
    assert "give --job. No item is stored" in without_job.stderr
    assert "give --job" in gleanery("push", "prices", file, "--format", "csv").stderr
    wrong = gleanery("push", "prices", file, "--job", "shop", GLEANERY_TOKEN="wrong")
    assert wrong.returncode == 2
    assert "gleanery login" in wrong.stderr
    missing = gleanery("push", "prices", str(tmp_path / "other.jsonl"), "--job", "shop")
    assert (missing.returncode, "No such file" in missing.stderr) == (2, True)


def test_invalid_items_are_skipped_and_listed_by_line(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    file = _write(
        tmp_path, "items.csv", b'url,n\nhttps://a.example/,"1\n2"\n,3\nhttps://b.example/\n'
    )
    done = gleanery("push", "prices", file, "--job", "shop", "--on-error", "skip", "--json")
    assert done.returncode == 0
    assert "Skipped line 4: url: expected a string" in done.stderr
    result = json.loads(done.stdout)
    assert (result["items"], result["created"], result["skipped"]) == (3, 1, 2)
    assert [error["line"] for error in result["errors"]] == [4, 5]
    lines = _lines(_items(2)) + b"\n\n{\n" + _lines(_items(3)[2:])
    bad = gleanery(
        "push", "other", _write(tmp_path, "a", lines), "--job", "shop", "--on-error", "skip"
    )
    assert re.search(r"^Pushed 3 items, .* 3 new, .* 1 skipped$", bad.stderr, re.MULTILINE)
    quiet = gleanery("push", "prices", file, "--job", "shop", "--on-error", "skip", "-q")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


@pytest.mark.thorough
def test_a_push_continues_where_it_has_ended(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    content = _lines(_items(1200)) + b"{}\n" + _lines(_items(1210)[1200:])
    file = _write(tmp_path, "items.jsonl", content)
    failed = gleanery("push", "prices", file, "--job", "shop", "--json", "--skip=0")
    assert failed.returncode == 2
    assert "line 1201: url: is missing. Correct this, or give --on-error skip." in failed.stderr
    assert "The first 1,000 items are stored." in failed.stderr
    command = failed.stderr.strip().partition("run: gleanery ")[2]
    assert command == shlex.join(
        ["push", "prices", file, "--job", "shop", "--json", "--skip", "1000"]
    )
    assert json.loads(failed.stdout)["created"] == 1000
    rest = gleanery(*shlex.split(command), "--on-error", "skip")
    assert rest.returncode == 0
    result = json.loads(rest.stdout)
    assert (result["items"], result["created"]) == (211, 210)
    assert [error["line"] for error in result["errors"]] == [1201]
    assert _data(client) == _items(1210)


@pytest.mark.thorough
def test_the_size_of_a_file_gives_the_remaining_time(
    gleanery: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    file = _write(tmp_path, "items.jsonl", _lines(_items(10_000)))
    lines = gleanery("push", "prices", file, "--job", "shop").stderr.splitlines()
    assert re.match(r"Pushed 1,000 items, .* kB, .*/s, .* left$", lines[0])
    assert lines[-1].startswith("Pushed 10,000 items, ")


@pytest.mark.thorough
def test_items_come_from_a_pipe(gleanery: CommandLine, client: Client) -> None:
    push = ("push", "prices", "--job", "shop")
    status, output, errors = _pipe(gleanery, _lines(_items(3)), *push, "-", "--json")
    assert (status, json.loads(output)["created"]) == (0, 3), errors
    compressed = gzip.compress(json.dumps(_items(4)).encode())
    assert _pipe(gleanery, compressed, *push)[0] == 0
    assert _data(client) == _items(4)
    assert _pipe(gleanery, b"", *push, "--token-file", "-")[0] == 2


def _stored(client: Client) -> int:
    group = client.get("/v1/groups/prices")
    return int(group.json()["outputs"]) if group.status_code == 200 else 0


def _send(process: subprocess.Popen[bytes], content: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(content)
    process.stdin.flush()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_read_from_a_pipe_is_stored_at_a_signal(
    gleanery: CommandLine, client: Client, number: signal.Signals
) -> None:
    content = _lines(_items(1500))
    push = ("push", "prices", "--job", "shop", "--json")
    with _start(gleanery, *push) as process:
        _send(process, content)  # the command waits for more
        wait_until(lambda: _stored(client) >= 1000)
        process.send_signal(number)
        output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 128 + number
    assert json.loads(output)["items"] == 1500
    assert "The first 1,500 items are stored." in errors.decode()
    command = shlex.split(errors.decode().strip().partition("run: gleanery ")[2])
    assert command == [*push, "--skip", "1500"]
    assert _data(client) == _items(1500)
    status, output, _ = _pipe(gleanery, _lines(_items(1502)), *command)
    assert (status, json.loads(output)["items"]) == (0, 2)


@pytest.mark.thorough
@pytest.mark.parametrize("format_", ["jsonl", pytest.param("csv", marks=pytest.mark.extended)])
def test_an_item_of_a_slow_pipe_is_stored_before_its_batch_is_full(
    gleanery: CommandLine, client: Client, format_: str
) -> None:
    rows = {"jsonl": _lines(_items(2)).splitlines(), "csv": [b"url", b"https://a.example/"]}
    with _start(gleanery, "push", "prices", "--job", "shop", "--format", format_) as process:
        _send(process, b"\n".join(rows[format_]) + b"\n")
        wait_until(lambda: _stored(client) > 0, TIMEOUT_SECONDS)
        assert process.poll() is None
        process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0


def test_each_batch_of_a_pipe_is_sent_also_if_many_of_its_lines_are_blank() -> None:
    found = list(PipeItems(iter([b"\n"] * 2500), StopSignals(), lambda: None))
    assert [n for n, item in enumerate(found) if item is FLUSH] == [1000, 2001, 2502]


def test_the_items_of_a_pipe_before_an_error_are_sent() -> None:
    def read() -> Iterator[bytes]:
        yield from (b"1", b"2", b"3")
        raise OSError("The disk cannot be read")

    items = iter(PipeItems(read(), StopSignals(), lambda: None))
    assert [next(items) for _ in range(4)] == [b"1", b"2", b"3", FLUSH]
    with pytest.raises(OSError, match="cannot be read"):
        next(items)


@pytest.mark.thorough
def test_a_second_signal_ends_a_push_at_once(gleanery: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts requests and never responds
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        slow = CommandLine(url, gleanery.token, gleanery.folder)
        with _start(slow, "push", "prices", "--job", "shop") as process:
            _send(process, _lines(_items(1000)))
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)  # the batch is on its way
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGTERM)
                process.wait(TIMEOUT_SECONDS)
                assert process.stderr is not None
                assert b"interrupted. No item is stored." in process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="the threads of a process are read in /proc")
def test_only_the_main_thread_of_a_push_gets_signals(gleanery: CommandLine) -> None:
    """A signal to another thread does not wake it: the push would wait for its request."""
    with _start(gleanery, "push", "prices", "--job", "shop") as process:
        main, threads = str(process.pid), Path(f"/proc/{process.pid}/task")

        def blocked() -> dict[bool, bool]:
            return {thread.name == main: _blocks_signals(thread) for thread in threads.iterdir()}

        _send(process, _lines(_items(1)))
        wait_until(lambda: blocked() == {True: False, False: True})
        process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0


def _blocks_signals(thread: Path) -> bool:
    [mask] = re.findall(r"^SigBlk:\s+(\w+)$", (thread / "status").read_text(), re.MULTILINE)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return all(int(mask, 16) >> (number - 1) & 1 for number in numbers)


@pytest.mark.thorough
def test_ctrl_c_ends_the_push_of_a_file_at_once(gleanery: CommandLine, tmp_path: Path) -> None:
    push = ("push", "prices", _write(tmp_path, "a.jsonl", _lines(_items(3))), "--job", "shop")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts requests and never responds
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with _start(CommandLine(url, gleanery.token, gleanery.folder), *push) as process:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)  # the batch is on its way
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130
    assert f"No item is stored. To continue, run: gleanery {shlex.join(push)}" in errors.decode()


@pytest.mark.thorough
def test_zstd_is_read_if_python_can(gleanery: CommandLine, client: Client, tmp_path: Path) -> None:
    zstd = pytest.importorskip(
        "backports.zstd" if sys.version_info < (3, 14) else "compression.zstd"
    )
    file = _write(tmp_path, "items.jsonl.zst", zstd.compress(_lines(_items(3))))
    done = gleanery("push", "prices", file, "--job", "shop")
    assert done.returncode == 0, done.stderr
    assert _data(client) == _items(3)
    assert os.path.getsize(file) < len(_lines(_items(3)))
