"""The papers are true: settings, commands and the example of a new route."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

from typer import Context
from typer.main import get_group

from gleanery import __version__
from gleanery.cli import app
from gleanery.security import tokens
from gleanery.settings import Settings
from tests.support.process import Running, free_port, gleanery
from tests.support.service import Client

ROOT = Path(__file__).parent.parent.parent
OPERATIONS_PAGE = (ROOT / "docs" / "operations.md").read_text()


def options(*path: str) -> set[str]:
    command = get_group(app)
    for name in path:
        command = command.get_command(Context(command), name)
    return {option for parameter in command.params for option in parameter.opts if "--" in option}


def test_every_setting_is_documented_with_its_default() -> None:
    for field in dataclasses.fields(Settings):
        variable = f"GLEANERY_{field.name.upper()}"
        assert variable in OPERATIONS_PAGE
        if field.default not in (None, False) and field.name != "base_url":
            [row] = [line for line in OPERATIONS_PAGE.splitlines() if f"`{variable}`" in line]
            assert f"| `{field.default}` |" in row


def test_every_option_is_documented() -> None:
    for path in (
        *(("serve",), ("demo",), ("migrate",), ("token", "create"), ("token", "list")),
        *(("keys", "list"), ("keys", "rotate"), ("keys", "forget")),
        *(("backup",), ("restore",), ("restored",)),
    ):
        for option in options(*path) - {"--help"}:
            assert f"`{option}`" in OPERATIONS_PAGE, option


def test_every_scope_is_documented() -> None:
    for scope, words in tokens.SCOPES.items():
        assert f"| `{scope}` | {words} |" in OPERATIONS_PAGE


def test_every_dependency_has_its_reason() -> None:
    _, reasons = (ROOT / "docs" / "decisions.md").read_text().split("## Dependencies, and why each")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for text in (*project["dependencies"], *extras["redis"], *extras["dev"]):
        [name] = re.findall(r"^[a-z0-9-]+", text)
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", reasons), name


def test_the_threat_model_names_what_is_there() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    named = set(re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.txt|Makefile)`", page))
    files = {name for name in named if not name.startswith("/")}  # those are routes
    assert {"src/gleanery/security/vault.py", "tests/security/test_secrets.py"} <= files
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


def test_links_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_the_example_of_a_new_route_is_all_it_takes(tmp_path: Path) -> None:
    """Applied to a copy, the diff gives a route that is served, guarded and documented."""
    diff = (ROOT / "CONTRIBUTING.md").read_text().split("```diff\n")[1].split("```")[0]
    shutil.copytree(ROOT / "src", tmp_path / "src")
    subprocess.run(["git", "apply"], input=diff, cwd=tmp_path, text=True, check=True)
    data, port, path = str(tmp_path / "data"), free_port(), {"PYTHONPATH": str(tmp_path / "src")}
    with Running("serve", "--data", data, "--port", str(port), **path) as running:
        url = f"http://127.0.0.1:{port}"
        running.wait_ready(url)
        made = gleanery("token", "create", "--organization", "a", "--data", data)
        with Client(url, made.stdout.strip()) as client, Client(url, None) as stranger:
            assert client.get("/v1/organization").json() == {"organization_id": 1}
            assert client.head("/v1/organization").status_code == 200
            assert client.post("/v1/organization").status_code == 405
            assert stranger.get("/v1/organization").status_code == 401
            assert "/v1/organization" in stranger.get("/openapi.json").json()["paths"]
            assert "/v1/organization" in stranger.get("/docs").text


def test_the_command_tells_its_version() -> None:
    told = gleanery("--version")
    assert (told.returncode, told.stdout.strip()) == (0, __version__)
