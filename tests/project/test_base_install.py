"""Base install: the wheel without extras, in an environment of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path
from venv import EnvBuilder

import pytest

from gleanery.service.console.assets import read_sources
from tests.support.process import environment

ROOT = Path(__file__).parents[2]
PINS = {"PIP_CONSTRAINT": "constraints.txt constraints-build.txt"}
BUILD_PINS = {"PIP_BUILD_CONSTRAINT": "constraints-build.txt"}
MAX_DISTRIBUTIONS, MAX_BYTES = 12, 16 * 1024**2
SENTENCE = "needs the service: pip install 'gleanery[server]'"
LIBRARY = "from gleanery import Client"
NOT_IMPORTED = {"click", "httpx2", "msgspec"}
_IMPORT = f"""
import sys, time
start = time.process_time()
{LIBRARY}
milliseconds = round((time.process_time() - start) * 1000)
from gleanery import AsyncClient
print(milliseconds, *sys.modules)
"""


def pip(*arguments: str) -> None:
    """Run pip as the Makefile does: only wheels, and only pinned versions."""
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        cwd=ROOT,
        env=environment(**PINS, **BUILD_PINS),
        check=True,
        timeout=600,
    )


def build_wheel(folder: Path) -> Path:
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), ".")
    [file] = folder.iterdir()
    return file


def install(wheel: Path, folder: Path) -> Path:
    """Create an environment that contains only the base install."""
    EnvBuilder().create(folder)
    pip("--python", str(folder), "install", "--only-binary", ":all:", str(wheel))
    return folder


def run(installed: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment, without the modules of this one."""
    variables = environment(PYTHONPATH="")
    return subprocess.run(
        [str(installed / "bin" / command[0]), *command[1:]],
        cwd=installed,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.thorough
def test_the_base_install(tmp_path: Path) -> None:
    """One test, because several processes of pytest would each install it."""
    wheel = build_wheel(tmp_path / "wheel")
    check_that_the_wheel_is_pure_python(wheel)
    check_that_the_wheel_has_the_console(wheel)
    installed = install(wheel, tmp_path / "venv")
    check_that_it_is_small(installed)
    check_that_the_library_imports_the_rest_on_first_use(installed)
    check_that_the_help_lists_all_commands(installed)
    for line in ("serve", "serve --help", "demo", "token list", "keys --help"):
        check_that_the_command_says_what_to_install(installed, line.split())


def check_that_the_wheel_is_pure_python(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "gleanery/py.typed" in names
    assert not [name for name in names if name.endswith((".so", ".pyd", ".pyc"))]


def check_that_the_wheel_has_the_console(wheel: Path) -> None:
    """In one archive, which takes less space than its files."""
    name = "gleanery/service/console/browser.zip"
    with zipfile.ZipFile(BytesIO(zipfile.ZipFile(wheel).read(name))) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert found == dict(read_sources())


def check_that_it_is_small(installed: Path) -> None:
    [packages] = installed.glob("lib/python*/site-packages")
    names = [one.name for one in metadata.distributions(path=[str(packages)])]
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
    print(f"{len(names)} distributions, {size / 1024**2:.1f} MiB")
    assert len(names) <= MAX_DISTRIBUTIONS, names
    assert size <= MAX_BYTES
    assert [*packages.rglob("*.pyc")], "compiled modules count"


def check_that_the_library_imports_the_rest_on_first_use(installed: Path) -> None:
    done = run(installed, "python", "-c", _IMPORT)
    assert done.returncode == 0, done.stderr
    milliseconds, *modules = done.stdout.split()
    print(f"{LIBRARY}: {milliseconds} ms of CPU")
    assert not NOT_IMPORTED & set(modules)


def check_that_the_help_lists_all_commands(installed: Path) -> None:
    done = run(installed, "gleanery", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"^  (serve|token) ", done.stdout, re.MULTILINE) == ["serve", "token"]


def check_that_the_command_says_what_to_install(installed: Path, line: list[str]) -> None:
    done = run(installed, "gleanery", *line)
    assert (done.returncode, done.stdout) == (2, ""), line
    assert done.stderr == f"gleanery: {line[0]} {SENTENCE}\n"
