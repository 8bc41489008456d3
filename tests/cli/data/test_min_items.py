"""``gleanery push --min-items``: too few items are a failure, and fail a run of the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.data.conftest import CommandLine
from tests.cli.data.test_runs import counts, lines, newest, runs, start, write
from tests.support.service import Client
from tests.support.waiting import TIMEOUT_SECONDS


def test_a_run_with_too_few_items_is_failed(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    push = ("push", "prices", "--job", "shop", "--complete", "--min-items", "3")
    assert gleanery(*push, write(tmp_path, lines(1, 2, 3))).returncode == 0
    assert newest(client)["status"] == "complete"
    done = gleanery(*push, write(tmp_path, lines(1) + "{}\n"), "--on-error", "skip", "--json")
    message = "only 1 item, at least 3 are expected"
    assert done.returncode == 1
    assert done.stderr.endswith(f"gleanery: {message}\n")
    run = newest(client)
    assert json.loads(done.stdout)["run"] == run
    assert (run["status"], run["message"]) == ("failed", message)
    assert counts(run) == {"unchanged": 1, "rejected": 1}
    empty = gleanery(*push, write(tmp_path, "\n"))
    assert empty.returncode == 1
    assert newest(client)["message"] == "only 0 items, at least 3 are expected"
    missing = client.get("/v1/outputs/prices", params={"missing": "true"}).json()
    assert missing["items"] == []


def test_too_few_items_without_a_run_are_an_exit_status(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    push = ("push", "prices", "--job", "shop", "--min-items", "2")
    done = gleanery(*push, write(tmp_path, lines(1)))
    assert (done.returncode, len(client.items("prices"))) == (1, 1)
    assert done.stderr.endswith("gleanery: only 1 item, at least 2 are expected\n")
    assert newest(client)["status"] == "running"
    assert gleanery(*push, write(tmp_path, lines(1, 1))).returncode == 0
    empty = gleanery("push", "new", "--job", "shop", "--min-items", "1", write(tmp_path, ""))
    assert empty.returncode == 1
    assert "only 0 items, at least 1 is expected" in empty.stderr
    [run] = runs(client, "new")
    assert run["status"] == "failed"


def test_too_few_items_do_not_end_the_run_of_others(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    run_id = gleanery("run", "start", "prices", "shop").stdout.strip()
    push = ("push", "prices", "--job", "shop", "--run", run_id, "--min-items", "2")
    assert gleanery(*push, write(tmp_path, lines(1))).returncode == 1
    assert gleanery(*push, write(tmp_path, "")).returncode == 1
    assert gleanery(*push, write(tmp_path, lines(1, 2))).returncode == 0
    [run] = runs(client)
    assert (run["run_id"], run["status"]) == (run_id, "running")


def test_items_that_an_earlier_push_has_stored_count(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    file = write(tmp_path, lines(1) + "\n" + lines(2, 3))
    push = ("push", "prices", "--job", "shop", file, "--skip", "3", "--min-items")
    assert gleanery(*push, "3").returncode == 0
    done = gleanery(*push, "4")
    assert (done.returncode, len(client.items("prices"))) == (1, 1)
    assert "only 3 items, at least 4 are expected" in done.stderr


@pytest.mark.parametrize("count", [1, 2])
def test_the_items_of_a_pipe_are_counted(gleanery: CommandLine, client: Client, count: int) -> None:
    push = ("push", "prices", "--job", "shop", "--complete", "--min-items", "2")
    with start(gleanery, *push) as process:
        _, errors = process.communicate(lines(*range(count)).encode(), TIMEOUT_SECONDS)
    assert (process.returncode, b"only 1 item" in errors) == (
        (1, True) if count == 1 else (0, False)
    )
    assert newest(client)["status"] == ("failed" if count == 1 else "complete")


def test_too_few_items_fail_the_run_of_a_program(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    push = ("push", "prices", write(tmp_path, lines(1)), "--job", "shop", "--min-items", "2")
    command = (sys.executable, "-m", "gleanery", *push)
    with start(gleanery, "run", "exec", "prices", "shop", "--", *command) as process:
        process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 1
    [run] = runs(client)
    assert (run["status"], run["message"], counts(run)) == (
        "failed",
        "exit status 1",
        {"created": 1},
    )


def test_a_failure_comes_before_too_few_items(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    push = ("push", "prices", "--job", "shop", "--complete", "--min-items", "9")
    done = gleanery(*push, write(tmp_path, lines(1) + "{}\n"))
    assert (done.returncode, "only" in done.stderr) == (2, False), done.stderr
    assert newest(client)["message"].startswith("line 2: url: is missing")
