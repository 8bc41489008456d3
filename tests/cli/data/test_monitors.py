"""``gleanery check``, ``gleanery alerts`` and ``gleanery monitors``."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gleanery.cli.data import alerts
from tests.cli.data.conftest import CommandLine
from tests.support.process import free_port
from tests.support.service import Client, Service
from tests.support.terminal import Terminal

MESSAGE = "s4 stored 3 outputs; at least 10 are expected."


def scrape(gleanery: CommandLine, tmp_path: Path, count: int, *, job: str = "s4") -> None:
    """A complete run of a job."""
    file = tmp_path / "items.jsonl"
    items = ({"url": f"https://{job}.example/{n}", "price": n} for n in range(count))
    file.write_text("".join(json.dumps(item) + "\n" for item in items))
    done = gleanery("push", "prices", str(file), "--job", job, "--complete", "--quiet")
    assert done.returncode == 0, done.stderr


def run(gleanery: CommandLine, *arguments: str) -> str:
    """What a command prints that succeeds."""
    done = gleanery(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rules(gleanery: CommandLine) -> list[dict[str, Any]]:
    return list(json.loads(run(gleanery, "monitors", "show", "prices", "--json")))


def listed(gleanery: CommandLine, *options: str) -> list[dict[str, Any]]:
    return list(json.loads(run(gleanery, "alerts", "list", *options, "--json")))


@pytest.fixture
def alert(gleanery: CommandLine, tmp_path: Path) -> str:
    """The id of an open alert."""
    scrape(gleanery, tmp_path, 3)
    run(gleanery, "monitors", "add", "prices", "few_outputs", "--minimum", "10")
    scrape(gleanery, tmp_path, 3)
    [found] = listed(gleanery)
    return str(found["alert_id"])


# --- check --------------------------------------------------------------------------------------


def test_a_check_says_that_nothing_is_wrong(gleanery: CommandLine, tmp_path: Path) -> None:
    scrape(gleanery, tmp_path, 3)
    for arguments in (("prices",), ("prices", "s4")):
        done = gleanery("check", *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "no open alerts\n")
    quiet = gleanery("check", "prices", "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert json.loads(run(gleanery, "check", "prices", "--json")) == []


def test_a_check_prints_a_sentence_for_each_alert(
    gleanery: CommandLine, alert: str, tmp_path: Path
) -> None:
    scrape(gleanery, tmp_path, 1, job="s5")
    done = gleanery("check", "prices")
    expected = ["s5 stored 1 output; at least 10 are expected.", MESSAGE]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (1, expected, "")
    of_job = gleanery("check", "prices", "s4", "-q")
    assert (of_job.returncode, of_job.stdout, of_job.stderr) == (1, f"{MESSAGE}\n", "")
    as_json = gleanery("check", "prices", "s4", "--json")
    assert as_json.returncode == 1
    assert [one["alert_id"] for one in json.loads(as_json.stdout)] == [alert]
    scrape(gleanery, tmp_path, 10)
    assert gleanery("check", "prices", "s4").returncode == 0


def test_muted_alerts_do_not_fail_a_check(gleanery: CommandLine, alert: str) -> None:
    run(gleanery, "alerts", "acknowledge", alert)
    done = gleanery("check", "prices")
    assert (done.returncode, done.stdout) == (1, f"{MESSAGE} (acknowledged by the API)\n")
    run(gleanery, "alerts", "acknowledge", alert, "--undo")
    run(gleanery, "alerts", "mute", alert, "--until", "2999-12-24")
    done = gleanery("check", "prices")
    assert (done.returncode, done.stdout) == (0, f"{MESSAGE} (muted until 2999-12-24 00:00:00Z)\n")
    assert done.stderr == "All open alerts are muted.\n"
    quiet = gleanery("check", "prices", "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert len(json.loads(run(gleanery, "check", "prices", "--json"))) == 1
    run(gleanery, "alerts", "mute", alert, "--until", "2020-01-01T00:00:00Z")
    assert gleanery("check", "prices").stdout == f"{MESSAGE}\n"


def test_a_check_of_something_unknown_is_an_error(
    gleanery: CommandLine, alert: str, service: Service
) -> None:
    for arguments, message in (
        (("price",), "There is no such group; did you mean prices? The command gleanery groups"),
        (
            ("prices", "s"),
            "The group has no such job; did you mean s4? The command gleanery groups",
        ),
        (("prices", "unknown"), "no such job: the command gleanery groups prices lists them"),
    ):
        done = gleanery("check", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert message in done.stderr
    blind = service.token(scopes=frozenset({"outputs:read"}))
    done = gleanery("check", "prices", GLEANERY_TOKEN=blind)
    assert done.returncode == 2
    assert "lacks the scope monitors:read" in done.stderr
    done = gleanery("check", "prices", GLEANERY_URL=f"http://127.0.0.1:{free_port()}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Is the service running there?" in done.stderr


# --- alerts -------------------------------------------------------------------------------------


def test_alerts_are_listed(gleanery: CommandLine, alert: str, tmp_path: Path) -> None:
    title, row = run(gleanery, "alerts", "list", "prices", "--job", "s4").splitlines()
    assert re.split(r"  +", title.strip()) == [*alerts._COLUMNS]
    assert MESSAGE in row
    assert row.endswith(alert)
    scrape(gleanery, tmp_path, 10)
    done = gleanery("alerts", "list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no open alerts\n")
    assert "its condition is over" in run(gleanery, "alerts", "list", "--state", "closed")
    assert [one["state"] for one in listed(gleanery, "--state", "all", "-n", "1")] == ["closed"]
    done = gleanery("alerts", "list", "--job", "s4")
    assert (done.returncode, "give the GROUP" in done.stderr) == (2, True)
    assert "no such group" in gleanery("alerts", "list", "unknown").stderr
    assert "no such job" in gleanery("alerts", "list", "prices", "--job", "unknown").stderr


def test_a_narrow_terminal_shows_every_member_of_an_alert(
    gleanery: CommandLine, alert: str
) -> None:
    with Terminal("alerts", "list", COLUMNS="80", **gleanery.variables) as terminal:
        terminal.wait()
        assert f"  prices  alert {alert}\r\n  {MESSAGE}\r\n" in terminal.shown
        run(gleanery, "alerts", "accept", alert)
    with Terminal("alerts", "list", COLUMNS="80", **gleanery.variables) as terminal:
        terminal.wait()
        assert terminal.shown == "no open alerts\r\n"


def test_an_alert_is_shown(gleanery: CommandLine, alert: str) -> None:
    shown = run(gleanery, "alerts", "show", alert)
    for line in (f"Alert: {alert}", "Job: s4", "Kind: few_outputs", f"Message: {MESSAGE}"):
        assert f"{line}\n" in shown
    assert json.loads(run(gleanery, "alerts", "show", alert, "--json")) == listed(gleanery)[0]


def test_alerts_are_muted_for_some_time(gleanery: CommandLine, alert: str) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    muted = json.loads(run(gleanery, "alerts", "mute", alert, "--for", "7d", "--json"))
    end = datetime.fromisoformat(muted["muted_until"])
    assert before + timedelta(days=7) <= end <= datetime.now(UTC) + timedelta(days=7)
    shown = run(gleanery, "alerts", "mute", alert, "--undo")
    assert shown == f"{MESSAGE}\n"
    assert listed(gleanery)[0]["muted_until"] is None
    done = run(gleanery, "alerts", "mute", alert, "--until", "2999-01-02 03:04:05Z")
    assert done == f"{MESSAGE} (muted until 2999-01-02 03:04:05Z)\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Give one of --for, --until and --undo"),
        (("--for", "7d", "--undo"), "Give one of --for, --until and --undo"),
        (("--for", "soon"), "--for must be a number and m, h or d"),
        (("--until", "soon"), "--until must be a date or a date-time"),
    ],
)
def test_wrong_times_are_explained(
    gleanery: CommandLine, options: tuple[str, ...], message: str
) -> None:
    done = gleanery("alerts", "mute", "ID", *options)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_new_level_is_accepted(gleanery: CommandLine, alert: str) -> None:
    shown = run(gleanery, "alerts", "accept", alert)
    assert shown.startswith(f"{MESSAGE} (closed ")
    assert shown.endswith("the level is normal now)\n")
    assert listed(gleanery) == []


@pytest.mark.parametrize("command", ["show", "acknowledge", "accept", "mute"])
def test_unknown_alerts_are_explained(gleanery: CommandLine, command: str) -> None:
    options = ("--undo",) if command == "mute" else ()
    done = gleanery("alerts", command, "unknown", *options)
    assert done.returncode == 2
    assert (
        "gleanery: There is no alert with this id. The command gleanery alerts list" in done.stderr
    )


def test_an_alert_without_a_level_cannot_be_accepted(gleanery: CommandLine, tmp_path: Path) -> None:
    scrape(gleanery, tmp_path, 1)
    run(gleanery, "monitors", "add", "prices", "failed_run")
    file = tmp_path / "items.jsonl"
    push = ("push", "prices", str(file), "--job", "s4", "--complete", "--min-items", "2")
    assert gleanery(*push).returncode == 1
    [found] = listed(gleanery)
    assert found["kind"] == "failed_run"
    done = gleanery("alerts", "accept", found["alert_id"])
    assert done.returncode == 1
    assert done.stderr.startswith("gleanery: Alerts of this kind have no normal level")


# --- monitors -----------------------------------------------------------------------------------


def test_rules_are_shown(gleanery: CommandLine, tmp_path: Path) -> None:
    scrape(gleanery, tmp_path, 1)
    assert run(gleanery, "monitors", "show", "prices").splitlines() == [
        "Kind         Job  Field  An alert opens if",
        "no_run       all         there is no run for 2 times the usual interval",
        "few_outputs  all         a run sends at most 50 % of the usual outputs",
        "fill_rate    all         a field is filled less often by 20 percentage points",
    ]
    with Terminal("monitors", "show", "prices", **gleanery.variables) as terminal:
        terminal.wait()
        assert "percentage points" in terminal.shown


def test_rules_are_added_and_removed(gleanery: CommandLine, tmp_path: Path) -> None:
    scrape(gleanery, tmp_path, 1)
    before = rules(gleanery)
    add = ("monitors", "add", "prices", "few_outputs", "--job", "s4")
    shown = run(gleanery, *add, "--threshold", "0.7", "--minimum", "100")
    assert "a run sends at most 70 % of the usual outputs, or fewer than 100" in shown
    assert rules(gleanery)[:3] == before
    assert rules(gleanery)[3:] == [
        {
            **before[1],
            "job_id": "s4",
            "threshold": 0.7,
            "minimum": 100,
        }
    ]
    assert "never: the rule is off" in run(gleanery, *add, "--off")
    assert len(rules(gleanery)) == 4
    run(gleanery, "monitors", "remove", "prices", "few_outputs", "--job", "s4")
    assert rules(gleanery) == before
    done = gleanery("monitors", "remove", "prices", "few_outputs", "--job", "s4")
    assert (done.returncode, "There is no such rule" in done.stderr) == (2, True)
    path = ("monitors", "add", "prices", "fill_rate", "--path", "price", "--threshold", "0.05")
    assert "fill_rate    all  price  a field" in run(gleanery, *path)
    assert "no run for 26 hours" in run(gleanery, *add[:3], "no_run", "--hours", "26")
    for rule in rules(gleanery):
        options = ("--path", rule["path"]) if rule["path"] else ()
        run(gleanery, "monitors", "remove", "prices", rule["kind"], *options)
    done = gleanery("monitors", "show", "prices")
    assert (done.returncode, done.stdout) == (0, "")
    assert "The group has no rule" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("few_outputs", "--threshold", "2"), "gleanery: --threshold: expected a number from 0"),
        (("few_outputs", "--hours", "2"), "--hours: only rules of the kind no_run have hours"),
        (("no_run", "--minimum", "2"), "--minimum: only rules of the kind few_outputs"),
        (("no_run", "--path", "price"), "--path: only rules of these kinds have a path"),
        (("no_run", "--job", "\n"), "--job: "),
        (("few",), "KIND must be no_run, failed_run, few_outputs, fill_rate"),
    ],
)
def test_wrong_rules_are_explained(
    gleanery: CommandLine, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    scrape(gleanery, tmp_path, 1)
    done = gleanery("monitors", "add", "prices", *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert len(rules(gleanery)) == 3


def test_rules_are_set_from_a_file(gleanery: CommandLine, client: Client, tmp_path: Path) -> None:
    scrape(gleanery, tmp_path, 1)
    file = tmp_path / "rules.json"
    file.write_text(json.dumps([*rules(gleanery), {"kind": "failed_run"}]))
    run(gleanery, "monitors", "set", "prices", "--file", str(file))
    assert [rule["kind"] for rule in rules(gleanery)][3:] == ["failed_run"]
    file.write_text("[]")
    assert (
        json.loads(run(gleanery, "monitors", "set", "prices", "--file", str(file), "--json")) == []
    )
    suggested = run(gleanery, "monitors", "suggest", "prices", "--json")
    file.write_text(suggested)
    assert json.loads(suggested)
    run(gleanery, "monitors", "set", "prices", "--file", str(file))
    kinds = [rule["kind"] for rule in json.loads(suggested)]
    assert [rule["kind"] for rule in rules(gleanery)] == kinds


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "--file must be JSON"),
        ("{}", "--file must be a JSON array of rules"),
        ("[1]", "--file must be a JSON array of rules"),
        ('[{"kind": "no_run"}, {"kind": "no_run", "treshold": 2}]', "rule 2: treshold: "),
        ('[{"kind": "no_run", "threshold": 0}]', "rule 1: threshold: expected a number from 1"),
        ('[{"kind": "no_run"}, {"kind": "no_run"}]', "rule 2: another rule has the same kind"),
    ],
)
def test_wrong_files_of_rules_are_explained(
    gleanery: CommandLine, tmp_path: Path, content: str, message: str
) -> None:
    scrape(gleanery, tmp_path, 1)
    file = tmp_path / "rules.json"
    file.write_text(content)
    done = gleanery("monitors", "set", "prices", "--file", str(file))
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert len(rules(gleanery)) == 3


def test_rules_are_suggested(gleanery: CommandLine, tmp_path: Path) -> None:
    scrape(gleanery, tmp_path, 3)
    scrape(gleanery, tmp_path, 3)
    shown = run(gleanery, "monitors", "suggest", "prices")
    assert shown.splitlines()[0].split("  ")[0] == "Kind"
    assert re.search(r"failed_run  .*  a run fails  .*0 alerts in 2 runs  ", shown)
    assert len(rules(gleanery)) == 3


@pytest.mark.parametrize(
    "command", [("show",), ("suggest",), ("add", "no_run"), ("remove", "no_run"), ("set",)]
)
def test_rules_of_an_unknown_group_are_an_error(
    gleanery: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "rules.json"
    file.write_text("[]")
    options = ("--file", str(file)) if command == ("set",) else ()
    done = gleanery("monitors", command[0], "unknown", *command[1:], *options)
    assert (done.returncode, "There is no such group" in done.stderr) == (2, True), done.stderr
