"""Second part of ``make fuzz``: runs each target under atheris and prints the results.

atheris is guided by coverage: it keeps and mutates the inputs that reach new code. The folder
``.fuzz`` stores this corpus, so that the next run continues from it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

SECONDS = int(os.environ.get("GLEANERY_FUZZ_SECONDS", "60"))
_MAX_INPUT_BYTES = 2048
_INPUT_TIMEOUT = 25  # seconds; an input that takes longer is a failure
_CORPUS = Path(".fuzz")
_NO_ATHERIS = (
    "atheris is not installed: coverage-guided fuzzing is skipped. There are wheels for x86-64; "
    "on other machines pip builds it, and CLANG_BIN must name a clang with libFuzzer."
)


def main() -> int:
    arguments = _parse_arguments()
    if find_spec("atheris") is None:
        print(_NO_ATHERIS)
        return 0
    if arguments.in_process:
        _fuzz(arguments.in_process)
    from fuzz.targets import TARGETS

    if unknown := set(arguments.targets) - TARGETS.keys():
        sys.exit(f"unknown target: {', '.join(sorted(unknown))}; choose from {', '.join(TARGETS)}")
    return sum([_run_target(name) for name in arguments.targets or TARGETS])


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz",
        description="Run the fuzz targets under atheris and print the results.",
    )
    parser.add_argument("targets", nargs="*", help="targets to run (default: all)")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)  # the target of a child process
    return parser.parse_args()


def _run_target(name: str) -> bool:
    """Run one target in a child process and return True if it failed."""
    start = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-m", "fuzz", "--in-process", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    runs = re.findall(r"stat::number_of_executed_units: +(\d+)", run.stdout)
    coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", run.stdout)
    edges, features, inputs = coverage[-1] if coverage else ("?", "?", "?")
    print(
        f"{name:<18} {int(runs[-1]) if runs else 0:>9,} runs in {time.monotonic() - start:.0f} s, "
        f"{edges} edges, {features} features, {inputs} inputs in the corpus: "
        + ("FAILED" if run.returncode else "passed"),
        flush=True,
    )
    if run.returncode:
        print(run.stdout[-4000:])
    return run.returncode != 0


def _fuzz(name: str) -> None:
    import atheris

    with atheris.instrument_imports(include=["gleanery", "idna", "puremagic"]):
        from fuzz.targets import TARGETS
    target = TARGETS[name]
    corpus = _CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = (
        *(f"-max_total_time={SECONDS}", f"-max_len={_MAX_INPUT_BYTES}"),
        *(f"-timeout={_INPUT_TIMEOUT}", "-print_final_stats=1"),
        f"-artifact_prefix={_CORPUS}/found-{name}-",
    )
    atheris.Setup([sys.argv[0], *options, str(corpus)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
