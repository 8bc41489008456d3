"""Groups, reviews and approvals on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.data.conftest import CommandLine
from tests.support.process import gleanery as run_gleanery
from tests.support.service import Client
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until


@pytest.fixture
def stored(client: Client) -> Client:
    for group, count in (("shop-prices", 3), ("news [red]", 1)):
        client.store(group, *(_output(n) for n in range(count)))
    return client


def _output(n: int) -> dict[str, Any]:
    return {"job_id": "uk", "source_url": f"https://a.example/{n}", "data": {"n": n}}


def test_groups_are_listed_for_people_and_for_scripts(
    gleanery: CommandLine, stored: Client
) -> None:
    [title, first, second] = gleanery("groups").stdout.splitlines()
    assert title.split() == ["Group", "Outputs", "Jobs", "Last", "change"]
    assert first.split()[:3] == ["shop-prices", "3", "1"]
    assert second.startswith("news [red]")
    listed = json.loads(gleanery("groups", "--json").stdout)
    assert listed == stored.get("/v1/groups").json()


def test_fields_are_shown_for_people_and_for_scripts(gleanery: CommandLine, stored: Client) -> None:
    [title, row] = gleanery("fields", "shop-prices", "--job", "uk").stdout.splitlines()
    assert title.split() == ["Field", "Filled", "Kinds", "Range", "Length", "Drift"]
    assert row.split() == ["n", "100.0%", "integer", "3", "0", "to", "2"]
    [title, row] = gleanery("fields", "shop-prices", "--runs").stdout.splitlines()
    assert title.split() == ["Job", "Start", "Status", "Outputs", "Least", "filled"]
    assert [row.split()[at] for at in (0, -4, -3, -2, -1)] == ["uk", "running", "3", "n", "100%"]
    shown = json.loads(gleanery("fields", "shop-prices", "--json").stdout)
    assert shown == stored.get("/v1/groups/shop-prices/fields").json()
    missing = gleanery("fields", "shop-prices", "--job", "fr")
    assert missing.returncode == 2
    assert missing.stderr == "gleanery: job_id: This group has no job with this job_id\n"


# --- settings -----------------------------------------------------------------------------------


def test_settings_are_changed_one_by_one(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"required": ["n"]}')
    steps: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        (("--missing-after-runs", "3"), {"missing": {"after_runs": 3, "max_share": 0.3}}),
        (("--missing-max-share", "0.5"), {"missing": {"after_runs": 3, "max_share": 0.5}}),
        (("--run-timeout-minutes", "60"), {"run_timeout_minutes": 60}),
        (("--retain-days", "30", "--keep-days", "7"), {"retain_days": 30, "keep_days": 7}),
        (("--keep-versions", "0"), {"keep_versions": 0}),
        (("--schema", str(schema)), {"schema": {"required": ["n"]}}),
        (("--display-name", "Prices"), {"display_name": "Prices"}),
        (("--reset", "retain_days"), {"retain_days": None}),
        (
            ("--reset", "missing", "--reset", "keep_days", "--retain-days", "5"),
            {
                "missing": {"after_runs": None, "max_share": 0.3},
                "keep_days": 90,
                "retain_days": 5,
            },
        ),
    ]
    expected = settings_of(stored, "shop-prices")
    for options, changed in steps:
        done = gleanery("group", "set", "shop-prices", *options, "--json")
        assert (done.returncode, done.stderr) == (0, ""), options
        expected |= changed
        assert settings_of(stored, "shop-prices") == expected, options
        assert expected.items() <= json.loads(done.stdout).items()
    shown = gleanery("group", "show", "shop-prices")
    rows = dict(line.rstrip().split(maxsplit=1) for line in shown.stdout.splitlines())
    assert (rows["run_timeout_minutes"], rows["display_name"]) == ("60", "Prices")
    assert (rows["missing.after_runs"], rows["missing.max_share"]) == ("not set", "0.3")
    assert rows["schema"] == '{"required":["n"]}'
    assert gleanery("group", "set", "shop-prices", "--retain-days", "5").stdout == shown.stdout


def settings_of(client: Client, group: str) -> dict[str, Any]:
    found = client.get(f"/v1/groups/{group}").json()
    names = ("display_name", "key_fields", "schema", "retain_days", "keep_versions", "keep_days")
    return {name: found[name] for name in (*names, "run_timeout_minutes", "missing")}


def test_settings_create_a_group(gleanery: CommandLine, client: Client) -> None:
    fields = ("--key-field", "sku", "--key-field", "country")
    done = gleanery("group", "set", "new", *fields, "--missing-max-share", "0")
    assert (done.returncode, done.stderr) == (0, "Created the group.\n")
    expected = {"after_runs": None, "max_share": 0.0}
    assert settings_of(client, "new")["key_fields"] == ["sku", "country"]
    assert settings_of(client, "new")["missing"] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Give a setting to change, such as --missing-after-runs 3"),
        (("--missing-after-runs", "0"), "--missing-after-runs must be"),
        (
            ("--missing-after-runs", "101"),
            "--missing-after-runs: Input should be less",
        ),
        (("--missing-max-share", "1.5"), "--missing-max-share must be"),
        (("--retain-days", "9999999"), "--retain-days: Input should be less"),
        (("--reset", "name"), "--reset must be display_name, key_fields,"),
        (("--reset", "missing", "--missing-max-share", "0.1"), "--reset missing contradicts"),
        (("--reset", "keep_days", "--keep-days", "1"), "--reset keep_days contradicts"),
        (("--schema", "no-such-file"), "no-such-file: No such file"),
        (("--schema", __file__), "must contain a JSON Schema"),
    ],
)
def test_wrong_settings_are_explained(
    gleanery: CommandLine, client: Client, options: tuple[str, ...], message: str
) -> None:
    done = gleanery("group", "set", "shop-prices", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert client.get("/v1/groups/shop-prices").status_code == 404


def test_settings_of_an_unknown_group_are_explained(gleanery: CommandLine, stored: Client) -> None:
    done = gleanery("group", "show", "shop-price")
    assert (done.returncode, "did you mean shop-prices?" in done.stderr) == (2, True)


# --- terminals ----------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_narrow_terminal_cuts_no_name(gleanery: CommandLine, client: Client) -> None:
    client.store("x" * 100, _output(1))
    with Terminal("groups", COLUMNS="60", **gleanery.variables) as terminal:
        assert terminal.wait() == 0
    assert terminal.shown.count("x") == 100
    assert "\N{HORIZONTAL ELLIPSIS}" not in terminal.shown


def test_a_wrong_name_of_a_group_is_named(gleanery: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"url": "https://a.example"}\n')
    done = gleanery("push", "a/b", str(tmp_path / "a.jsonl"), "--job", "j")
    assert done.returncode == 2
    assert done.stderr.startswith("gleanery: group_id: expected 1 to 200 characters")


def test_no_group_is_an_empty_list(gleanery: CommandLine) -> None:
    done = gleanery("groups")
    assert done.returncode == 0
    assert done.stdout == ""
    assert "gleanery push" in done.stderr
    assert gleanery("groups", "--json").stdout == "[]\n"


def test_the_jobs_of_a_group_are_listed(gleanery: CommandLine, stored: Client) -> None:
    gleanery("approve", "shop-prices", "uk")
    [_, job] = gleanery("groups", "shop-prices").stdout.splitlines()
    assert job.split()[:4] == ["uk", "3", "3", "approved"]
    group = json.loads(gleanery("groups", "shop-prices", "--json").stdout)
    assert [job["job_id"] for job in group["jobs"]] == ["uk"]


def test_a_job_is_approved_and_rejected(gleanery: CommandLine, stored: Client) -> None:
    assert gleanery("reviews", "shop-prices").stdout == ""
    done = gleanery("approve", "shop-prices", "uk", "--comment", "Good.")
    assert done.stdout == (
        "The review of uk is now: approved. 3 of 3 outputs of the job are approved.\n"
    )
    assert all(item["is_approved"] for item in stored.items("shop-prices"))
    rejected = gleanery("approve", "shop-prices", "uk", "--status", "rejected", "--json")
    assert json.loads(rejected.stdout)["status"] == "rejected"
    assert not any(item["is_approved"] for item in stored.items("shop-prices"))
    [_, latest] = gleanery("reviews", "shop-prices").stdout.splitlines()
    assert latest.split()[:2] == ["uk", "rejected"]
    history = json.loads(gleanery("reviews", "shop-prices", "--history", "--json").stdout)
    assert [review["comment"] for review in history] == ["", "Good."]


def test_a_sample_leads_to_an_approval_of_what_was_seen(
    gleanery: CommandLine, stored: Client
) -> None:
    done = gleanery("sample", "shop-prices", "uk", "--seed", "s")
    lines = done.stdout.splitlines()
    assert lines[::4] == ["1. random", "2. random", "3. random"]
    shown = [line.removeprefix("   output ") for line in lines[1::4]]
    assert "3 of 3 outputs, chosen with the seed s." in done.stderr
    again = json.loads(gleanery("sample", "shop-prices", "uk", "--seed", "s", "--json").stdout)
    assert [one["output"]["output_id"] for one in again["sample"]] == shown
    assert lines[2] == f"   {again['sample'][0]['output']['source_url']}"
    assert lines[3] == f"   n: {again['sample'][0]['output']['data']['n']}"
    stored.store("shop-prices", _output(1) | {"data": {"n": 11}})
    line = done.stderr.strip().partition("If they are right, run: gleanery ")[2]
    assert gleanery(*line.split()).returncode == 0
    items = stored.items("shop-prices")
    assert {item["data"]["n"]: item["is_approved"] for item in items} == {
        0: True,
        2: True,
        11: False,
    }


def test_a_sample_shows_what_has_changed_since_the_approval(
    gleanery: CommandLine, stored: Client
) -> None:
    gleanery("approve", "shop-prices", "uk")
    new = {"n": "x" * 100, "at": 1} | {f"m{number}": number for number in range(30)}
    stored.store("shop-prices", _output(1) | {"data": new}, _output(9) | {"data": new})
    lines = gleanery("sample", "shop-prices", "uk", "--size", "200").stdout.splitlines()
    changed = lines.index("   https://a.example/1")
    assert lines[changed + 1] == '   n: 1 → "' + 58 * "x" + "…"
    assert lines[changed + 2] == "   at: (none) → 1"
    assert lines[changed + 21] == "   and 12 more"
    created = lines.index("   https://a.example/9")
    assert lines[created + 2] == "   at: 1"
    assert lines[created + 6] == "   and 27 more"
    assert max(map(len, lines)) <= 80


def test_single_outputs_are_approved_and_rejected(gleanery: CommandLine, stored: Client) -> None:
    first, second, third = (item["output_id"] for item in stored.items("shop-prices"))
    seen = str(stored.get("/v1/groups/shop-prices").json()["cursor"])
    stored.store("shop-prices", _output(1) | {"data": {"n": 11}})
    both = ("--output", first, "--output", second)
    done = gleanery("approve", "shop-prices", "uk", *both, "--as-of", seen)
    assert done.stdout == "Reviewed 1 of 2 outputs of uk: approved.\n"
    assert done.stderr == f"Skipped, because its value is newer: {second}\n"
    gleanery("approve", "shop-prices", "uk", "--output", third)
    done = gleanery("reject", "shop-prices", "uk", "--changes-requested", "--output", first)
    assert done.stdout == "Reviewed 1 of 1 outputs of uk: changes_requested.\n"
    approved = {item["output_id"]: item["is_approved"] for item in stored.items("shop-prices")}
    assert approved == {first: False, second: False, third: True}
    done = gleanery("reject", "shop-prices", "uk", "--comment", "All of it.", "--json")
    assert json.loads(done.stdout)["status"] == "rejected"
    assert not any(item["is_approved"] for item in stored.items("shop-prices"))


def test_an_approval_of_nothing_is_visible(gleanery: CommandLine, stored: Client) -> None:
    done = gleanery("approve", "shop-prices", "uk", "--as-of", "0")
    assert done.returncode == 0
    assert done.stdout.endswith(" 0 of 3 outputs of the job are approved.\n")
    assert done.stderr == (
        "Nothing is approved: all values of the job were stored after --as-of.\n"
    )


def test_a_review_is_shown_with_its_findings(gleanery: CommandLine, stored: Client) -> None:
    first, second, _ = (item["output_id"] for item in stored.items("shop-prices"))
    findings = ("--finding", f"{first}:n:too: small", "--finding", f"{second}::gone")
    gleanery("reject", "shop-prices", "uk", "--output", first, *findings)
    [title, row] = gleanery("reviews", "shop-prices", "--history").stdout.splitlines()
    assert title.split() == ["Review", "Job", "Status", "Date", "Comment"]
    lines = gleanery("reviews", "shop-prices", "--review", row.split()[0]).stdout.splitlines()
    assert lines[:2] == ["Job: uk", "Status: rejected"]
    assert lines[4:] == [
        "Values until: the review",
        "Outputs: 1",
        f"  {first}",
        "Findings: 2",
        f"  {first} n: too: small",
        f"  {second} (whole output): gone",
    ]
    unknown = gleanery("reject", "shop-prices", "uk", "--output", first, "--output", "0" * 32)
    assert unknown.stderr.startswith("gleanery: --output (number 2): The job has no output")
    wrong = gleanery("reject", "shop-prices", "uk", "--finding", f"{first}:n")
    assert wrong.stderr.startswith("gleanery: --finding needs ID:PATH:NOTE")


@pytest.mark.parametrize(
    "line",
    [
        ("groups", "shop-price"),
        ("reviews", "shop-price"),
        ("approve", "shop-price", "uk"),
        ("reject", "shop-price", "uk"),
        ("sample", "shop-price", "uk"),
        ("open", "shop-price"),
        ("pull", "shop-price", "-o", "{folder}"),
    ],
)
def test_a_misspelled_group_is_suggested(
    gleanery: CommandLine, stored: Client, tmp_path: Path, line: tuple[str, ...]
) -> None:
    done = gleanery(*(word.format(folder=tmp_path / "copy") for word in line))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "gleanery: There is no such group; did you mean shop-prices? The command gleanery groups "
        "lists them.\n"
    )


def test_an_unknown_job_is_a_user_error(gleanery: CommandLine, stored: Client) -> None:
    done = gleanery("approve", "shop-prices", "de")
    assert done.returncode == 2
    assert "job" in done.stderr


@pytest.mark.thorough
def test_a_browser_opens_the_page_of_the_group(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    script.chmod(0o755)
    done = run_gleanery("open", "shop-prices", **gleanery.variables, BROWSER=f"{script} %s")
    assert done.stdout == f"{gleanery.url}/console#/groups/shop-prices\n"
    wait_until((tmp_path / "opened").exists)
    wait_until(lambda: (tmp_path / "opened").read_text() == done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems always have a browser")
def test_the_address_is_printed_without_a_browser(gleanery: CommandLine, stored: Client) -> None:
    none = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    done = gleanery("open", "shop-prices", **none)
    assert (done.returncode, done.stdout) == (0, f"{gleanery.url}/console#/groups/shop-prices\n")
