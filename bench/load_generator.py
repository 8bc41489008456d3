"""Drives a server with wrk from a core of its own and tells how many requests it answered."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from math import ceil
from pathlib import Path

SERVER_CORE, LOAD_CORE = 0, 1
SECONDS = int(os.environ.get("GLEANERY_BENCH_SECONDS", "2"))
ROUNDS = int(os.environ.get("GLEANERY_BENCH_ROUNDS", "5"))
_ANSWERS, _LONGER = 10, 10
"""How many answers a connection should get, and how many times as long that may take."""
_LOOK_SECONDS, _QUIET, _PATIENCE = 0.2, 0.9, 60
"""Quiet is a core that is idle for so much of a moment; we wait for that so many seconds."""

# Each request asks for another of the paths, so that no cache of answers makes the figure.
_GET = """
local paths, count = {{}}, 0
for line in io.lines("{paths}") do count = count + 1; paths[count] = line end
math.randomseed({count})
request = function() return wrk.format("GET", paths[math.random(count)]) end
"""
# Each request has another number in its body.
_POST = """
local count = 0
wrk.headers["Content-Type"] = "application/json"
request = function()
  count = count + 1
  return wrk.format("POST", "{path}", nil, string.format([==[{body}]==], count))
end
"""


class NotMeasured(Exception):
    """The figure could not be measured, and why."""


def must_have(program: str, package: str) -> str:
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        raise NotMeasured(f"{program} is missing: apt-get install {package}")
    return found


def pinned(core: int | None, *command: str) -> list[str]:
    """On one core, or on all of them, whatever this process is bound to."""
    cores = f"0-{(os.cpu_count() or 1) - 1}" if core is None else str(core)
    return ["taskset", "-c", cores, *command]


def requests_per_second(
    url: str, paths: Sequence[str], token: str | None = None, connections: int = 16
) -> float:
    """Of one round of reading. An answer that is not 200 spoils it."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "paths")
        listed.write_text("\n".join(paths) + "\n")
        script = _GET.format(paths=listed, count=len(paths))
        return _settled(url, script, token, connections)


def posts_per_second(url: str, path: str, body: str, token: str, connections: int) -> float:
    """Of one round of posting the body, each time with the next number in the place of ``%d``."""
    return _settled(url, _POST.format(path=path, body=body), token, connections)


def _settled(url: str, script: str, token: str | None, connections: int) -> float:
    """What is under way when the time is up counts for nothing, so the slow get longer."""
    _wait_for_quiet()
    rate = _wrk(url, script, token, connections, SECONDS)
    wanted = _ANSWERS * connections
    if rate * SECONDS < wanted:
        enough = ceil(wanted / max(rate, 0.1))
        _wait_for_quiet()
        rate = _wrk(url, script, token, connections, min(enough, _LONGER * SECONDS))
    if not rate:
        raise NotMeasured(f"no answer within {_LONGER * SECONDS} s")
    return rate


def _wait_for_quiet() -> None:
    """Who was measured before may still answer what nobody waits for any more, on the same core."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        idle, all_of_it = _times()
        time.sleep(_LOOK_SECONDS)
        still_idle, still_all = _times()
        if still_idle - idle >= _QUIET * (still_all - all_of_it):
            return
    raise NotMeasured(f"the core was busy with something else for {_PATIENCE} s")


def _times() -> tuple[int, int]:
    """How long the server's core was idle, and all of its time, since the system started."""
    lines = Path("/proc/stat").read_text().splitlines()
    [times] = [line.split()[1:] for line in lines if line.startswith(f"cpu{SERVER_CORE} ")]
    _, _, _, idle, waiting, *_ = map(int, times)
    return idle + waiting, sum(map(int, times))


def _wrk(url: str, script: str, token: str | None, connections: int, seconds: int) -> float:
    load = [must_have("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{seconds}", "--timeout", "60"]
    load += ["-H", f"Authorization: Bearer {token}"] if token else []
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = pinned(LOAD_CORE, *load, "-s", file.name, url)
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    rate = re.search(r"Requests/sec:\s+([0-9.]+)", run.stdout)
    if rate is None or "Non-2xx" in run.stdout:
        said = " ".join((run.stdout + run.stderr).split())
        raise NotMeasured(f"wrk says: {said[-200:]}")
    return float(rate[1])
