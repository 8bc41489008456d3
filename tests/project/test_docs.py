"""Checks of the documentation: settings, commands, code map, links, the examples of changes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest
from click import Command, Context, Group

from checks import settings_page
from gleanery import __version__
from gleanery.cli import app
from gleanery.common.settings import table
from gleanery.service.foundation.security import tokens
from gleanery.service.resources.audit.models import AuditAction
from gleanery.sessions import FORMATS
from tests.support.process import Running, environment, free_port, gleanery
from tests.support.service import Client

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "gleanery"
PAGES = [*(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"), *DOCS.rglob("*.md")]
FORMER_FOLDERS = {
    *("admin", "api", "background", "console", "http", "json_schema", "models", "observability"),
    *("scheduling", "security", "server", "storage", "values"),
}
"""Packages that were at the top level. Pages must not name them there."""
FOLDERS = FORMER_FOLDERS | {path.name for path in (*ROOT.iterdir(), *SOURCE.iterdir())}
"""Where a path or a dotted name of this project begins."""
SETTINGS_PAGE = (DOCS / "settings.md").read_text()
COMMANDS_PAGE = (DOCS / "command-line.md").read_text()


def options(*path: str) -> set[str]:
    command: Command = app
    for name in path:
        assert isinstance(command, Group)
        _, command, _ = command.resolve_command(Context(command), [name])
    return {option for parameter in command.params for option in parameter.opts if "--" in option}


def test_the_table_of_settings_is_current() -> None:
    assert settings_page.with_table(SETTINGS_PAGE) == SETTINGS_PAGE, "run make docs"


def test_every_setting_is_an_option_of_serve() -> None:
    documented = {row.option for row in table() if row.has_option}
    assert options("serve") - {"--help"} == documented
    assert documented == {option for option in documented if f"`{option}`" in SETTINGS_PAGE}


def test_every_option_is_documented() -> None:
    for path in (
        *(("serve",), ("demo",), ("migrate",), ("token", "create"), ("token", "list")),
        *(("keys", "list"), ("keys", "rotate"), ("keys", "forget")),
        *(("backup",), ("restore",), ("restored",), ("compact",)),
    ):
        for option in options(*path) - {"--help"}:
            assert f"`{option}`" in SETTINGS_PAGE + COMMANDS_PAGE, option


def test_every_scope_is_documented() -> None:
    for scope, words in tokens.SCOPES.items():
        assert f"| `{scope}` | {words} |" in COMMANDS_PAGE


def test_every_format_of_session_state_is_documented() -> None:
    guide = (DOCS / "how-to" / "hand-cookies-to-a-scraper.md").read_text()
    for one in FORMATS.values():
        assert f"| `{one.name}` | {one.description} |" in guide


def test_every_action_of_the_audit_log_is_documented() -> None:
    guide = (DOCS / "how-to" / "follow-the-audit-log.md").read_text()
    table = "".join(line for line in guide.splitlines() if line.startswith("| `"))
    for action in get_args(AuditAction):
        assert f"`{action}`" in table, action


def test_a_link_to_a_decision_has_its_number() -> None:
    links = re.compile(r"\[[Dd]ecision (\d{4})\]\([^)]*?(\d{4})-[^)]*\)")
    found = {page: links.findall(page.read_text()) for page in DOCS.rglob("*.md")}
    assert sum(map(len, found.values())) > 0
    for page, numbers in found.items():
        assert all(shown == linked for shown, linked in numbers), page


def test_every_dependency_has_its_reason() -> None:
    _, reasons = (DOCS / "decisions" / "dependencies.md").read_text().split("## Reasons")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for text in (*project["dependencies"], *chain(*extras.values())):
        [name] = re.findall(r"^[a-z0-9-]+", text)
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", reasons), name


def test_the_threat_model_names_what_is_there() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    named = set(re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.txt|Makefile)`", page))
    files = {name for name in named if not name.startswith("/")}  # those are routes
    assert {
        "src/gleanery/service/foundation/security/vault.py",
        "tests/security/test_secrets.py",
    } <= files
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


def test_examples_use_lasting_jobs() -> None:
    """A job that stands for a run would store every output again."""
    pages = (ROOT / "README.md", *DOCS.rglob("*.md"))
    jobs = {
        job
        for page in pages
        for job in re.findall(r'"(?:root_)?job_id": ?"([^"]+)"', page.read_text())
    }
    runs = re.compile(r"(mon|tues|wednes|thurs|fri|satur|sun)day|\brun\b|\d{4}", re.IGNORECASE)
    assert jobs
    assert [job for job in sorted(jobs) if runs.search(job)] == []
    for page in ("tutorial.md", "glossary.md", "reference.md"):
        text = " ".join((DOCS / page).read_text().split())
        assert "lasting source" in text
        assert "not one run" in text


def test_links_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]+)?\)", page.read_text()):
            linked = page.parent / target if target else page
            assert linked.exists(), (page.name, target)
            if anchor:
                assert anchor[1:] in anchors(linked), (page.name, target, anchor)


def anchors(page: Path) -> set[str]:
    """Names by which a link reaches the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_an_index() -> None:
    linked = {
        (index.parent / target).resolve()
        for index in (DOCS / "README.md", *DOCS.glob("*/README.md"))
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", index.read_text())
    }
    pages = {page.resolve() for page in ROOT.glob("docs/**/*.md")}
    assert pages - linked == {(DOCS / "README.md").resolve()}


def test_decisions_have_a_number_a_date_and_a_status() -> None:
    index = (DOCS / "decisions" / "README.md").read_text()
    records = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert len({record.name[:4] for record in records}) == len(records) > 30
    for record in records:
        number, text = record.name[:4], record.read_text()
        [title] = re.findall(rf"\A# {number}\. (.+)", text)
        [(date, status)] = re.findall(r"^Date: (\d{4}-\d\d-\d\d)\. Status: (.+?)\.", text, re.M)
        assert "\n## Decision\n" in text, record.name
        assert f"| [{number}]({record.name}) | {title} | {date} | {status} |" in index


def test_the_code_map_is_complete() -> None:
    page = (DOCS / "architecture.md").read_text()
    mapped = {name for row in re.findall(r"^\| (`.+?) \|", page, re.M) for name in codes(row)}
    service = SOURCE / "service"
    for folder in (SOURCE, service, service / "api", service / "storage", service / "resources"):
        for path in folder.iterdir():
            if not path.name.startswith("__"):
                name = str(path.relative_to(SOURCE)) + ("/" if path.is_dir() else "")
                assert name in mapped, name


def test_paths_in_the_documentation_exist() -> None:
    """A path begins in the repository or in the package. A bare file name is not checked."""
    pattern = re.compile(r"[\w.-]+/(?:[\w.-]+/)*(?:[\w-]+\.(?:py|js|css|sql|md|toml))?")
    found = [
        (page.name, name)
        for page in PAGES
        for name in filter(pattern.fullmatch, codes(without_blocks(page.read_text())))
        if name.split("/")[0] in FOLDERS
    ]
    assert len(found) > 100
    bases = (ROOT, SOURCE)
    assert [each for each in found if not any((base / each[1]).exists() for base in bases)] == []


def test_modules_in_the_documentation_exist() -> None:
    found = [
        (page.name, parts)
        for page in PAGES
        for name in re.findall(r"\bgleanery\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", page.read_text())
        if (parts := name.split("."))[0] in FOLDERS and parts != ["service", "d"]  # of systemd
    ]
    assert len(found) > 10
    assert [each for each in found if not names_something(each[1])] == []


def names_something(parts: list[str]) -> bool:
    """True if a dotted name is a package, a module, or a name that occurs in one."""
    path = SOURCE
    for number, part in enumerate(parts):
        if (path / part).is_dir():
            path = path / part
            continue
        module, inner = path / f"{part}.py", parts[number + 1 :]
        if not module.exists():
            module, inner = path / "__init__.py", parts[number:]
        return all(re.search(rf"\b{name}\b", module.read_text()) for name in inner)
    return True


def without_blocks(text: str) -> str:
    """The text of a page without its blocks of code, which often are files of a reader."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def recipe(heading: str) -> str:
    """The diff below a heading of CONTRIBUTING.md."""
    _, section = (ROOT / "CONTRIBUTING.md").read_text().split(f"## {heading}\n")
    return section.split("\n## ")[0].split("```diff\n")[1].split("```")[0]


RECIPES = ("Add a route", "Add a field to a response", "Add an option to a command")


def copy_with(folder: Path, *headings: str) -> None:
    """Apply recipes to a copy of the project, as printed, and check the style of the result."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("checks", "docs", "faults", "src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("CONTRIBUTING.md", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    diff = "".join(map(recipe, headings))
    subprocess.run(["git", "apply"], input=diff, cwd=folder, text=True, check=True)
    changed = re.findall(r"^\+\+\+ b/(.+)$", diff, re.M)
    for check in (("check",), ("format", "--check")):
        run_module(folder, "ruff", *check, "--no-cache", *changed)
    (folder / "docs" / "reference.md").write_text(run_module(folder, "checks.reference"))


def run_tests(folder: Path, *arguments: str) -> None:
    """Run tests of a copy, as ``make quick`` does."""
    run_module(
        *(folder, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("-m", "not thorough and not extended", *arguments),
    )


@pytest.mark.thorough
def test_the_example_of_a_new_route_is_all_it_takes(tmp_path: Path) -> None:
    """Applied to a copy, the diff gives a route that is served, guarded, documented and tested."""
    copy_with(tmp_path, "Add a route")
    run_tests(
        *(tmp_path, "tests/api/test_contract.py", "tests/api/test_reference_page.py"),
        *("tests/api/test_openapi_document.py", "tests/api/test_openapi_examples.py"),
        *("tests/storage/test_isolation.py", "-k", "not postgres"),
    )
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


@pytest.mark.thorough
def test_the_example_of_a_new_field_is_all_it_takes(tmp_path: Path) -> None:
    """Applied to a copy, the diff passes its own test and those of the contract."""
    copy_with(tmp_path, "Add a field to a response")
    run_tests(
        *(tmp_path, "tests/api/test_contract.py", "tests/api/test_export_links.py"),
        *("tests/api/test_openapi_document.py", "tests/api/test_openapi_examples.py"),
        *("-k", "not postgres"),
    )
    assert "| `format` | string |  | Format of the export. |" in (
        (tmp_path / "docs" / "reference.md").read_text()
    )


@pytest.mark.thorough
def test_the_example_of_a_new_option_is_all_it_takes(tmp_path: Path) -> None:
    """Applied to a copy, the diff passes its own test and the tests of the help."""
    copy_with(tmp_path, "Add an option to a command")
    run_tests(
        *(tmp_path, "tests/cli/data/test_groups_and_reviews.py", "tests/cli/data/test_help.py"),
        *("-k", "a_limit or (test_help and groups)"),
    )


@pytest.mark.extended
def test_the_examples_of_changes_have_correct_types(tmp_path: Path) -> None:
    """Applied one after another, they do not disturb each other."""
    copy_with(tmp_path, *RECIPES)
    run_module(tmp_path, "mypy", "--cache-dir", str(tmp_path / "cache"))


def run_module(folder: Path, *arguments: str) -> str:
    """Run a module in a copy of the project. Return what it prints."""
    variables = environment(PYTHONPATH=str(folder / "src"))
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_prints_its_version() -> None:
    told = gleanery("--version")
    assert (told.returncode, told.stdout.strip()) == (0, __version__)
