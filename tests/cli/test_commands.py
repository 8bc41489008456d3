"""Table of commands: it names each command with its own words, and imports none for the help."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gleanery.cli.commands import DATA_COMMANDS, SERVICE_COMMANDS, load
from tests.support.process import environment, gleanery, gleanery_in_process

_MODULES_OF_THE_HELP = """
import sys
from gleanery.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("name", [*DATA_COMMANDS, *SERVICE_COMMANDS])
def test_the_table_has_the_first_words_of_each_help(name: str) -> None:
    summary = {**DATA_COMMANDS, **SERVICE_COMMANDS}[name].summary
    assert load(name).help.split("\n\n")[0].replace("\n", " ") == summary


def test_the_help_lists_every_command() -> None:
    told = gleanery_in_process("--help").stdout
    listed = re.findall(r"^  (\w+)", told, re.MULTILINE)
    assert listed == [*DATA_COMMANDS, *SERVICE_COMMANDS]


@pytest.mark.thorough
def test_the_help_imports_no_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MODULES_OF_THE_HELP, "--help"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    packages = (
        "gleanery.cli.service.",
        "gleanery.cli.data.",
        "gleanery.service.storage",
        "gleanery.service.api",
    )
    assert not [module for module in done.stderr.split() if module.startswith(packages)]


_MISSING = "raise ModuleNotFoundError(\"No module named 'apsw'\", name='apsw')"


def with_apsw(folder: Path, text: str, *arguments: str, **variables: str) -> tuple[int, str]:
    """Status and messages of a command that finds this module instead of the installed apsw."""
    (folder / "apsw.py").write_text(text)
    path = os.pathsep.join([str(folder), *sys.path])
    ended = gleanery(*arguments, PYTHONPATH=path, **variables)
    return ended.returncode, ended.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("line", ["serve", "serve --help", "token list", "backup --help"])
def test_a_command_of_the_service_without_its_packages_says_so(tmp_path: Path, line: str) -> None:
    told = with_apsw(tmp_path, _MISSING, *line.split())
    name = line.split()[0]
    assert told == (2, f"gleanery: {name} needs the service: pip install 'gleanery[server]'\n")


@pytest.mark.thorough
def test_a_warning_needs_no_packages_of_the_service(tmp_path: Path) -> None:
    status, told = with_apsw(tmp_path, _MISSING, "--version", GLEANERY_XYZZY="1")
    assert status == 0
    assert told.startswith("gleanery: warning: unknown variable GLEANERY_XYZZY")


@pytest.mark.thorough
@pytest.mark.parametrize("text", ["import no_such_module", "import gleanery.no_such_module"])
def test_another_failed_import_shows_its_traceback(tmp_path: Path, text: str) -> None:
    status, told = with_apsw(tmp_path, text, "serve")
    assert status == 2
    assert told.startswith("Traceback")
    assert "no_such_module" in told


@pytest.mark.thorough
def test_on_windows_a_command_of_the_service_says_that_it_needs_another_system() -> None:
    program = "import sys; from gleanery.cli import main; sys.platform = 'win32'; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "serve"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    needs = "serve needs Linux or macOS: the service does not run on Windows"
    assert (ended.returncode, ended.stderr) == (2, f"gleanery: {needs}\n")
