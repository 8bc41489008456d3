"""Shell completion, as bash asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gleanery.cli.commands import DATA_COMMANDS, SERVICE_COMMANDS
from tests.support.process import environment

_SCRIPT = """
eval "$(gleanery --show-completion 2>/dev/null)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_gleanery_completion gleanery
printf '%s\\n' "${COMPREPLY[@]}"
"""

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed"),
]


def completions(*words: str, **variables: str) -> list[str]:
    """Words that bash offers for the last of these words. Nothing else appears on the terminal."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", _SCRIPT, "bash", *words],
        env=environment(PATH=path, **variables),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_are_completed() -> None:
    assert completions("gleanery", "") == [*DATA_COMMANDS, *SERVICE_COMMANDS]
    assert completions("gleanery", "org") == ["organization"]


def test_options_and_subcommands_are_completed() -> None:
    assert completions("gleanery", "token", "cr") == ["create"]
    assert completions("gleanery", "serve", "--po") == ["--pool-size", "--pooling", "--port"]


def test_completion_shows_no_warning() -> None:
    assert completions("gleanery", "org", GLEANERY_XYZZY="1") == ["organization"]


def test_completion_works_without_the_service(tmp_path: Path) -> None:
    (tmp_path / "apsw.py").write_text("raise ModuleNotFoundError(name='apsw')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    assert completions("gleanery", "ser", PYTHONPATH=path) == ["serve"]
    assert completions("gleanery", "serve", "--po", PYTHONPATH=path) == []


def in_bash(command: str, home: Path, **variables: str) -> str:
    """Runs a command of the program in bash, and returns what it prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit"],
        env=environment(PATH=path, HOME=str(home), **variables),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_completion_is_installed_once(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("alias ll='ls -l'")
    script = tmp_path / ".bash_completions" / "gleanery.sh"
    for _ in range(2):
        told = in_bash("gleanery --install-completion", tmp_path)
        assert told == f"The completion for bash is in {script}. Start a new shell to use it.\n"
    assert (tmp_path / ".bashrc").read_text() == f"alias ll='ls -l'\nsource '{script}'\n"
    assert script.read_text() == in_bash("gleanery --show-completion", tmp_path)


@pytest.mark.parametrize(
    ("shell", "words"),
    [("zsh", "#compdef gleanery"), ("fish", "function _gleanery_completion")],
)
def test_other_shells_have_their_own_script(tmp_path: Path, shell: str, words: str) -> None:
    """The program finds its shell by the name of a parent process."""
    (tmp_path / shell).symlink_to(str(shutil.which("bash")))
    told = in_bash(f"{tmp_path / shell} -c 'gleanery --show-completion; exit'", tmp_path)
    assert told.startswith(words)
