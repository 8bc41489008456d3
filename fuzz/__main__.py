"""``make fuzz``, second part: gives each target its time under atheris and prints what came of it.

Guided by coverage: bytes that reach new lines of ours are kept, and changed further. They stay in
``.fuzz``, so that the next run begins where this one ended.
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
_LONGEST = 2048  # bytes of one input
_SLOWEST = 25  # seconds for one input; above that it is a finding
_KEPT = Path(".fuzz")
_NO_ATHERIS = (
    "atheris is not installed, so nothing is guided by coverage. It has wheels for x86-64; "
    "elsewhere it is built, for which CLANG_BIN must name a clang that has libFuzzer."
)


def main() -> int:
    asked = _arguments()
    if find_spec("atheris") is None:
        print(_NO_ATHERIS)
        return 0
    if asked.alone:
        _fuzz(asked.alone)
    from fuzz.targets import TARGETS

    if unknown := set(asked.targets) - TARGETS.keys():
        sys.exit(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    return sum([_report(name) for name in asked.targets or TARGETS])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="which; else all")
    parser.add_argument("--alone", help=argparse.SUPPRESS)  # the one for this process
    return parser.parse_args()


def _report(name: str) -> bool:
    """Whether something was found."""
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-m", "fuzz", "--alone", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    runs = re.findall(r"stat::number_of_executed_units: +(\d+)", run.stdout)
    reached = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", run.stdout)
    edges, features, kept = reached[-1] if reached else ("?", "?", "?")
    print(
        f"{name:<11} {int(runs[-1]) if runs else 0:>9,} runs in {time.monotonic() - began:.0f} s, "
        f"{edges} edges, {features} features, {kept} inputs kept: "
        + ("FOUND" if run.returncode else "nothing found"),
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
    kept = _KEPT / name
    kept.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (kept / f"seed-{number}").write_bytes(seed)
    options = (
        *(f"-max_total_time={SECONDS}", f"-max_len={_LONGEST}", f"-timeout={_SLOWEST}"),
        *("-print_final_stats=1", f"-artifact_prefix={_KEPT}/found-{name}-"),
    )
    atheris.Setup([sys.argv[0], *options, str(kept)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
