"""``gleanery demo`` for a new user: every command that it prints works."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.process import Running, environment, gleanery, gleanery_in_process

pytestmark = pytest.mark.thorough

MISSING = {"job_id": "catalogue-de", "missing": "true", "limit": 100}
TOKEN_LINE = re.compile(r"^export GLEANERY_TOKEN=\S+$", re.MULTILINE)


def pasted(line: str, token: str) -> httpx2.Response:
    """Runs the command as a shell and curl would."""
    words = iter(shlex.split(line.replace("$GLEANERY_TOKEN", token))[1:])
    headers, data, url = {}, None, ""
    for word in words:
        if word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            data = next(words)
        else:
            url = word
    return httpx2.request("POST" if data else "GET", url, headers=headers, content=data)


def check_commands(text: str, token: str, address: str, folder: Path) -> None:
    """Runs the printed commands of Gleanery in a shell."""
    exports = [line for line in text.splitlines() if line.startswith("export ")]
    assert exports == [f"export GLEANERY_URL={address}", f"export GLEANERY_TOKEN={token}"]
    commands = re.findall(
        r"^\S+(?: -m gleanery)? (?:groups|export|pull|sample|history|fields) .*|^\S+.* groups$",
        text,
        re.M,
    )
    assert len(commands) == 7
    script = "\n".join(["set -e", *exports, *commands])
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "property-listings" in done.stdout
    assert (folder / "prices.csv").exists()
    assert (folder / "approved.csv").exists()
    assert re.search(r"update +price ", done.stdout)
    assert list((folder / "prices").glob("shop-prices-*.jsonl"))


def test_every_printed_line_works_when_pasted(tmp_path: Path) -> None:
    with Running("demo", "--port", "0") as running:
        running.wait_for(
            lambda: any('/v1/cookies"' in line and "-d" in line for line in running.out)
        )
        text = "".join(running.out).replace("\\\n", "")
        [line] = [line for line in text.splitlines() if line.startswith("export GLEANERY_TOKEN=")]
        token = line.partition("=")[2]
        address = text.split(" at ", 1)[1].split()[0]
        running.wait_ready(address)
        curls = [line for line in text.splitlines() if line.startswith("curl")]
        assert len(curls) == 11
        for line in curls:
            answer = pasted(line, token)
            assert answer.status_code == 200, line
            found = answer.json()
            assert found.get("items", found) if isinstance(found, dict) else found, line
        check_commands(text, token, address, tmp_path)
        assert httpx2.get(f"{address}/docs").status_code == 200
        assert running.stop(signal.SIGINT) == 0
        assert "Traceback" not in "".join(running.log)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_stopped_at_its_start_leaves_no_data(tmp_path: Path, number: int) -> None:
    with Running("demo", "--port", "0", TMPDIR=str(tmp_path)) as running:
        # Python itself writes a file into TMPDIR before the demo has a folder there.
        running.wait_for(lambda: list(tmp_path.glob("gleanery-demo-*/*")))
        running.stop(number)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_leaves_no_data(tmp_path: Path, number: int) -> None:
    with Running("demo", "--port", "0", TMPDIR=str(tmp_path)) as running:
        running.wait_for(
            lambda: any(line.startswith("export GLEANERY_TOKEN=") for line in running.out)
        )
        assert list(tmp_path.iterdir())
        running.stop(number)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_data_is_left_alone(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path)]
    gleanery_in_process("token", "create", "--organization", "real", *data)
    ended = gleanery("demo", "--port", "0", *data)
    assert ended.returncode == 2
    assert "not a complete sample" in ended.stderr
    assert "Harvest" not in gleanery_in_process("token", "list", *data).stdout


def test_sample_data_in_a_folder_is_created_once(tmp_path: Path) -> None:
    counts = []
    for _ in range(2):
        with Running("demo", "--port", "0", "--data", str(tmp_path / "kept")) as running:
            running.wait_for(
                lambda: any(line.startswith("export GLEANERY_TOKEN=") for line in running.out)
            )
            text = "".join(running.out)
            token = text.split("GLEANERY_TOKEN=")[1].split()[0]
            address = text.split(" at ", 1)[1].split()[0]
            running.wait_ready(address)
            header = {"Authorization": f"Bearer {token}"}
            url = f"{address}/v1/outputs/news"
            page = httpx2.get(url, params={"limit": 1000}, headers=header).json()
            counts.append(len(page["items"]))
            check_runs(f"{address}/v1", header)
            check_alerts(f"{address}/v1", header)
    assert counts == [500, 500]


def check_runs(url: str, header: dict[str, str]) -> None:
    """Every kind of run is in the sample, at its time."""

    def read(group: str, **query: Any) -> list[dict[str, Any]]:
        page = httpx2.get(f"{url}/runs/{group}", params={"limit": 1000, **query}, headers=header)
        found: list[dict[str, Any]] = page.json()["runs"]
        return found

    shop, homes, news = read("shop-prices"), read("property-listings"), read("news")
    statuses = Counter(run["status"] for run in shop)
    assert (statuses["partial"], statuses["failed"]) == (1, 1)
    assert statuses["complete"] > 100
    assert [run["message"] is not None for run in shop if run["status"] != "complete"] == [True] * 2
    assert {run["status"] for run in news} == {"unknown"}
    assert [run["job_id"] for run in shop if run["removal"] == "held"] == ["catalogue-br"]
    assert [run["counts"]["removed"] for run in shop if run["removal"] == "done"] == [7]
    missing = httpx2.get(f"{url}/outputs/shop-prices", params=MISSING, headers=header).json()
    assert len(missing["items"]) == 4
    sent = [run["counts"]["updated"] + run["counts"]["unchanged"] for run in homes]
    assert sent.count(0) == 3  # an empty run; the first ones have created everything
    assert 220 in sent  # half of the sales
    now = datetime.now(UTC)
    for run in (*shop, *homes, *news):
        start, end = (datetime.fromisoformat(run[name]) for name in ("start_date", "finish_date"))
        assert now - timedelta(days=34) < start <= end < now
        assert end - start < timedelta(hours=1)


def check_alerts(url: str, header: dict[str, str]) -> None:
    """The jobs that break have alerts, and the others have none."""
    found = httpx2.get(f"{url}/alerts", headers=header).json()["alerts"]
    states = {(one["job_id"], one["kind"]): one["state"] for one in found}
    assert states == {
        ("catalogue-br", "few_outputs"): "open",
        ("catalogue-fr", "no_run"): "closed",
        ("catalogue-jp", "no_run"): "open",
        ("rentals", "few_outputs"): "closed",
        ("rentals", "fill_rate"): "open",
        ("sales", "few_outputs"): "closed",
    }
    assert len(found) == len(states)
    by = {one["job_id"]: one["acknowledged_by"] for one in found if one["acknowledged_by"]}
    assert by == {"catalogue-jp": "Jonas Weber"}
