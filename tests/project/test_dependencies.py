"""Dependencies: all are needed, pinned, and checked for known vulnerabilities."""

from __future__ import annotations

import ast
import json
import re
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gleanery.cli.commands import SERVER_MODULES
from tests.support.process import environment, free_port

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME, EXTRAS = PROJECT["project"]["dependencies"], PROJECT["project"]["optional-dependencies"]
PIN_FILES = (
    *("constraints.txt", "constraints-build.txt"),
    *("constraints-bench.txt", "constraints-generators.txt"),
    "constraints-session-tools.txt",
)
OURS = {"gleanery", "tests", "bench", "faults", "fuzz", "checks", "examples"}
BY_VERSION = {"backports"} if sys.version_info >= (3, 14) else {"compression"}
"""Modules that the source imports only on another version of Python."""
FOR_TESTS = ("dev", "extended")
FOR_TESTS_ONLY = [text for name in FOR_TESTS for text in EXTRAS[name]]
NOT_YET = {"pandas", "polars"}
"""Dependencies of parts of the client that do not exist yet."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirements: Iterable[str]) -> set[str]:
    return {canonical(Requirement(text).name) for text in requirements}


def pins(file: str) -> dict[str, str]:
    """Name and version on each line; there is nothing else in the file."""
    lines = (ROOT / file).read_text().splitlines()
    found = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    assert all(found), file
    return {canonical(match[1]): match[2] for match in found if match is not None}


# --- imports -------------------------------------------------------------------------------------


def imported(*folders: str) -> set[str]:
    """Third-party distributions that the modules in these folders import."""
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    modules = {name for file in files for name in imports_of(file)}
    modules -= OURS | sys.stdlib_module_names | BY_VERSION
    known = metadata.packages_distributions()
    assert modules <= known.keys()
    return {canonical(known[module][0]) for module in modules}


def imports_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        yield from imports_in(node)


def imports_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module.partition(".")[0]


def for_users() -> set[str]:
    """Packages that the source needs, with all extras."""
    extras = [text for name, texts in EXTRAS.items() if name not in FOR_TESTS for text in texts]
    return named([*RUNTIME, *extras]) - {"gleanery"}


@pytest.mark.extended
def test_every_import_is_a_declared_dependency() -> None:
    assert imported("src") <= for_users()
    assert imported("tests", "faults", "checks") <= for_users() | named(FOR_TESTS_ONLY)


def test_the_command_line_knows_the_modules_of_the_extra_server() -> None:
    names = [Requirement(text).name for text in EXTRAS["server"]]
    assert {name.replace("-", "_").partition(".")[0] for name in names} == SERVER_MODULES


@pytest.mark.extended
def test_every_dependency_is_imported() -> None:
    assert for_users() <= imported("src") | NOT_YET


ON_FIRST_USE = {"obstore", "pandas", "polars", "pyarrow"} | BY_VERSION | {"backports"}
"""Modules of extras and of other Pythons, which functions of the client import."""


@pytest.mark.parametrize("folder", ["client", "cli/data"])
def test_the_client_needs_only_the_base_install(folder: str) -> None:
    at_start = OURS | sys.stdlib_module_names | {name.replace("-", "_") for name in named(RUNTIME)}
    for file in (ROOT / "src/gleanery" / folder).rglob("*.py"):
        assert set(imports_at_start(ast.parse(file.read_text()))) <= at_start, file
        assert set(imports_of(file)) <= at_start | ON_FIRST_USE, file


def imports_at_start(node: ast.AST) -> Iterator[str]:
    """Modules that an import of this module imports: not those in functions, or for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from imports_in(child)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        ):
            yield from imports_at_start(child)


# --- constraints ---------------------------------------------------------------------------------


def surroundings() -> Iterator[dict[str, str]]:
    """Supported Python versions and systems, as environment markers."""
    for version in ("3.11.0", "3.11.3", "3.12.0", "3.13.0", "3.14.0"):
        for platform, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")):
            yield {
                "python_full_version": version,
                "python_version": version.rpartition(".")[0],
                "sys_platform": platform,
                "platform_system": platform.capitalize(),
                "platform_machine": machine,
                "os_name": "posix",
                "implementation_name": "cpython",
                "platform_python_implementation": "CPython",
            }


def needed() -> set[str]:
    """All packages of any install. Packages that are missing here add no dependencies."""
    return {name for place in surroundings() for name in brought_along(place)} - {"gleanery"}


def brought_along(place: dict[str, str]) -> set[str]:
    found, to_do = set(), [("gleanery", frozenset({"extended"}))]
    while to_do:
        one = to_do.pop()
        if one not in found:
            found.add(one)
            to_do += wanted(*one, place)
    return {name for name, _ in found}


def wanted(
    name: str, extras: frozenset[str], place: dict[str, str]
) -> Iterator[tuple[str, frozenset[str]]]:
    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for requirement in map(Requirement, texts):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**place, "extra": e}) for e in ("", *extras)):
            yield canonical(requirement.name), frozenset(requirement.extras)


@pytest.mark.extended
def test_exactly_the_packages_of_an_install_are_pinned() -> None:
    assert pins("constraints.txt").keys() == needed() - {"pip"}  # pip itself comes with Python


def test_build_dependencies_are_pinned() -> None:
    built_with, beside = pins("constraints-build.txt"), pins("constraints.txt")
    assert named(PROJECT["build-system"]["requires"]) <= built_with.keys()
    for name in (
        built_with.keys() & beside.keys()
    ):  # older versions of pip apply both files to a build
        assert built_with[name] == beside[name]


def test_the_peers_are_pinned() -> None:
    recipe = (ROOT / "Makefile").read_text().split("$(VENV)-bench/.made: constraints-bench.txt")[1]
    peers = recipe.split("$(WHEELS) \\\n")[1].split("\n")[0].replace("'", "").split()
    assert "fastapi" in peers
    assert named(peers) <= pins("constraints-bench.txt").keys()


def test_the_generators_are_pinned() -> None:
    assert "openapi-python-client" in pins("constraints-generators.txt")


@pytest.mark.parametrize("folder", [ROOT / "tests/generators", ROOT / "tests/slow/puppeteer"])
def test_npm_packages_are_pinned_without_a_registry(folder: Path) -> None:
    lock = json.loads((folder / "package-lock.json").read_text())["packages"]
    wanted = json.loads((folder / "package.json").read_text())["devDependencies"]
    for name, version in wanted.items():
        assert lock[f"node_modules/{name}"]["version"] == version
    assert not any("resolved" in package for package in lock.values())
    assert all("integrity" in package for name, package in lock.items() if name)


def test_the_tools_of_the_connectors_are_pinned() -> None:
    tap = tomllib.loads((ROOT / "integrations/singer/pyproject.toml").read_text())
    recipe = (ROOT / "Makefile").read_text().split("bin/$(PIP) $(WHEELS) airbyte-cdk")[1]
    tools = ["airbyte-cdk", *recipe.split("\n")[0].split()]
    assert named(tap["project"]["dependencies"]) <= named(tools)
    assert named(tools) <= pins("constraints-integrations.txt").keys()


def test_the_schedulers_are_pinned() -> None:
    recipe = (ROOT / "Makefile").read_text().split("$(VENV)-schedulers/bin/$(PIP) $(WHEELS)")[1]
    tools = recipe.split("\n")[0].split()
    assert "dagster" in tools
    assert named(tools) <= pins("constraints-schedulers.txt").keys()


def test_the_tools_that_use_sessions_are_pinned() -> None:
    recipe = (ROOT / "Makefile").read_text().split("$(VENV)-session-tools/bin/$(PIP) $(WHEELS)")[1]
    tools = recipe.split("\n")[0].split()
    assert "scrapy" in tools
    assert named(tools) <= pins("constraints-session-tools.txt").keys()


# --- advisories ----------------------------------------------------------------------------------


class Advisories(ThreadingHTTPServer):
    """Fake advisory service: some versions have vulnerabilities."""

    def __init__(self, vulnerable: str = "", status: int = 200, then: int | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.vulnerable = vulnerable
        self.statuses = [status, status if then is None else then]
        self.asked: set[tuple[str, str]] = set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1/query"


class _Answer(BaseHTTPRequestHandler):
    server: Advisories

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = query["package"]["name"]
        status = self.server.statuses[bool(self.server.asked)]
        self.server.asked.add((name, query["version"]))
        answer = {"vulns": [advisory(name)]} if name == self.server.vulnerable else {}
        body = json.dumps(answer).encode() if status == 200 else b"<p>Not from here</p>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def advisory(name: str) -> dict[str, object]:
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "999"}]}]
    affected = [{"package": {"name": name, "ecosystem": "PyPI"}, "ranges": ranges}]
    return {"id": "PYSEC-2026-1", "summary": "Opens the door", "affected": affected}


@contextmanager
def answering(server: Advisories) -> Iterator[Advisories]:
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def look_up(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "checks/advisories.py"],
        cwd=ROOT,
        env=environment(PIP_AUDIT_OSV_URL=url, NO_PROXY="127.0.0.1"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.extended
def test_every_pin_is_looked_up() -> None:
    with answering(Advisories()) as server:
        done = look_up(server.url)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.count("No known vulnerabilities found") == len(PIN_FILES)
    assert {pin for file in PIN_FILES for pin in pins(file).items()} <= server.asked


@pytest.mark.extended
def test_a_known_vulnerability_fails_the_check() -> None:
    with answering(Advisories("hatchling")) as server:  # pinned in the second file
        done = look_up(server.url)
    assert done.returncode == 1
    assert "PYSEC-2026-1" in done.stdout


@pytest.mark.extended
@pytest.mark.thorough
def test_an_advisory_service_that_fails_midway_fails_the_check() -> None:
    with answering(Advisories(then=500)) as server:
        assert look_up(server.url).returncode == 1


@pytest.mark.extended
@pytest.mark.thorough
@pytest.mark.parametrize("status", [403, 404, 502, 203])
def test_an_unexpected_response_of_the_advisory_service_skips_the_check(status: int) -> None:
    with answering(Advisories(status=status)) as server:
        done = look_up(server.url)
    assert_not_audited(done, server.url)
    assert len(server.asked) == 1


@pytest.mark.extended
@pytest.mark.thorough
def test_an_unreachable_advisory_service_skips_the_check() -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    assert_not_audited(look_up(url), url)
    assert_not_audited(look_up("http://advisories.invalid/"), "http://advisories.invalid/")


@pytest.mark.extended
@pytest.mark.thorough
def test_an_advisory_service_that_does_not_respond_skips_the_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert_not_audited(look_up(url), url)


def assert_not_audited(done: subprocess.CompletedProcess[str], url: str) -> None:
    assert done.returncode == 0
    assert done.stderr.startswith(f"not audited: {url} can't be reached (")
    assert len(done.stderr.splitlines()) == 1
