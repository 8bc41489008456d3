"""Runs the tests of the client, and a smoke test of the service, on every Python that it finds.

Each version has its own environment in ``.venv-pythons``. Arguments choose versions, as in
``make pythons ARGS="3.12 3.13"``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
ENVIRONMENTS = ROOT / ".venv-pythons"
PINS = ("constraints.txt", "constraints-build.txt")
TESTS = (
    "tests/client",
    "tests/cli/data",
    "tests/cli/test_commands.py",
    "tests/cli/test_serve.py::test_workers_share_a_database_and_metrics",
)


def main(chosen: list[str]) -> int:
    """Return 0 if the tests pass on all versions that are found, and one is found."""
    if unknown := [version for version in chosen if version not in VERSIONS]:
        print(f"Not supported: {', '.join(unknown)}. Choose from {', '.join(VERSIONS)}.")
        return 2
    programs = {version: find(version) for version in chosen or VERSIONS}
    for version, program in programs.items():
        print(f"Python {version}: {program or 'not found'}", flush=True)
    found = {version: program for version, program in programs.items() if program is not None}
    results = {version: passes(version, program) for version, program in found.items()}
    for version, is_passed in results.items():
        print(f"Python {version}: {'passed' if is_passed else 'FAILED'}")
    return 0 if results and all(results.values()) else 1


def find(version: str) -> Path | None:
    """Return the program of this version on the PATH or in pyenv; None if there is none."""
    return next((program for program in _programs(version) if _runs(program, version)), None)


def _programs(version: str) -> Iterator[Path]:
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield Path(on_path)
    yield from sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))


def _runs(program: Path, version: str) -> bool:
    """Run the program: one that pyenv puts on the PATH can be a version that is not active."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    ended = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    return ended.stdout.strip() == version


def passes(version: str, program: Path) -> bool:
    """Run the tests on this version. An install that fails is a failure of this version only."""
    environment = ENVIRONMENTS / version
    try:
        if not _is_current(environment):
            _install(program, environment)
    except subprocess.CalledProcessError:
        return False
    print(f"Testing with Python {version} …", flush=True)
    tests = [name for name in TESTS if (ROOT / name.partition("::")[0]).exists()]
    pytest = [environment / "bin/python", "-m", "pytest", "-q", "-n", "4", *tests]
    return subprocess.run(pytest, cwd=ROOT, check=False).returncode == 0


def _is_current(environment: Path) -> bool:
    made = environment / ".made"
    sources = [ROOT / name for name in ("pyproject.toml", *PINS)]
    return made.exists() and made.stat().st_mtime > max(file.stat().st_mtime for file in sources)


def _install(program: Path, environment: Path) -> None:
    print(f"Installing what the tests need into {environment.relative_to(ROOT)} …", flush=True)
    subprocess.run([program, "-m", "venv", "--clear", environment], check=True)
    pip = [environment / "bin/pip", "--quiet", "--disable-pip-version-check", "install"]
    pins = [text for name in PINS for text in ("--constraint", name)]
    what = ["--only-binary", ":all:", *pins, "--editable", ".[extended]"]
    subprocess.run([*pip, *what], cwd=ROOT, check=True)
    (environment / ".made").touch()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
