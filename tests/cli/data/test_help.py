"""Help of the commands on data: examples that work as written, and a page with every option."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click import Context, Group

from gleanery.cli.commands import DATA_COMMANDS, load
from tests.support.process import environment, gleanery_in_process

PAGE = (Path(__file__).parents[3] / "docs/command-line.md").read_text()


def commands(name: str) -> Iterator[tuple[list[str], Any]]:
    """The command, or its subcommands."""
    command = load(name)
    if isinstance(command, Group):
        for child in command.list_commands(Context(command)):
            yield [name, child], command.commands[child]
    else:
        yield [name], command


def examples(help_: str) -> list[str]:
    return re.findall(r"^\s*\$ (.*?)\s*$", help_.partition("Examples:")[2], re.MULTILINE)


@pytest.mark.parametrize("name", DATA_COMMANDS)
def test_every_help_has_examples(name: str) -> None:
    for path, command in commands(name):
        help_ = gleanery_in_process(*path, "--help", COLUMNS="100", TERM="dumb").stdout
        found = examples(help_)
        assert 1 <= len(found) <= 4, path
        assert "\x1b" not in help_
        for example in found:
            check_example(example, path, command)


@pytest.mark.parametrize("name", DATA_COMMANDS)
def test_every_help_is_readable_on_a_narrow_terminal(name: str) -> None:
    for path, _ in commands(name):
        help_ = gleanery_in_process(*path, "--help", COLUMNS="80").stdout
        assert "…" not in help_
        assert max(map(len, help_.partition("Examples:")[0].splitlines())) <= 80
        options = re.findall(r"^  (?:-\w, )?--.*\n(?: {10}.*\n)*", help_, re.MULTILINE)
        assert len(options) >= 1
        for option in options:
            assert option.count("\n") <= 6, option


def test_the_help_shows_brackets() -> None:
    help_ = gleanery_in_process("export", "--help", COLUMNS="100").stdout
    assert "gleanery[parquet]" in help_
    assert "gleanery[s3]" in help_


IMPORTED = "import sys; from gleanery.cli import main\ntry: main()\nfinally: print(*sys.modules)"


@pytest.mark.thorough
@pytest.mark.parametrize("name", DATA_COMMANDS)
def test_the_help_imports_no_library_that_takes_long(name: str) -> None:
    program = [sys.executable, "-c", IMPORTED, name, "--help"]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment())
    modules = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "click" in modules
    assert not modules & {"httpx2", "pyarrow", "obstore", "asyncio", "apsw"}


def check_example(example: str, path: list[str], command: Any) -> None:
    """Parses the example as the command does. A wrong option raises an error."""
    [line] = [part for part in re.split(r"\s*\|\s*", example) if part.startswith("gleanery ")]
    words = shlex.split(re.split(" [<>] ", line)[0])
    assert words[1 : 1 + len(path)] == path
    context = Context(command, info_name=path[-1])
    command.parse_args(context, words[1 + len(path) :])


@pytest.mark.parametrize("name", DATA_COMMANDS)
def test_every_option_is_documented(name: str) -> None:
    for _, command in commands(name):
        for parameter in command.params:
            long = [option for option in parameter.opts if option.startswith("--")]
            for option in set(long) - {"--help"}:
                assert f"`{option}`" in PAGE, option


@pytest.mark.parametrize("name", DATA_COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    assert re.search(rf"^\| `gleanery {name}[ `]", PAGE, re.MULTILINE)
