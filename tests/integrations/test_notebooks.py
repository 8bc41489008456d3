"""The example notebook, and the cells of the how-to page, run as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from gleanery import Client
from tests.support.examples import is_shown
from tests.support.process import environment
from tests.support.service import Service
from tests.support.shop_data import push_products

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "analyse-in-a-notebook.md"
NOTEBOOK = ROOT / "examples" / "prices.ipynb"
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.M | re.S)
_NEXT_SCRAPE = """
from tests.support.shop_data import push_products
push_products(client, "notebook-prices", day=2)
"""
_SCRAPE_AGAIN = "and scrape it again with the same command. Then:\n"
_MARKED = f"```python{_NEXT_SCRAPE}```\n"
# Threads of the table libraries sometimes abort a process that ends by itself on a busy machine.
END = "\nimport os, sys; sys.stdout.flush(); os._exit(0)"


@pytest.fixture
def variables(service: Service) -> dict[str, str]:
    """Variables of a client of a group with the products of the first day."""
    token = service.token()
    with Client(service.url, token) as client:
        push_products(client, "notebook-prices")
    return {"GLEANERY_URL": service.url, "GLEANERY_TOKEN": token}


def cells(page: str) -> Iterator[tuple[str, str]]:
    """Python blocks of a page, each with the output that the page shows after it."""
    program = ""
    assert _SCRAPE_AGAIN in page
    for language, text in _BLOCK.findall(page.replace(_SCRAPE_AGAIN, f"\n{_MARKED}")):
        if language == "text":
            yield program, text
            program = ""
        else:
            program += text
    yield program, ""


def test_the_cells_of_the_page_print_what_it_shows(
    variables: dict[str, str], tmp_path: Path
) -> None:
    parts = list(cells(PAGE.read_text()))
    program = 'print("\\0", end="")\n'.join(part for part, _ in parts) + END
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(**variables, PYTHONPATH=str(ROOT)),  # the next scrape is in tests
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for printed, (_, shown) in zip(done.stdout.split("\0"), parts, strict=True):
        assert is_shown(printed, shown), (printed, shown)


def test_the_notebook_runs_and_has_no_stored_output(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Client() as client:
        assert push_products(client, "notebook-prices", day=2).updated == 12
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    [printed] = code[-1].outputs
    assert len(printed.text.splitlines()) == 12
    assert "SKU-0025 price 22.5 → 21.5" in printed.text
    [table] = code[-2].outputs
    assert "258" in table.data["text/plain"]
