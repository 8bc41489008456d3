"""``gleanery run``, and the runs of ``gleanery push``."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.data.conftest import CommandLine
from tests.support.faulty_server import Step, faulty_server, respond
from tests.support.process import environment
from tests.support.service import Client
from tests.support.terminal import Terminal
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

Done = subprocess.CompletedProcess[str]


def lines(*numbers: int) -> str:
    items = ({"url": f"https://shop.example/{n}", "price": n} for n in numbers)
    return "".join(json.dumps(item) + "\n" for item in items)


def write(tmp_path: Path, text: str, name: str = "items.jsonl") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def runs(client: Client, group: str = "prices") -> list[dict[str, Any]]:
    response = client.get(f"/v1/runs/{group}")
    return [] if response.status_code == 404 else list(response.json()["runs"])


def newest(client: Client) -> dict[str, Any]:
    return runs(client)[0]


def counts(run: dict[str, Any]) -> dict[str, int]:
    """Counts that are not 0."""
    return {name: count for name, count in run["counts"].items() if count}


def start(gleanery: CommandLine, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gleanery", *arguments],
        env=environment(**gleanery.variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


# --- push --complete ----------------------------------------------------------------------------


def test_a_file_is_a_complete_run(gleanery: CommandLine, client: Client, tmp_path: Path) -> None:
    push = ("push", "prices", "--job", "shop", "--complete")
    labels = ("--label", "country=DE", "--label", "query=a=b")
    first = gleanery(*push, write(tmp_path, lines(1, 2, 3)), *labels)
    assert first.returncode == 0, first.stderr
    run = newest(client)
    assert (run["status"], run["job_id"], counts(run)) == ("complete", "shop", {"created": 3})
    assert run["labels"] == {"country": "DE", "query": "a=b"}
    assert f"The run {run['run_id']} ended as complete: 3 created" in first.stderr
    second = gleanery(*push, write(tmp_path, lines(1)), "--json", "-q")
    assert second.stderr == ""
    assert json.loads(second.stdout)["run"] == newest(client)
    assert counts(newest(client)) == {"unchanged": 1, "missing": 2}


def test_an_empty_file_is_an_empty_run(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    gleanery("push", "prices", write(tmp_path, lines(1, 2)), "--job", "shop", "--complete")
    empty = write(tmp_path, "\n")
    done = gleanery("push", "prices", empty, "--job", "shop", "--complete")
    assert done.returncode == 0
    assert "There is no item to push: nothing was sent. An empty run is recorded." in done.stderr
    assert (newest(client)["status"], counts(newest(client))) == ("complete", {"missing": 2})
    without = gleanery("push", "prices", empty, "--job", "shop")
    assert without.returncode == 0
    assert "An empty run is recorded." in without.stderr
    assert (newest(client)["status"], counts(newest(client))) == ("partial", {})
    assert len(runs(client)) == 3


def test_a_run_without_its_invalid_items_is_partial(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    file = write(tmp_path, lines(1) + "{}\n{\n")
    done = gleanery(
        *("push", "prices", file, "--job", "shop", "--complete", "--on-error", "skip"),
    )
    assert done.returncode == 0
    assert (newest(client)["status"], counts(newest(client))) == (
        "partial",
        {"created": 1, "rejected": 2},
    )
    assert newest(client)["message"] == "Invalid items were left out: 2"


@pytest.mark.thorough
def test_a_push_that_fails_fails_its_run(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    file = write(tmp_path, lines(*range(1200)) + "{}\n")
    push = ("push", "prices", file, "--job", "shop", "--complete", "--json")
    done = gleanery(*push)
    assert done.returncode == 2
    assert "The first 1,000 items are stored." in done.stderr
    command = done.stderr.strip().partition("To start a new run with all items, run: ")[2]
    assert shlex.split(command) == ["gleanery", *push]
    run = newest(client)
    assert (run["status"], counts(run)) == ("failed", {"created": 1000, "rejected": 1})
    assert run["message"].startswith("line 1201: url: is missing")
    assert json.loads(done.stdout)["run"] == run
    rest = gleanery(*push, "--on-error", "skip")
    assert rest.returncode == 0
    assert counts(newest(client)) == {"created": 200, "unchanged": 1000, "rejected": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("items.csv", "", "The file has no header"),
        ("items", "url,price\nx,1\n", "The items look like CSV"),
        ("items.jsonl.gz", "\x1f\x7f", "not valid JSON"),
    ],
)
def test_a_file_that_cannot_be_read_fails_its_run(
    gleanery: CommandLine, client: Client, tmp_path: Path, name: str, content: str, message: str
) -> None:
    file = write(tmp_path, content, name)
    done = gleanery("push", "prices", file, "--job", "shop", "--complete")
    assert done.returncode == 2
    assert message in done.stderr
    run = newest(client)
    assert run["status"] == "failed"
    assert message in run["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--complete",), "--complete starts a run of one job: give --job"),
        (("--job", "shop", "--complete", "--run", "x"), "--complete starts a new run"),
        (("--job", "shop", "--complete", "--skip", "2"), "leave out --skip"),
        (("--job", "shop", "--label", "a=b"), "--label is of a new run: give --complete"),
        (("--job", "shop", "--complete", "--label", "a"), "--label needs NAME=VALUE"),
        (("--job", "shop", "--complete", "--label", "=a"), "--label needs NAME=VALUE"),
        (
            ("--job", "shop", "--complete", "--label", "a=b", "--label", "a=c"),
            "--label has the name a twice",
        ),
        (("--job", "shop", "--complete", "--label", "a" * 65 + "=b"), "--label: expected at most"),
    ],
)
def test_options_that_contradict_a_run_are_explained(
    gleanery: CommandLine,
    client: Client,
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    done = gleanery("push", "prices", write(tmp_path, lines(1)), *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert runs(client) == []


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_fails_the_run_of_a_pipe(
    gleanery: CommandLine, client: Client, number: signal.Signals
) -> None:
    push = ("push", "prices", "--job", "shop", "--complete")
    with start(gleanery, *push) as process:
        assert process.stdin is not None
        process.stdin.write(lines(*range(1500)).encode())
        process.stdin.flush()  # the command waits for more
        wait_until(lambda: bool(runs(client)) and counts(newest(client)) == {"created": 1000})
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 128 + number
    run = newest(client)
    assert (run["status"], run["message"]) == ("failed", "interrupted")
    assert counts(run) == {"created": 1500}
    assert f"run: gleanery {shlex.join(push)}\n" in errors.decode()


@pytest.mark.thorough
def test_a_signal_before_the_first_item_fails_the_run(
    gleanery: CommandLine, client: Client
) -> None:
    with start(gleanery, "push", "prices", "--job", "shop", "--complete") as process:
        wait_until(lambda: len(runs(client)) == 1)
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_SECONDS)
    assert process.returncode == 130
    assert (newest(client)["status"], newest(client)["message"]) == ("failed", "interrupted")


@pytest.mark.thorough
def test_ctrl_c_fails_the_run_of_a_file(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    file = write(tmp_path, lines(*range(100_000)))
    with start(gleanery, "push", "prices", file, "--job", "shop", "--complete") as process:
        wait_until(lambda: bool(runs(client)) and bool(counts(newest(client))))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130, errors
    run = newest(client)
    assert (run["status"], run["message"]) == ("failed", "interrupted")
    assert 0 < counts(run)["created"] < 100_000


# --- push --run ---------------------------------------------------------------------------------


def test_pushes_share_a_run(gleanery: CommandLine, client: Client, tmp_path: Path) -> None:
    run_id = gleanery("run", "start", "prices", "shop").stdout.strip()
    push = ("push", "prices", "--job", "shop", "--run", run_id)
    assert gleanery(*push, write(tmp_path, lines(1, 2))).returncode == 0
    assert gleanery(*push, write(tmp_path, lines(2, 3, 4)), "--skip", "2").returncode == 0
    assert newest(client)["status"] == "running"
    done = gleanery("run", "finish", "prices", run_id)
    assert done.stdout.startswith(f"The run {run_id} ended as complete: 3 created, 0 updated")
    ended = gleanery(*push, write(tmp_path, lines(5)))
    assert ended.returncode == 2
    assert ended.stderr == (
        "gleanery: --run: This run has ended: complete. Start another one. No item is stored.\n"
    )


def test_a_push_into_a_run_can_continue(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    run_id = gleanery("run", "start", "prices", "shop").stdout.strip()
    file = write(tmp_path, lines(*range(1000)) + "{}\n" + lines(1000))
    push = ("push", "prices", file, "--job", "shop", "--run", run_id)
    command = gleanery(*push).stderr.strip().partition("run: gleanery ")[2]
    assert shlex.split(command) == [*push, "--skip", "1000"]
    assert gleanery(*shlex.split(command), "--on-error", "skip").returncode == 0
    assert counts(newest(client)) == {"created": 1001, "rejected": 2}


def test_a_run_of_another_job_or_group_is_an_error_of_the_user(
    gleanery: CommandLine, tmp_path: Path
) -> None:
    file = write(tmp_path, lines(1))
    run_id = gleanery("run", "start", "prices", "shop").stdout.strip()
    other = gleanery("push", "prices", file, "--job", "other", "--run", run_id)
    assert (other.returncode, "--run: This run is of the job shop" in other.stderr) == (2, True)
    unknown = gleanery("push", "prices", file, "--job", "shop", "--run", "x")
    assert (unknown.returncode, "--run: This group has no run" in unknown.stderr) == (2, True)
    assert "run: gleanery" not in unknown.stderr


def test_a_push_takes_its_run_from_the_environment(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    file = write(tmp_path, lines(1, 2))
    run_id = gleanery("run", "start", "prices", "shop").stdout.strip()
    given = {
        "GLEANERY_RUN_ID": run_id,
        "GLEANERY_GROUP": "prices",
        "GLEANERY_JOB": "shop",
    }
    for group, job in (("other", "shop"), ("prices", "other")):
        assert gleanery("push", group, file, "--job", job, **given).returncode == 0
    assert counts(newest(client)) == {"created": 2}
    assert newest(client)["is_implicit"]
    assert gleanery("push", "prices", file, "--job", "shop", **given).returncode == 0
    shown = client.get(f"/v1/runs/prices/{run_id}").json()
    assert counts(shown) == {"created": 2}
    complete = gleanery("push", "prices", file, "--job", "shop", "--complete", **given)
    assert (complete.returncode, "leave out --complete" in complete.stderr) == (2, True)
    whole = {"job_id": "shop", "source_url": "https://a.example/", "data": {}}
    file = write(tmp_path, json.dumps(whole))
    assert gleanery("push", "prices", file, GLEANERY_RUN_ID=run_id).returncode == 0
    assert counts(client.get(f"/v1/runs/prices/{run_id}").json()) == {"created": 3}


def test_the_variables_of_a_run_are_known(gleanery: CommandLine) -> None:
    variables = dict.fromkeys(("GLEANERY_RUN_ID", "GLEANERY_GROUP", "GLEANERY_JOB"), "x")
    assert gleanery("--version", **variables).stderr == ""


# --- start, finish, list, show and decide -------------------------------------------------------


def test_runs_are_started_finished_and_shown(gleanery: CommandLine, client: Client) -> None:
    begun = gleanery("run", "start", "prices", "shop", "--label", "country=DE", "--json")
    run = json.loads(begun.stdout)
    assert run == newest(client)
    finish = ("run", "finish", "prices", run["run_id"], "--status", "partial", "--message", "Stop.")
    ended = json.loads(gleanery(*finish, "--json").stdout)
    assert ended == newest(client)
    assert gleanery(*finish).stdout.startswith(f"The run {run['run_id']} ended as partial: 0 ")
    shown = gleanery("run", "show", "prices", run["run_id"])
    for line in (
        f"Run: {run['run_id']}",
        "Status: partial",
        "Labels: country=DE",
        "Message: Stop.",
    ):
        assert line in shown.stdout.splitlines()
    assert "Removal" not in shown.stdout
    as_json = gleanery("run", "show", "prices", run["run_id"], "--json")
    assert json.loads(as_json.stdout) == ended
    conflict = gleanery("run", "finish", "prices", run["run_id"])
    assert conflict.returncode == 1
    assert "--status: This run has ended already: partial" in conflict.stderr


def test_runs_are_listed_newest_first(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    gleanery("push", "prices", write(tmp_path, lines(1, 2)), "--job", "shop", "--complete")
    failed = gleanery("run", "start", "prices", "other").stdout.strip()
    gleanery("run", "finish", "prices", failed, "--status", "failed", "--message", "no\x1bpage")
    [title, first, second] = gleanery("run", "list", "prices").stdout.splitlines()
    assert title.split() == [
        *("Start", "Job", "Status", "Created", "Updated", "Unchanged", "Missing", "Removed"),
        *("Rejected", "Duration", "Message", "Run"),
    ]
    assert first.split()[2:9] == ["other", "failed", "0", "0", "0", "0", "0"]
    assert "no\\x1bpage" in first
    assert second.split()[2:5] == ["shop", "complete", "2"]
    listed = json.loads(gleanery("run", "list", "prices", "--json").stdout)
    assert listed == runs(client)
    for options in (("--job", "other"), ("--status", "failed"), ("--limit", "1"), ("-n", "1")):
        [found] = json.loads(gleanery("run", "list", "prices", *options, "--json").stdout)
        assert found["run_id"] == failed
    assert "There is no such run" in gleanery("run", "list", "prices", "--job", "x").stderr
    client.put("/v1/groups/empty", json={})
    assert "There is no run: gleanery push" in gleanery("run", "list", "empty").stderr


@pytest.mark.thorough
def test_a_narrow_terminal_shows_every_member_of_a_run(
    gleanery: CommandLine, client: Client
) -> None:
    run_id = gleanery("run", "start", "prices", "shop").stdout.strip()
    gleanery("run", "finish", "prices", run_id, "--message", "all of it")
    with Terminal("run", "list", "prices", COLUMNS="80", **gleanery.variables) as terminal:
        assert terminal.wait() == 0
    for text in (run_id, "shop  complete", "0 created, 0 updated", "0 rejected", "all of it"):
        assert text in terminal.shown


def test_unknown_names_of_runs_are_explained(gleanery: CommandLine, client: Client) -> None:
    client.put("/v1/groups/prices", json={})
    for arguments in (("show", "prices", "x"), ("finish", "prices", "x"), ("show", "price", "x")):
        done = gleanery("run", *arguments)
        assert done.returncode == 2
        expected = "did you mean prices?" if arguments[1] == "price" else "RUN_ID: This group has"
        assert expected in done.stderr
    wrong = gleanery("run", "list", "prices", "--status", "done")
    assert "--status must be running, complete" in wrong.stderr


@pytest.mark.parametrize(
    ("decision", "message", "left", "other", "refusal"),
    [
        ("remove", "Removed the missing outputs: 2.", 1, "keep", "its missing outputs are removed"),
        ("keep", "Kept the missing outputs: 2.", 3, "remove", "its missing outputs were kept. L"),
    ],
)
def test_a_held_removal_is_shown_and_decided(
    gleanery: CommandLine,
    client: Client,
    tmp_path: Path,
    decision: str,
    message: str,
    left: int,
    other: str,
    refusal: str,
) -> None:
    client.put("/v1/groups/prices", json={"missing": {"after_runs": 1}})
    push = ("push", "prices", "--job", "shop", "--complete")
    gleanery(*push, write(tmp_path, lines(1, 2, 3)))
    held = gleanery(*push, write(tmp_path, lines(1)))
    run_id = newest(client)["run_id"]
    assert f"gleanery run decide prices {run_id} remove, or keep" in held.stderr
    waits = "The removal of 2 missing outputs waits for a decision"
    assert waits in gleanery("run", "list", "prices").stdout
    assert waits in gleanery("run", "show", "prices", run_id).stdout
    missing = tmp_path / "missing.jsonl"
    assert gleanery("export", "prices", "--missing", "-o", str(missing)).returncode == 0
    prices = [json.loads(line)["data"]["price"] for line in missing.read_text().splitlines()]
    assert sorted(prices) == [2, 3]
    done = gleanery("run", "decide", "prices", run_id, decision)
    assert (done.returncode, done.stdout.strip()) == (0, message), done.stderr
    assert len(client.items("prices")) == left
    as_json = gleanery("run", "decide", "prices", run_id, decision, "--json")
    assert json.loads(as_json.stdout) == newest(client)
    refused = gleanery("run", "decide", "prices", run_id, other)
    expected = f"gleanery: This run has no removal that waits for a decision: {refusal}"
    assert (refused.returncode, refused.stderr[: len(expected)]) == (1, expected)
    view = gleanery("export", "prices", "--missing", "--view", "approved", "-o", "-")
    assert (view.returncode, "--missing" in view.stderr) == (2, True)


# --- exec ---------------------------------------------------------------------------------------


def program(script: str, *arguments: str) -> list[str]:
    return ["--", sys.executable, "-c", script, *arguments]


def execute(gleanery: CommandLine, *arguments: str) -> Done:
    return gleanery("run", "exec", "prices", "shop", *arguments)


@pytest.mark.parametrize(
    ("script", "exit_status", "status", "message"),
    [
        ("pass", 0, "complete", None),
        ("raise SystemExit(3)", 3, "failed", "exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", 137, "failed", "ended by SIGKILL"),
    ],
)
def test_the_exit_status_of_a_program_decides(
    gleanery: CommandLine,
    client: Client,
    script: str,
    exit_status: int,
    status: str,
    message: str | None,
) -> None:
    done = execute(gleanery, "--label", "country=DE", *program(script))
    assert done.returncode == exit_status, done.stderr
    run = newest(client)
    assert (run["status"], run["message"], run["labels"]) == (status, message, {"country": "DE"})
    assert f"The run {run['run_id']} ended as {status}: " in done.stderr
    assert execute(gleanery, "-q", *program(script)).stderr == ""


@pytest.mark.thorough
def test_a_program_pushes_into_its_run(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    file = write(tmp_path, lines(1, 2))
    push = f"{shlex.quote(sys.executable)} -m gleanery push prices {file} --job shop"
    script = f'{push}; echo "$GLEANERY_GROUP $GLEANERY_JOB $0" > {tmp_path}/variables'
    done = execute(gleanery, "--", "sh", "-c", script, "")
    assert done.returncode == 0, done.stderr
    [run] = runs(client)
    assert (run["status"], counts(run)) == ("complete", {"created": 2})
    assert (tmp_path / "variables").read_text() == "prices shop \n"


@pytest.mark.thorough
def test_a_program_with_invalid_items_is_partial(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    """Their outputs would be missing, although the job still has them."""
    push = ("push", "prices", write(tmp_path, lines(1) + '{"no": "URL"}\n'), "--job", "shop")
    command = (sys.executable, "-m", "gleanery", *push, "--on-error", "skip")
    done = execute(gleanery, "--", *command)
    assert "ended as partial: 1 created" in done.stderr
    assert newest(client)["message"] == "Invalid items were left out: 1"
    for option, status in (((), "partial"), (("--status", "complete"), "complete")):
        run_id = gleanery("run", "start", "prices", "shop").stdout.strip()
        gleanery(*push, "--on-error", "skip", "--run", run_id)
        for _ in range(2):  # to repeat it is harmless
            done = gleanery("run", "finish", "prices", run_id, *option)
            assert (done.returncode, newest(client)["status"]) == (0, status), done.stderr


_PUSH = """
from gleanery import Client

with Client() as client:
    client.push("prices", [{"url": "https://shop.example/1"}], job_id="shop")
    client.push("prices", [{"url": "https://shop.example/1"}], job_id="other")
    client.push("others", [{"url": "https://shop.example/1"}], job_id="shop")
"""


@pytest.mark.thorough
def test_a_python_program_pushes_into_its_run(gleanery: CommandLine, client: Client) -> None:
    done = gleanery("run", "exec", "prices", "shop", *program(_PUSH))
    assert "ended as complete: 1 created" in done.stderr
    found = {(run["group_id"], run["job_id"]): run for run in runs(client) + runs(client, "others")}
    assert {counts(run)["created"] for run in found.values()} == {1}
    assert {key for key, run in found.items() if not run["is_implicit"]} == {("prices", "shop")}
    assert len(found) == 3


def test_whole_outputs_of_a_program_can_be_of_several_jobs(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    run_id = gleanery("run", "start", "prices", "shop").stdout.strip()
    given = {"GLEANERY_RUN_ID": run_id, "GLEANERY_GROUP": "prices", "GLEANERY_JOB": "shop"}
    outputs = (
        {"job_id": job, "source_url": "https://a.example/", "data": {}} for job in ("shop", "a")
    )
    file = write(tmp_path, "\n".join(map(json.dumps, outputs)))
    done = gleanery("push", "prices", file, **given)
    assert done.returncode == 0, done.stderr
    assert {run["job_id"]: counts(run) for run in runs(client)} == {
        "shop": {"created": 1},
        "a": {"created": 1},
    }
    gleanery("run", "finish", "prices", run_id)
    late = gleanery("push", "prices", write(tmp_path, lines(1)), "--job", "shop", "-q", **given)
    assert late.returncode == 0
    ended = "This run has ended: complete. Start another one"
    assert late.stderr == f"Items are stored without the run {run_id}: {ended}\n"


@pytest.mark.thorough
def test_a_program_can_finish_its_run(gleanery: CommandLine, client: Client) -> None:
    finish = f"{shlex.quote(sys.executable)} -m gleanery run finish prices $GLEANERY_RUN_ID"
    done = execute(gleanery, "--", "sh", "-c", f"{finish} --status partial --message blocked")
    assert done.returncode == 0, done.stderr
    assert "ended as partial" in done.stderr
    assert (newest(client)["status"], newest(client)["message"]) == ("partial", "blocked")


def test_a_wrong_program_starts_no_run(gleanery: CommandLine, client: Client) -> None:
    done = execute(gleanery, "--", "no-such-program-anywhere")
    assert (done.returncode, "not found" in done.stderr) == (2, True)
    assert execute(gleanery).returncode == 2
    assert runs(client) == []


def test_a_program_that_does_not_start_fails_its_run(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x7fELF")
    damaged.chmod(0o755)
    done = execute(gleanery, "--", str(damaged))
    assert done.returncode == 1
    assert str(damaged) in done.stderr
    assert newest(client)["status"] == "failed"
    assert newest(client)["message"].startswith("OSError: ")


_WAIT = """
import pathlib, signal, sys, time
received = []
def receive(number, frame):
    received.append(number)
if sys.argv[2] != "default":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, receive)
pathlib.Path(sys.argv[1]).touch()
while not received:
    time.sleep(0.01)
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "end", "exit_status", "status", "message"),
    [
        (signal.SIGTERM, "0", 0, "partial", "stopped by SIGTERM"),
        (signal.SIGINT, "7", 7, "failed", "exit status 7"),
        (signal.SIGTERM, "default", 143, "failed", "ended by SIGTERM"),
    ],
)
def test_signals_reach_the_program_of_a_run(
    gleanery: CommandLine,
    client: Client,
    tmp_path: Path,
    number: int,
    end: str,
    exit_status: int,
    status: str,
    message: str,
) -> None:
    started = tmp_path / "started"
    arguments = ("run", "exec", "prices", "shop", *program(_WAIT, str(started), end))
    with start(gleanery, *arguments) as process:
        wait_until(started.exists)
        os.kill(process.pid, number)
        process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == exit_status
    assert (newest(client)["status"], newest(client)["message"]) == (status, message)


@pytest.mark.thorough
def test_ctrl_c_in_a_terminal_is_a_partial_run(
    gleanery: CommandLine, client: Client, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    arguments = ("run", "exec", "prices", "shop", *program(_WAIT, str(started), "0"))
    with Terminal(*arguments, **gleanery.variables) as terminal:
        wait_until(started.exists)
        terminal.write("\x03")
        assert terminal.wait() == 0, terminal.shown
    assert (newest(client)["status"], newest(client)["message"]) == ("partial", "stopped by SIGINT")


# --- services that do not finish a run ----------------------------------------------------------

_RUN: dict[str, Any] = {
    "run_id": "1234",
    "group_id": "prices",
    "job_id": "shop",
    "status": "running",
    "start_date": "2026-01-01T00:00:00Z",
    "finish_date": None,
    "message": None,
    "labels": {},
    "is_implicit": False,
    "counts": dict.fromkeys(
        ("created", "updated", "unchanged", "rejected", "missing", "removed"), 0
    ),
    "comparison": None,
    "removal": None,
    "removable": 0,
}
_REFUSED = respond(
    403, {"detail": [{"loc": [], "msg": "This token lacks a scope", "type": "forbidden"}]}
)
_CONFLICT = respond(
    409, {"detail": [{"loc": ["body", "status"], "msg": "Ended: abandoned", "type": "conflict"}]}
)
_ADVICE = "To finish it, run: gleanery run finish prices 1234 --status "


@pytest.fixture
def answered(gleanery: CommandLine) -> Any:
    """Run a command against a service that gives these answers."""

    def run(*arguments: str, script: tuple[Step, ...]) -> Done:
        with faulty_server(*script) as server:
            return CommandLine(server.url, "token", gleanery.folder)(*arguments)

    return run


@pytest.fixture
def started() -> Step:
    return respond(200, _RUN)


def test_a_run_of_a_program_that_is_not_finished_is_an_error(answered: Any, started: Step) -> None:
    script = (started, _REFUSED)
    command = ("run", "exec", "prices", "shop")
    done = answered(*command, *program("pass"), script=script)
    assert done.returncode == 2
    assert "The run 1234 is not finished: This token lacks a scope." in done.stderr
    assert f"{_ADVICE}complete\n" in done.stderr
    done = answered(*command, *program("raise SystemExit(3)"), script=script)
    assert done.returncode == 3
    assert f"{_ADVICE}failed\n" in done.stderr


def test_a_program_whose_run_was_abandoned_is_an_error(answered: Any, started: Step) -> None:
    abandoned = respond(200, {**_RUN, "status": "abandoned"})
    script = (started, _CONFLICT, abandoned)
    done = answered("run", "exec", "prices", "shop", *program("pass"), script=script)
    assert done.returncode == 1
    assert "The run 1234 is not finished: --status: Ended: abandoned\n" in done.stderr


def test_a_push_whose_run_is_not_finished_is_an_error(
    answered: Any, started: Step, tmp_path: Path
) -> None:
    push = ("push", "prices", write(tmp_path, lines(1)), "--job", "shop", "--complete")
    stored = respond(200, {"created": 1, "updated": 0, "unchanged": 0})
    done = answered(*push, "--json", script=(started, stored, _REFUSED))
    assert done.returncode == 2
    assert f"{_ADVICE}complete\n" in done.stderr
    report = json.loads(done.stdout)
    assert (report["created"], report["run"]["status"]) == (1, "running")
    failed = answered(*push, script=(started, _REFUSED))
    assert failed.returncode == 2
    assert "The run 1234 is not finished: This token lacks a scope." in failed.stderr
    assert "gleanery: This token lacks a scope. No item is stored." in failed.stderr
