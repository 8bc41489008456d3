"""Load generator: runs wrk on its own core and returns the requests per second of a server."""

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
from typing import NamedTuple

SERVER_CORE, LOAD_CORE = 0, 1
SECONDS = int(os.environ.get("GLEANERY_BENCH_SECONDS", "2"))
ROUNDS = int(os.environ.get("GLEANERY_BENCH_ROUNDS", "5"))
_RESPONSES_PER_CONNECTION = 10
"""Responses that a round needs per connection. A slow server gets a longer round."""
_MAX_EXTENSION = 10
"""Longest duration of such a round, as a multiple of the normal duration."""
_IDLE_SHARE = 0.9
"""Share of a sample for which an idle core has no work."""
_IDLE_SAMPLE_SECONDS, _IDLE_TIMEOUT = 0.2, 60

# Each request asks for a random one of the paths, so that a cache of responses has no effect.
_GET_SCRIPT = """
local paths, count = {{}}, 0
for line in io.lines("{paths}") do count = count + 1; paths[count] = line end
math.randomseed({count})
request = function() return wrk.format("GET", paths[math.random(count)]) end
"""
# Each line has a token and a path, because the paths belong to several organizations.
_TENANT_SCRIPT = """
local requests, count = {{}}, 0
init = function()
  for line in io.lines("{paths}") do
    local token, path = line:match("(%S+) (%S+)")
    count = count + 1
    requests[count] = wrk.format("GET", path, {{["Authorization"] = "Bearer " .. token}})
  end
  math.randomseed(count)
end
request = function() return requests[math.random(count)] end
"""
# Like the first script, with pauses between the requests of a connection, for a light load.
_PACED_SCRIPT = (
    _GET_SCRIPT
    + """
delay = function() return math.random(5, 15) end
"""
)
# Each request has a different number in its body.
_POST_SCRIPT = """
local count = 0
wrk.headers["Content-Type"] = "application/json"
request = function()
  count = count + 1
  return wrk.format("POST", "{path}", nil, string.format([==[{body}]==], count))
end
"""


class NotMeasured(Exception):
    """A value that could not be measured. The message states the reason."""


def require_program(program: str, package: str) -> str:
    """Return the path of an installed program."""
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if path is None:
        raise NotMeasured(f"{program} is missing: apt-get install {package}")
    return path


def pin_to_core(core: int | None, *command: str) -> list[str]:
    """Return a command that runs on one core, or on all cores if ``core`` is None.

    The affinity of the current process does not matter.
    """
    cores = f"0-{(os.cpu_count() or 1) - 1}" if core is None else str(core)
    return ["taskset", "-c", cores, *command]


def measure_gets(
    url: str, paths: Sequence[str], token: str | None = None, connections: int = 16
) -> float:
    """Return requests per second of one round of reads. Every response must have status 2xx."""
    with tempfile.TemporaryDirectory() as folder:
        path_list = Path(folder, "paths")
        path_list.write_text("\n".join(paths) + "\n")
        script = _GET_SCRIPT.format(paths=path_list, count=len(paths))
        return _measure(url, script, token, connections)


def measure_tenants(url: str, requests: Sequence[tuple[str, str]], connections: int = 16) -> float:
    """Return requests per second of one round of reads. A request is a token and a path."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "requests")
        lines.write_text("".join(f"{token} {path}\n" for token, path in requests))
        return _measure(url, _TENANT_SCRIPT.format(paths=lines), None, connections)


def measure_p99(url: str, paths: Sequence[str], token: str, connections: int = 16) -> float:
    """Return the 99th percentile of the response times in seconds, under a light load.

    The best round counts.
    """
    with tempfile.TemporaryDirectory() as folder:
        path_list = Path(folder, "paths")
        path_list.write_text("\n".join(paths) + "\n")
        script = _PACED_SCRIPT.format(paths=path_list, count=len(paths))
        return min(_p99(_wrk(url, script, token, connections, SECONDS)) for _ in range(ROUNDS))


def _p99(report: str) -> float:
    found = re.search(r"99%\s+([0-9.]+)(us|ms|s)\b", report)
    assert found is not None, report
    return float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]]


class Download(NamedTuple):
    """A complete download."""

    size: int
    seconds: float


def download(url: str, token: str | None, file: Path = Path(os.devnull)) -> Download:
    """Download with curl. Raises NotMeasured if the response is truncated or an error."""
    command = [require_program("curl", "curl"), "--silent", "--fail", "--output", str(file)]
    command += ["--header", f"Authorization: Bearer {token}"] if token else []
    command += ["--write-out", "%{size_download} %{time_total}", url]
    run = subprocess.run(
        pin_to_core(LOAD_CORE, *command), capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise NotMeasured(f"curl ends with status {run.returncode}")
    size, seconds = run.stdout.split()
    return Download(int(size), float(seconds))


def measure_posts(url: str, path: str, body: str, token: str, connections: int) -> float:
    """Return requests per second of one round of writes. ``%d`` in the body becomes a counter."""
    return _measure(url, _POST_SCRIPT.format(path=path, body=body), token, connections)


def _measure(url: str, script: str, token: str | None, connections: int) -> float:
    """Measure once, or a second time for longer if the server is slow.

    wrk does not count requests that are still open at the end; a longer round reduces that error.
    """
    _wait_for_idle_core()
    rate = _run_wrk(url, script, token, connections, SECONDS)
    required = _RESPONSES_PER_CONNECTION * connections
    if rate * SECONDS < required:
        seconds = ceil(required / max(rate, 0.1))
        _wait_for_idle_core()
        rate = _run_wrk(url, script, token, connections, min(seconds, _MAX_EXTENSION * SECONDS))
    if not rate:
        raise NotMeasured(f"no response within {_MAX_EXTENSION * SECONDS} s")
    return rate


def _wait_for_idle_core() -> None:
    """Wait until the previous server has finished the requests that wrk abandoned."""
    deadline = time.monotonic() + _IDLE_TIMEOUT
    while time.monotonic() < deadline:
        idle_before, total_before = _core_times()
        time.sleep(_IDLE_SAMPLE_SECONDS)
        idle, total = _core_times()
        if idle - idle_before >= _IDLE_SHARE * (total - total_before):
            return
    raise NotMeasured(f"other work kept the server's core busy for {_IDLE_TIMEOUT} s")


def _core_times() -> tuple[int, int]:
    """Return the idle time and the total time of the server's core since boot."""
    lines = Path("/proc/stat").read_text().splitlines()
    [times] = [line.split()[1:] for line in lines if line.startswith(f"cpu{SERVER_CORE} ")]
    _, _, _, idle, io_wait, *_ = map(int, times)
    return idle + io_wait, sum(map(int, times))


def _run_wrk(url: str, script: str, token: str | None, connections: int, seconds: int) -> float:
    report = _wrk(url, script, token, connections, seconds)
    rate = re.search(r"Requests/sec:\s+([0-9.]+)", report)
    assert rate is not None, report
    return float(rate[1])


def _wrk(url: str, script: str, token: str | None, connections: int, seconds: int) -> str:
    """Run wrk and return its report. Every response must have status 2xx."""
    wrk = [require_program("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{seconds}", "--latency"]
    wrk += ["--timeout", "60", *(["-H", f"Authorization: Bearer {token}"] if token else [])]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = pin_to_core(LOAD_CORE, *wrk, "-s", file.name, url)
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Requests/sec:" not in run.stdout or "Non-2xx" in run.stdout:
        message = " ".join((run.stdout + run.stderr).split())
        raise NotMeasured(f"wrk reports: {message[-200:]}")
    return run.stdout
