"""DuckDB, Polars, pandas and curl read an export as the guide says, and lose nothing.

``make integrations`` installs a DuckDB for which its extension httpfs is a package. It reads the
link itself. Where that is missing, DuckDB reads the file that curl has downloaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.examples import examples
from tests.support.exports import export_link
from tests.support.outputs import output
from tests.support.process import environment
from tests.support.service import Client

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = Path(sys.executable).parent  # gleanery and python
GUIDE = (ROOT / "docs" / "how-to" / "export-a-group.md").read_text()
DUCKDB_PYTHON = Path(
    os.environ.get("GLEANERY_TOOLS_PYTHON", ROOT / ".venv-integrations/bin/python")
)
COUNT = 5000
# Values that a tool changes if it guesses types.
UNUSUAL = [
    {"sku": 1, "n": 9007199254740993, "id": "007"},
    {"sku": "A-1", "n": 123456789012345678901234567890},
    {"sku": 1.5, "n": None, "nested": {"list": [1, "2", None]}},
]
_INSTALL = """
import pathlib, shutil, duckdb, duckdb_extension_httpfs
[(platform,)] = duckdb.sql("PRAGMA platform").fetchall()
folder = pathlib.Path.home() / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform
folder.mkdir(parents=True)
package = pathlib.Path(duckdb_extension_httpfs.__file__).parent
[found] = package.rglob("httpfs.duckdb_extension")
shutil.copy(found, folder)
"""
_EXPECTED = f"{COUNT} {sum(range(COUNT))}.00"


def script(tool: str) -> str:
    """The program of a tool in the guide."""
    section = GUIDE.split(f"## {tool}\n")[1].split("\n## ")[0]
    [found] = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    return str(found)


def run(python: str | Path, program: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        [python, "-c", program],
        cwd=folder,
        env=environment(HOME=str(folder), **variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def prices(client: Client) -> list[dict[str, Any]]:
    """A group of 5000 outputs, whose prices are their numbers."""
    data = [{"price": n, **UNUSUAL[n % len(UNUSUAL)]} for n in range(COUNT)]
    for start in range(0, COUNT, 1000):
        numbers = range(start, start + 1000)
        client.store("prices", *(output(n, data=data[n]) for n in numbers))
    return data


@pytest.fixture
def link(client: Client, prices: list[dict[str, Any]]) -> str:
    return export_link(client, "prices")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_guide_download_the_group(
    client: Client, prices: list[dict[str, Any]], tmp_path: Path
) -> None:
    text = GUIDE.replace("http://127.0.0.1:8000", str(client.base_url).rstrip("/"))
    commands = "\n".join(example.command for example in examples(text))
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", commands],
        cwd=tmp_path,
        env=environment(TOKEN=str(client.token), PATH=f"{PROGRAMS}:{environment()['PATH']}"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "prices.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["data"] for line in lines] == prices
    # DuckDB reads the file as it would read the link.
    program = script("DuckDB")
    assert run(sys.executable, program, tmp_path, URL="prices.jsonl") == _EXPECTED
    _check_duckdb(sys.executable, tmp_path, prices)


@pytest.mark.skipif(
    not DUCKDB_PYTHON.exists(), reason="make integrations installs DuckDB with httpfs"
)
def test_duckdb_reads_a_link(link: str, prices: list[dict[str, Any]], tmp_path: Path) -> None:
    run(DUCKDB_PYTHON, _INSTALL, tmp_path)
    assert run(DUCKDB_PYTHON, script("DuckDB"), tmp_path, URL=link) == _EXPECTED
    _check_duckdb(DUCKDB_PYTHON, tmp_path, prices)


@pytest.mark.skipif(
    not DUCKDB_PYTHON.exists(), reason="make integrations installs DuckDB with httpfs"
)
def test_duckdb_reads_a_link_to_parquet(
    client: Client, prices: list[dict[str, Any]], tmp_path: Path
) -> None:
    run(DUCKDB_PYTHON, _INSTALL, tmp_path)
    guide = (ROOT / "docs" / "how-to" / "analyse-in-a-notebook.md").read_text()
    [query] = re.findall(r"^```sql\n(.*?)^```", guide, re.M | re.S)
    answer = client.post("/v1/exports/prices/links", params={"format": "parquet"})
    program = f"""
import os, duckdb
duckdb.sql("SET VARIABLE url = '" + os.environ["URL"] + "'")
print(*duckdb.sql({query!r}).fetchall()[0])
"""
    found = run(DUCKDB_PYTHON, program, tmp_path, URL=answer.json()["url"])
    assert found == f"{COUNT} {COUNT - 1}"


def _check_duckdb(python: str | Path, folder: Path, prices: list[dict[str, Any]]) -> None:
    program = """
import duckdb
connection = duckdb.connect("prices.duckdb")
print(*(text for text, in connection.sql("SELECT data FROM prices").fetchall()), sep="\\n")
"""
    texts = run(python, program, folder).splitlines()
    assert _in_order(map(json.loads, texts)) == prices


def test_polars_reads_a_link(link: str, prices: list[dict[str, Any]], tmp_path: Path) -> None:
    program = script("Polars") + "\nprint(*prices['data'], sep='\\n')\n"
    total, *texts = run(sys.executable, program, tmp_path, URL=link).splitlines()
    assert total == _EXPECTED
    assert _in_order(map(json.loads, texts)) == prices


def test_pandas_reads_a_link(link: str, prices: list[dict[str, Any]], tmp_path: Path) -> None:
    program = script("pandas") + "\nprint(*map(json.dumps, prices['data']), sep='\\n')\n"
    total, *texts = run(sys.executable, program, tmp_path, URL=link).splitlines()
    assert total == _EXPECTED.removesuffix(".00")
    assert _in_order(map(json.loads, texts)) == prices


def _in_order(rows: Any) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda data: data["price"])
