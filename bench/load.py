"""Drives a server with wrk from a core of its own and tells how many requests it answered."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SERVER_CORE, LOAD_CORE = 0, 1
SECONDS = int(os.environ.get("GLEANERY_BENCH_SECONDS", "2"))
ROUNDS = int(os.environ.get("GLEANERY_BENCH_ROUNDS", "5"))

# Each request asks for another of the paths, so that no cache of answers makes the figure.
_SCRIPT = """
local paths, count = {{}}, 0
for line in io.lines("{paths}") do count = count + 1; paths[count] = line end
math.randomseed({seed})
request = function() return wrk.format("GET", paths[math.random(count)]) end
"""


class NoLoad(Exception):
    """The figure could not be measured, and why."""


def must_have(program: str, package: str) -> str:
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        raise NoLoad(f"{program} is missing: apt-get install {package}")
    return found


def pinned(core: int, *command: str) -> list[str]:
    return ["taskset", "-c", str(core), *command]


def requests_per_second(
    url: str, paths: Sequence[str], token: str | None = None, connections: int = 16
) -> float:
    """Of one round. An answer that is not 200 spoils it."""
    with tempfile.TemporaryDirectory() as folder:
        listed, script = Path(folder, "paths"), Path(folder, "load.lua")
        listed.write_text("\n".join(paths) + "\n")
        script.write_text(_SCRIPT.format(paths=listed, seed=len(paths)))
        header = ["-H", f"Authorization: Bearer {token}"] if token else []
        load = [must_have("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{SECONDS}", *header]
        run = subprocess.run(
            pinned(LOAD_CORE, *load, "-s", str(script), url),
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"Requests/sec:\s+([0-9.]+)", run.stdout)
    if found is None or "Non-2xx" in run.stdout or float(found[1]) == 0:
        raise NoLoad(f"wrk says: {(run.stdout + run.stderr)[-300:]}")
    return float(found[1])
