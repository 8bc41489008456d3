"""Runs the guides in docs/operations as written, on a folder that stands for a machine.

A console block holds commands. Every other block is a file; the paragraph before the block ends
with the path of the file and a colon. Only the declared texts are replaced.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.examples import Example, examples_of_block, is_shown
from tests.support.process import environment, free_port

GUIDES = Path(__file__).parent.parent.parent / "docs" / "operations"
STAND_INS = Path(__file__).parent / "stand_ins"
HOST = "data.example.com"
SEARCH_PATH = f"{os.environ['PATH']}:/usr/sbin"
FOLDERS = re.compile(r"(?<![\w.:/}-])/(etc|home|opt|root|run|srv|tmp|usr/local|var)(?=[/\s\"'])")
TIMEOUT_SECONDS = 300
_BLOCK = re.compile(r"(?P<before>[^\n]*)\n+^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_SIGHUP = "/bin/kill -HUP $MAINPID"
_FILE = re.compile(r"`(/[^`]+)`:$")
_FOLDERS_OF_A_MACHINE = (
    *("bin", "run", "tmp", "var/backups", "var/lib", "usr/local/bin"),
    *("etc/gleanery", "etc/systemd/system", "lib/systemd/system"),
)


class File(NamedTuple):
    """A file that a guide shows."""

    path: str
    text: str


Step = Example | File


def steps(guide: str, *headings: str) -> Iterator[Step]:
    """Commands and files of a guide in their order, or only those under some headings.

    The part before the first heading has an empty one.
    """
    text = (GUIDES / guide).read_text()
    assert text.count("```") == 2 * len(_BLOCK.findall(text)), f"{guide} has an indented block"
    for heading, section in _sections(text):
        if not headings or heading in headings:
            for block in _BLOCK.finditer(section):
                yield from _steps_of_block(guide, block)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    first, *others = re.split(r"^## ", text, flags=re.M)
    yield "", first
    for section in others:
        yield section.partition("\n")[0], section


def _steps_of_block(guide: str, block: re.Match[str]) -> Iterator[Step]:
    if block["language"] == "console":
        yield from examples_of_block(block["text"])
        return
    named = _FILE.search(block["before"])
    assert named, f"{guide}: the text before a block does not end with a path: {block['before']}"
    yield File(named[1], block["text"])


class Machine:
    """A folder with the files of a machine, and the programs that an operator calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ports = {number: free_port() for number in (80, 443, 6379, 8000, 8001, 9090)}
        self.replacements: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.search_path = ""
        self.certificate = root / f"etc/letsencrypt/live/{HOST}/fullchain.pem"
        self.key = self.certificate.with_name("privkey.pem")
        self._bin = root / "bin"
        for folder in (
            "bin",
            "run",
            "etc/systemd/system",
            "lib/systemd/system",
            "opt/gleanery/bin",
        ):
            (root / folder).mkdir(parents=True)
        for folder in ("usr/local/bin", "var/backups", "var/lib", "etc/gleanery", "tmp"):
            (root / folder).mkdir(parents=True)
        self._add_programs()
        self._add_certificate()

    def _add_programs(self) -> None:
        for name in ("sudo", "journalctl"):
            shutil.copy(STAND_INS / name, self._bin / name)
        for name in ("systemctl", "docker"):
            self.add_program(f"bin/{name}", sys.executable, str(STAND_INS / f"{name}.py"))
        for name in (
            "gleanery/bin/gleanery",
            "gleanery/bin/hypercorn",
            "gleanery-next/bin/gleanery",
        ):
            self.add_program(f"opt/{name}", sys.executable, "-m", Path(name).name)

    def add_program(self, path: str, *command: str) -> None:
        """Writes a program that calls a command with its own arguments."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        file.chmod(0o755)

    def _add_certificate(self) -> None:
        """Gives the host a certificate, and lets curl reach it on the ports of the test."""
        self.certificate.parent.mkdir(parents=True)
        files = ("-out", self.certificate, "-keyout", self.key)
        names = ("-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}")
        kind = ("-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        subprocess.run(["openssl", "req", *kind, *names, *files], check=True, capture_output=True)
        lines = [
            f"connect-to = {HOST}:{port}:127.0.0.1:{free}" for port, free in self.ports.items()
        ]
        lines.append(f"cacert = {self.certificate}")
        (self.root / ".curlrc").write_text("\n".join(lines) + "\n")

    def add_unit(self, name: str, command: str, port: int = 0, reload: str = _SIGHUP) -> None:
        """Writes the unit of a package. It has started when it listens on the port."""
        text = f"[Service]\nExecStart={command}\nExecReload={reload}\nX-Port={port}\n"
        (self.root / f"lib/systemd/system/{name}.service").write_text(text)

    def translate(self, text: str) -> str:
        """Replaces the folders of the machine, and the declared texts."""
        text = FOLDERS.sub(lambda found: f"{self.root}{found[0]}", text)
        for shown, used in self.replacements.items():
            text = text.replace(shown, used)
        return text

    def run(self, chosen: list[Step]) -> None:
        """Runs the commands in one shell, and compares their output with the guide."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", "\n".join(map(self._script, chosen))],
            cwd=self.root / "tmp",
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        *printed, rest = done.stdout.split("\0")
        for step, output in zip(chosen, printed, strict=False):
            if isinstance(step, Example) and step.output:
                assert is_shown(output, self.translate(step.output)), (step, output)
        failed = chosen[len(printed) :][:1]
        assert done.returncode == 0, (failed, rest, done.stderr, self.logs())

    def output_of(self, command: str) -> str:
        """Runs one command, whatever its status is, and returns what it prints."""
        done = subprocess.run(
            ["bash", "-c", self.translate(command)],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return done.stdout

    def _script(self, step: Step) -> str:
        if isinstance(step, Example):
            return self.translate(f"{step.command}\n") + "printf '\\0'"
        path = Path(self.translate(step.path))
        text = self.translate(step.text)
        return (
            f"mkdir -p {path.parent}\ncat > {path} <<'END_OF_FILE'\n{text}END_OF_FILE\nprintf '\\0'"
        )

    def _environment(self) -> Mapping[str, str]:
        usual = f"{environment()['PATH']}:/usr/sbin"
        path = f"{self._bin}:{self.root}/usr/local/bin:{self.search_path}:{usual}"
        own = {"PATH": path, "MACHINE_ROOT": str(self.root), "CURL_HOME": str(self.root)}
        return environment(**own, **self.variables)

    def logs(self) -> str:
        """Log of every unit."""
        return "".join(file.read_text() for file in (self.root / "run").glob("*.log"))

    def stop(self) -> None:
        """Stops every unit and every container that runs."""
        for unit in (self.root / "lib/systemd/system", self.root / "etc/systemd/system"):
            for file in unit.glob("*.service"):
                self.systemctl("stop", file.stem)
        for file in (self.root / "run").glob("*.container"):
            self._call("docker", "stop", file.stem)

    def systemctl(self, *words: str) -> None:
        self._call("systemctl", *words)

    def _call(self, program: str, *words: str) -> None:
        subprocess.run([self._bin / program, *words], env=self._environment(), check=True)


def require_programs(*names: str) -> None:
    """Skips the test if a program is missing; ``make guides`` lets it fail instead."""
    missing = [name for name in names if shutil.which(name, path=SEARCH_PATH) is None]
    if missing:
        reason = f"needs {', '.join(missing)}: run make guides"
        assert "GLEANERY_ALL_GUIDES" not in os.environ, reason
        pytest.skip(reason)
