"""Table of commands: it names each command with its own words, and imports none for the help."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from gleanery.cli.commands import DATA_COMMANDS, SERVICE_COMMANDS, load
from tests.support.process import environment, gleanery_in_process

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
    listed = re.findall(r"^│ (\w+)", told, re.MULTILINE)
    assert listed == [*DATA_COMMANDS, *SERVICE_COMMANDS]


def test_the_help_imports_no_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MODULES_OF_THE_HELP, "--help"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    packages = ("gleanery.cli.service.", "gleanery.cli.data.", "gleanery.storage", "gleanery.api")
    assert not [module for module in done.stderr.split() if module.startswith(packages)]
