"""Completion of commands and options in shells: the scripts are Click's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from gleanery.common.errors import SettingsError

_PROGRAM = "gleanery"
_VARIABLE = "_GLEANERY_COMPLETE"
_SHELLS = {
    "bash": "bash",
    "zsh": "zsh",
    "fish": "fish",
    "pwsh": "powershell",
    "powershell": "powershell",
}
"""Click's names of shells by the names of their programs."""
_MAX_PARENTS = 10


def script() -> str:
    """Return the script for the shell that runs this command."""
    return _script(_find_shell())


def install() -> str:
    """Store the script where the shell that runs this command finds it. Return what was done."""
    program = _find_shell()
    file = _install(program, _script(program))
    return f"The completion for {program} is in {file}. Start a new shell to use it."


def _script(program: str) -> str:
    shell = get_completion_class(_SHELLS[program])
    if shell is None:
        raise SettingsError(f"There is no completion for {program}: upgrade the package click")
    return shell(click.Command(_PROGRAM), {}, _PROGRAM, _VARIABLE).source()


def _install(program: str, script: str) -> Path:
    """Store the script, and return its file."""
    home = Path.home()
    if program == "fish":
        return _write(home / ".config/fish/completions/gleanery.fish", script)
    if program == "bash":
        file = _write(home / ".bash_completions/gleanery.sh", script)
        _add_line(home / ".bashrc", f"source '{file}'")
        return file
    if program == "zsh":
        file = _write(home / ".zfunc/_gleanery", script)
        _add_line(home / ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit")
        return file
    command = [program, "-NoProfile", "-Command", "echo $PROFILE"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    profile = Path(answer.stdout.strip())
    _add_line(profile, script)
    return profile


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def _add_line(file: Path, line: str) -> None:
    """Add a line to the end of a file that does not have it."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if line not in text:
        separator = "\n" if text and not text.endswith("\n") else ""
        _write(file, f"{text}{separator}{line}\n")


# --- the shell ----------------------------------------------------------------------------------


def _find_shell() -> str:
    """Return the nearest shell among the parents of this process, else the user's shell."""
    if sys.platform == "win32":
        return "pwsh" if "POWERSHELL_DISTRIBUTION_CHANNEL" in os.environ else "powershell"
    for name in (*_parents(), os.environ.get("SHELL", "")):
        program = Path(name.lstrip("-")).name  # a login shell has a hyphen before its name
        if program in _SHELLS:
            return program
    raise SettingsError("The shell is not known: run the command in bash, zsh, fish or PowerShell")


def _parents() -> Iterator[str]:
    """Yield the names of the programs that have started this one, the nearest first."""
    process = os.getppid()
    for _ in range(_MAX_PARENTS):
        command = ["ps", "-o", "ppid=", "-o", "comm=", "-p", str(process)]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        except (OSError, subprocess.CalledProcessError):  # ps is not installed, or process 0
            return
        parent, _, name = answer.stdout.strip().partition(" ")
        yield name.strip()
        process = int(parent)
