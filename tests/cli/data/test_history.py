"""``gleanery history``: versions of an output for people and for scripts."""

from __future__ import annotations

import json

import pytest

from tests.cli.data.conftest import CommandLine
from tests.support.outputs import output
from tests.support.service import Client


@pytest.fixture
def output_id(client: Client) -> str:
    """An output with three versions, of which the first one is approved."""
    for data in ({"price": 1}, {"price": 2, "text": "a\x1b"}, {"price": 2, "text": "x" * 100}):
        [result] = client.store("group", output(1, key="key", data=data))["results"]
        if data == {"price": 1}:
            client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    return str(result["output_id"])


def test_versions_are_listed_with_their_changed_fields(
    gleanery: CommandLine, output_id: str
) -> None:
    [title, newest, price, text, first] = gleanery(
        "history", "group", output_id
    ).stdout.splitlines()
    assert title.split() == ["Date", "Change", "Approved", "Field", "Before", "After"]
    assert newest.split()[2:] == ["update", "text", '"a\\u001b"', '"' + 58 * "x" + "\u2026"]
    assert price.split()[2:] == ["update", "price", "1", "2"]
    assert text.split() == ["text", '"a\\u001b"']
    assert first.split()[2:] == ["create", "yes"]


def test_a_deletion_is_listed_with_its_reason(gleanery: CommandLine, client: Client) -> None:
    client.put("/v1/groups/group", json={"missing": {"after_runs": 1, "max_share": 1}})
    [result] = client.store("group", output(1))["results"]
    run_id = client.post("/v1/runs/group", json={"job_id": "job"}).json()["run_id"]
    client.post(f"/v1/runs/group/{run_id}/finish", json={"status": "complete"})
    client.store("group", output(1))
    client.delete(f"/v1/outputs/group/{result['output_id']}")
    rows = gleanery("history", "group", result["output_id"]).stdout.splitlines()
    changes = [row.split()[2:] for row in rows[1:]]
    assert changes == [["delete"], ["create"], ["delete", "(missing)"], ["create"]]


def test_a_history_is_printed_for_scripts(
    gleanery: CommandLine, client: Client, output_id: str
) -> None:
    listed = json.loads(gleanery("history", "group", output_id, "--json").stdout)
    path = f"/v1/outputs/group/{output_id}"
    assert listed == client.get(f"{path}/history").json()["versions"]
    shown = json.loads(
        gleanery("history", "group", output_id, "--at", str(listed[-1]["cursor"])).stdout
    )
    assert shown == client.get(path, params={"at": listed[-1]["cursor"]}).json()
    assert shown["data"] == {"price": 1}


def test_a_missing_version_is_an_error(gleanery: CommandLine, output_id: str) -> None:
    for arguments in (("0" * 32,), (output_id, "--at", "2020-01-01"), (output_id, "--at", "soon")):
        done = gleanery("history", "group", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("gleanery: ")


def test_the_date_of_the_table_is_a_time_of_the_output(
    gleanery: CommandLine, output_id: str
) -> None:
    newest = gleanery("history", "group", output_id).stdout.splitlines()[1]
    shown = gleanery("history", "group", output_id, "--at", newest[:20])
    assert json.loads(shown.stdout)["data"]["text"] == "x" * 100


def test_an_output_is_found_by_its_page(
    gleanery: CommandLine, client: Client, output_id: str
) -> None:
    page = client.items("group")[0]["source_url"]
    by_id = gleanery("history", "group", output_id)
    assert gleanery("history", "group", "--url", page).stdout == by_id.stdout
    client.store("group", output(1, key="other", source_url=page))
    several = gleanery("history", "group", "--url", page)
    ids = [line.split()[0] for line in several.stdout.splitlines()[1:]]
    assert sorted(ids) == sorted(item["output_id"] for item in client.items("group"))
    assert "give the OUTPUT_ID of one" in several.stderr
    for wrong in ((), (output_id, "--url", page), ("--url", f"{page}/none")):
        assert gleanery("history", "group", *wrong).returncode == 2
