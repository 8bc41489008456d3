"""Runs the commands of the documentation as written, and compares their output with the page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.shop import running_shop
from gleanery.service.foundation.security.tokens import SCOPES
from tests.support.browser import chromium_path
from tests.support.examples import examples, is_shown
from tests.support.generators import GENERATORS, NODE_MODULES, PYTHON_PROGRAMS
from tests.support.outputs import output
from tests.support.process import Running, environment, free_port, gleanery
from tests.support.service import Client

ROOT = Path(__file__).parent.parent.parent
# Installation, and services that the test starts itself or cannot start.
_NOT_RUN = re.compile(
    r"(CLONE=|mkdir |python3 -m venv|\. venv|pip |playwright install|npm |make |gleanery serve)"
)
_CLIENT_GUIDE = "docs/how-to/generate-a-client.md"
_DLT_GUIDE = "docs/how-to/sync-into-a-warehouse-with-dlt.md"
_EXPORT_GUIDE = "docs/how-to/export-a-group.md"
_PLAYWRIGHT_GUIDE = "docs/how-to/scrape-with-playwright.md"
_LEASE_GUIDE = "docs/how-to/share-a-login-between-workers.md"
_WEBHOOK_GUIDE = "docs/how-to/react-to-changes.md"
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/how-to/store-files.md",
    "docs/how-to/review-a-job.md",
    "docs/how-to/use-the-python-client.md",
    "docs/how-to/store-the-items-of-a-scraper.md",
    "docs/how-to/use-runs.md",
    "docs/how-to/find-products-that-vanish.md",
    "docs/how-to/scrape-with-scrapy.md",
    "docs/how-to/hand-cookies-to-a-scraper.md",
    "docs/how-to/scrape-with-crawlee.md",
    _PLAYWRIGHT_GUIDE,
    _DLT_GUIDE,
    _EXPORT_GUIDE,
    _LEASE_GUIDE,
    _CLIENT_GUIDE,
    _WEBHOOK_GUIDE,
)
"""Pages whose commands are run in their order, beside a service of their own."""
_WITH_FRAMEWORKS = (
    "docs/how-to/scrape-with-scrapy.md",
    "docs/how-to/scrape-with-crawlee.md",
    _PLAYWRIGHT_GUIDE,
    _DLT_GUIDE,
)
_SCRIPTS = {
    "docs/tutorial.md": "sync.py",
    "docs/how-to/hand-cookies-to-a-scraper.md": "cookies.py",
    _CLIENT_GUIDE: "cookies.py",
    _DLT_GUIDE: "load_prices.py",
    _LEASE_GUIDE: "worker.py",
    _WEBHOOK_GUIDE: "webhook_receiver.py",
}

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


def run(commands: list[str], folder: Path, **variables: str) -> list[str]:
    """Runs the commands in one shell, and gives the output of each.

    That of gleanery includes its summary for people, which goes to standard error.
    """
    shown = [
        f"{{ {command}\n}} 2>&1"
        if command.startswith("gleanery ") and "--json" not in command
        else command
        for command in commands
    ]
    end_programs = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
    script = end_programs + "\n".join(f"{command}\nprintf '\\0'" for command in shown)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.split("\0")[:-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the commands that an installation puts on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, program in (
        ("gleanery", f"{sys.executable} -m gleanery"),
        ("python", sys.executable),
        ("scrapy", f"{sys.executable} -m scrapy"),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (programs / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def shop_url() -> Iterator[str]:
    """Address of the example shop, which pages about scrapers use."""
    with running_shop() as shop:
        yield shop.url


def install_generators(folder: Path) -> dict[str, str]:
    """Does what the installation commands of the page do; returns the variables."""
    (folder / "node_modules").symlink_to(NODE_MODULES)
    path = f"{PYTHON_PROGRAMS}:{environment()['PATH']}"
    return {"PATH": path, "PYTHONPATH": str(folder / "gleanery-client")}


def marks_of(page: str) -> list[pytest.MarkDecorator]:
    """Return the marks of pages whose programs only ``make extended`` installs."""
    if page == _CLIENT_GUIDE:
        return [pytest.mark.extended, GENERATORS]
    return [pytest.mark.extended] if page in _WITH_FRAMEWORKS else []


def test_the_shop_names_a_port_that_is_used() -> None:
    with running_shop() as shop:
        port = shop.url.rpartition(":")[2]
        command = [sys.executable, str(ROOT / "examples" / "shop.py"), "--port", port]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert f"port {port} cannot be used" in refused.stderr


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks_of(page)) for page in PAGES])
def test_examples_work_as_written(page: str, folder: Path, shop_url: str) -> None:
    port = str(free_port())
    text = (ROOT / page).read_text().replace(":8000", f":{port}")
    text = text.replace("http://127.0.0.1:8080", shop_url)
    if page == _WEBHOOK_GUIDE:
        text = text.replace("5000", str(free_port()))
    if page == _PLAYWRIGHT_GUIDE:
        launch = f'launch(executable_path="{chromium_path()}", args=["--no-sandbox"])'
        text = text.replace("launch()", launch)
    if page in _SCRIPTS:
        script, *_ = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
        (folder / _SCRIPTS[page]).write_text(script)
    text = text.split("## Use it")[-1]  # the README starts with the demo, which has its own tests
    chosen = [example for example in examples(text) if not _NOT_RUN.match(example.command)]
    data = str(folder / "gleanery-data")
    allow = ("--webhook-allow", "127.0.0.1") if page == _WEBHOOK_GUIDE else ()
    with Running("serve", "--data", data, "--port", port, *allow) as running:
        running.wait_ready(f"http://127.0.0.1:{port}")
        scopes = ",".join(SCOPES)
        made = gleanery(
            "token", "create", "--organization", "a", "--scopes", scopes, "--data", data
        )
        variables = {"PATH": f"{folder / 'bin'}:{environment()['PATH']}"}
        if page == _DLT_GUIDE:
            variables |= {"DLT_DATA_DIR": str(folder), "RUNTIME__DLTHUB_TELEMETRY": "false"}
        if page == _EXPORT_GUIDE:
            Client(f"http://127.0.0.1:{port}", made.stdout.strip()).store("prices", output(1))
        if page == _CLIENT_GUIDE:
            variables = install_generators(folder)
        commands = [example.command for example in chosen]
        outputs = run(commands, folder, TOKEN=made.stdout.strip(), **variables)
    assert len(outputs) == len(chosen) > 3
    for example, printed in zip(chosen, outputs, strict=True):
        if example.output:
            assert is_shown(printed, example.output), (example, printed)
        elif example.command.startswith("curl"):
            assert '"detail"' not in printed, (example, printed)
