"""Pull: files of changes that are complete, ordered and without duplicates, after any end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gleanery.cli.data import connection
from tests.cli.data.conftest import CommandLine
from tests.support.forwarder import Forwarder
from tests.support.process import (
    Running,
    environment,
    free_port,
    gleanery_in_process,
    killed_before_call,
)
from tests.support.service import DAY, Client, Clock, Service
from tests.support.waiting import TIMEOUT_SECONDS

pytestmark = pytest.mark.thorough

GUIDE = Path(__file__).parents[3] / "docs/how-to/keep-a-copy-of-a-group.md"


def outputs(*numbers: int, size: int = 0) -> list[dict[str, Any]]:
    return [
        {"job_id": "j", "source_url": f"https://a.example/{n}", "data": {"n": n, "x": "x" * size}}
        for n in numbers
    ]


def pulled(folder: Path) -> list[dict[str, Any]]:
    """Changes of all files, in the order of their names."""
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def numbers(folder: Path) -> list[int]:
    return [change["output"]["data"]["n"] for change in pulled(folder)]


def cursor_of(folder: Path) -> int:
    return int(json.loads((folder / ".gleanery-state.json").read_text())["cursor"])


def test_a_second_pull_gets_only_new_changes(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    [stored, *_] = client.store("prices", *outputs(*range(5)))["results"]
    folder = tmp_path / "copy"
    first = gleanery("pull", "prices", "-o", str(folder))
    assert first.returncode == 0, first.stderr
    assert first.stdout == ""
    assert re.match(r"Pulled 5 changes, .* to ", first.stderr)
    [file] = folder.glob("*.jsonl")
    client.store("prices", *outputs(9))
    client.delete(f"/v1/outputs/prices/{stored['output_id']}")
    second = gleanery("pull", "prices", "-o", str(folder), "--quiet")
    assert second.stderr == ""
    assert len([*folder.glob("*.jsonl")]) == 2
    changes = pulled(folder)
    assert [change["change"] for change in changes] == ["create"] * 6 + ["delete"]
    feed = client.get("/v1/changes/prices?cursor=0&limit=1000").json()
    assert cursor_of(folder) == feed["cursor"] == changes[-1]["cursor"]
    assert file.name == f"prices-{0:019}-{changes[4]['cursor']:019}.jsonl"
    gleanery("pull", "prices", "-o", str(folder))
    assert pulled(folder) == changes


def test_lines_are_the_bytes_of_the_service(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    precise = '{"n": 12345678901234567890123, "x": 1.10, "e": "\\u20ac"}'
    body = f'[{{"job_id": "j", "source_url": "https://a.example", "data": {precise}}}]'
    client.post("/v1/outputs/g", content=body, headers={"Content-Type": "application/json"})
    gleanery("pull", "g", "-o", str(tmp_path / "copy"))
    [file] = (tmp_path / "copy").glob("*.jsonl")
    page = client.get("/v1/changes/g?limit=1000").content
    assert file.read_bytes().rstrip(b"\n") in page


def test_files_have_a_limited_size(gleanery: CommandLine, client: Client, tmp_path: Path) -> None:
    client.store("g", *outputs(*range(2500), size=1000))  # three pages
    done = gleanery("pull", "g", "-o", str(tmp_path), "--segment-size", "1", "--json")
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    files = sorted(tmp_path.glob("*.jsonl"))
    assert [row["file"] for row in printed] == [str(file) for file in files]
    assert numbers(tmp_path) == list(range(2500))
    assert len(files) == 3
    assert printed[0]["first_cursor"] == 0
    assert printed[-1]["last_cursor"] == cursor_of(tmp_path)
    starts = [row["first_cursor"] for row in printed]
    assert starts[1:] == [row["last_cursor"] for row in printed[:-1]]


@pytest.mark.parametrize("group", ["a b\\c", "...", ".hidden", "-f", "ü" * 60, "CON:|?*"])
def test_the_name_of_a_group_is_safe_in_a_file_name(
    gleanery: CommandLine, client: Client, tmp_path: Path, group: str
) -> None:
    client.store(quote(group, safe=""), *outputs(1))
    done = gleanery("pull", "-o", str(tmp_path / "copy"), "--", group)
    assert done.returncode == 0, done.stderr
    [file] = (tmp_path / "copy").glob("*.jsonl")
    assert re.fullmatch(r"[\w%.~-]{1,140}\.jsonl", file.name, re.ASCII)
    assert numbers(tmp_path / "copy") == [1]


def test_a_position_that_is_too_old_starts_again(
    timed_service: Service, timed: Client, clock: Clock, tmp_path: Path
) -> None:
    assert timed.token is not None
    command = CommandLine(timed_service.url, timed.token, tmp_path / "config")
    [stored, *_] = timed.store("g", *outputs(1, 2))["results"]
    folder = tmp_path / "copy"
    command("pull", "g", "-o", str(folder))
    timed.delete(f"/v1/outputs/g/{stored['output_id']}")
    clock.move(seconds=40 * DAY)
    timed_service.sweep(clock)
    done = command("pull", "g", "-o", str(folder))
    assert done.returncode == 0, done.stderr
    assert f"The old files are in {folder}/expired-1." in done.stderr
    assert numbers(folder) == [2]
    assert numbers(folder / "expired-1") == [1, 2]
    [file] = folder.glob("*.jsonl")
    assert f"-{0:019}-" in file.name


def test_two_pulls_do_not_share_a_folder(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    client.store("g", *outputs(1))
    with Running("pull", "g", "-o", str(tmp_path), "-f", **gleanery.variables) as running:
        running.wait_for(lambda: numbers(tmp_path) == [1])
        second = gleanery("pull", "g", "-o", str(tmp_path))
        assert second.returncode == 2
        assert "Another gleanery pull writes to" in second.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_pull_that_follows_stops_with_everything_stored(
    gleanery: CommandLine, client: Client, tmp_path: Path, number: int, status: int
) -> None:
    client.store("g", *outputs(1))
    follow = ("pull", "g", "-o", str(tmp_path), "--follow", "--json")
    with Running(*follow, **gleanery.variables) as running:
        running.wait_for(lambda: numbers(tmp_path) == [1])
        client.store("g", *outputs(2, 3))
        running.wait_for(lambda: numbers(tmp_path) == [1, 2, 3])
        running.wait_for(lambda: len(running.out) == 2)
        assert running.stop(number) == status
        assert f"To continue, run: gleanery {' '.join(follow)}" in running.log[-1]
        assert "Traceback" not in "".join(running.log)
    assert not [*tmp_path.glob(".*.part")]
    assert gleanery("pull", "g", "-o", str(tmp_path)).returncode == 0
    assert numbers(tmp_path) == [1, 2, 3]


@pytest.mark.extended
@pytest.mark.parametrize("renames", range(4))
def test_a_kill_loses_nothing_and_duplicates_nothing(
    gleanery: CommandLine,
    client: Client,
    tmp_path: Path,
    renames: int,
) -> None:
    """The segments and the state are renamed in turn: a kill comes before each of them."""
    client.store("g", *outputs(*range(2500), size=1000))  # three segments
    arguments = ("pull", "g", "-o", str(tmp_path / "copy"), "--segment-size", "1")
    program = killed_before_call(("pathlib", "Path.replace"), renames)
    with Running(*arguments, program=program, **gleanery.variables) as running:
        assert running.process.wait(TIMEOUT_SECONDS) == -signal.SIGKILL
    assert gleanery(*arguments).returncode == 0
    assert numbers(tmp_path / "copy") == list(range(2500))
    assert not [*tmp_path.glob("copy/.*.part")]


def test_a_full_disk_keeps_the_complete_files(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    """A limit on the size of files fails a write as a full disk does."""
    client.store("g", *outputs(*range(2500), size=1000))
    arguments = ("pull", "g", "-o", str(tmp_path))
    gleanery(*arguments, "--segment-size", "1")
    client.store("g", *outputs(*range(2500, 5000), size=1000))
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -f 1000; exec "$0" -m gleanery "$@"', sys.executable, *arguments],
        env=environment(**gleanery.variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"gleanery: {tmp_path}: File too large. ")
    assert f"To continue, run: gleanery {' '.join(arguments)}" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert numbers(tmp_path) == list(range(2500))
    assert not [*tmp_path.glob(".*.part")]
    assert gleanery(*arguments).returncode == 0
    assert numbers(tmp_path) == list(range(5000))


def test_a_state_of_another_group_is_rejected(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    client.store("g", *outputs(1))
    client.store("h", *outputs(2))
    gleanery("pull", "g", "-o", str(tmp_path))
    done = gleanery("pull", "h", "-o", str(tmp_path))
    assert done.returncode == 2
    assert "is the state of another group or service: choose another folder, or" in done.stderr
    state = str(tmp_path / "h.json")
    assert gleanery("pull", "h", "-o", str(tmp_path), "--state", state).returncode == 0


def test_a_pull_of_the_approved_view_has_approved_values_only(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    client.store("g", *outputs(1, 2))
    client.post("/v1/reviews/g", json={"job_id": "j", "status": "approved"})
    client.store("g", *outputs(1, size=5), *outputs(3))
    arguments = ("pull", "g", "-o", str(tmp_path / "copy"), "--view", "approved")
    assert gleanery(*arguments).returncode == 0
    assert numbers(tmp_path / "copy") == [1, 2]
    assert {change["output"]["data"]["x"] for change in pulled(tmp_path / "copy")} == {""}
    client.post("/v1/reviews/g", json={"job_id": "j", "status": "rejected"})
    assert gleanery(*arguments).returncode == 0
    changes = pulled(tmp_path / "copy")
    assert [change["change"] for change in changes] == ["create", "create", "delete", "delete"]
    other = gleanery(*arguments[:-2])
    assert other.returncode == 2
    assert "is the state of --view approved, not of --view full: use the same" in other.stderr
    assert "or choose another folder, or another file with --state" in other.stderr
    assert pulled(tmp_path / "copy") == changes


def test_files_without_a_state_are_left_alone(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    client.store("g", *outputs(1))
    gleanery("pull", "g", "-o", str(tmp_path))
    (tmp_path / ".gleanery-state.json").unlink()
    done = gleanery("pull", "g", "-o", str(tmp_path))
    assert done.returncode == 2
    assert "give its file with --state" in done.stderr


def test_a_file_instead_of_a_folder_is_a_user_error(gleanery: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    done = gleanery("pull", "g", "-o", str(tmp_path / "a"))
    assert done.returncode == 2
    assert "is not a folder: choose another name" in done.stderr
    done = gleanery("pull", "g", "-o", str(tmp_path), "--state", str(tmp_path / "b/state.json"))
    assert done.returncode == 2
    assert f"The folder {tmp_path / 'b'} does not exist: create it first" in done.stderr


def test_an_unknown_group_is_a_user_error(gleanery: CommandLine, tmp_path: Path) -> None:
    done = gleanery("pull", "nothing", "-o", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "gleanery groups" in done.stderr
    assert not [*tmp_path.glob("*.jsonl")]
    gleanery("pull", "nothing", "-o", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.thorough
def test_a_pull_that_follows_waits_for_the_service(
    gleanery: CommandLine, client: Client, service: Service, tmp_path: Path
) -> None:
    client.store("g", *outputs(1))
    forwarder = Forwarder(("127.0.0.1", int(service.url.rpartition(":")[2])))
    forwarder.start()
    variables = gleanery.variables | {"GLEANERY_URL": f"http://127.0.0.1:{forwarder.port}"}
    with Running("pull", "g", "-o", str(tmp_path), "-f", **variables) as running:
        running.wait_for(lambda: f"All changes are in {tmp_path}." in "".join(running.log))
        forwarder.stop()
        running.wait_for(
            lambda: "The service is unavailable: waiting for it." in "".join(running.log)
        )
        client.store("g", *outputs(2))
        forwarder.start()
        running.wait_for(lambda: numbers(tmp_path) == [1, 2])
        running.wait_for(lambda: "".join(running.log).count("Waiting for new ones") == 2)
        assert "".join(running.log).count("unavailable") == 1
        running.stop(signal.SIGTERM)
    forwarder.stop()


@pytest.mark.extended
def test_the_query_of_the_guide_gives_the_present_outputs(
    gleanery: CommandLine, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    [first, *_] = client.store("shop-prices", *outputs(1, 2))["results"]
    gleanery("pull", "shop-prices", "-o", str(tmp_path / "prices"))
    client.delete(f"/v1/outputs/shop-prices/{first['output_id']}")
    client.store("shop-prices", *outputs(2, size=1), *outputs(3))
    gleanery("pull", "shop-prices", "-o", str(tmp_path / "prices"))
    [query] = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    rows = duckdb.sql(query).fetchall()
    assert sorted((url, json.loads(data)) for url, data in rows) == [
        ("https://a.example/2", {"n": 2, "x": "x"}),
        ("https://a.example/3", {"n": 3, "x": ""}),
    ]


def test_a_service_that_is_gone_leaves_a_position_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LONG_WORK_RETRIES", 0)
    arguments = ("pull", "g", "-o", str(tmp_path))
    variables = {
        "GLEANERY_URL": f"http://127.0.0.1:{free_port()}",
        "GLEANERY_TOKEN": "glean_" + "0" * 49,
    }
    done = gleanery_in_process(*arguments, **variables)
    assert done.returncode == 1
    advice = f"Is the service running there? To continue, run: gleanery {' '.join(arguments)}\n"
    assert done.stderr.endswith(advice)
    assert done.stderr.count("\n") == 1
