"""Starts what is measured: each server on the same core, on loopback, and ends it again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.load_generator import SERVER_CORE, NotMeasured, must_have, pinned

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-bench" / "bin"
SECRET_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def process(
    command: Sequence[str],
    url: str,
    variables: Mapping[str, str] | None = None,
    core: int | None = SERVER_CORE,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves the URL, from when it answers until the end of the context."""
    log = Path(os.environ.get("GLEANERY_BENCH_LOG", os.devnull)).open("ab")  # noqa: SIM115
    running = subprocess.Popen(
        pinned(core, *command),
        stdout=log,
        stderr=log,
        env={**os.environ, **(variables or {})},
        start_new_session=True,
    )
    try:
        wait_for(url, running)
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        log.close()


def wait_for(url: str, running: subprocess.Popen[bytes], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if running.poll() is not None:
            raise NotMeasured(f"ended with status {running.returncode}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return  # it answers, and that is all we ask
        except OSError:
            time.sleep(0.01)
    raise NotMeasured(f"does not answer within {seconds:.0f} s")


@contextmanager
def gleanery(
    data: Path,
    database: str | None = None,
    workers: int = 1,
    core: int | None = SERVER_CORE,
    module: str = "gleanery",
) -> Iterator[tuple[str, int]]:
    """The address of the service, and the number of its process."""
    port = free_port()
    where = ["--data", str(data), *(["--database", database] if database else [])]
    command = [sys.executable, "-m", module, "serve", *where, "--port", str(port)]
    command += ["--workers", str(workers)]
    url = f"http://127.0.0.1:{port}"
    key = {"GLEANERY_SECRET_KEY": SECRET_KEY}
    with process(command, f"{url}/readyz", key, core) as running:
        yield url, running.pid


def token(data: Path, database: str | None = None) -> str:
    where = ["--data", str(data), *(["--database", database] if database else [])]
    scopes = "session:read,session:write,outputs:read,outputs:write,reviews:read,reviews:write"
    made = subprocess.run(
        [
            *(sys.executable, "-m", "gleanery", "token", "create", "--organization", "bench"),
            *("--scopes", scopes, *where),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.strip()


@contextmanager
def uvicorn(app: str, python: Path, path: str = "/", **variables: str) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(python), "-m", "uvicorn", app, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    with process(command, url + path, {"PYTHONPATH": str(HERE.parent), **variables}):
        yield url


@contextmanager
def bare_asgi(body: Path) -> Iterator[str]:
    with uvicorn("bench.bare_asgi:app", Path(sys.executable), BENCH_BODY=str(body)) as url:
        yield url


@contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """Serves the folder's files."""
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;\n"
        "events {}\n"
        f"http {{ access_log off; keepalive_requests 1000000000; sendfile on;\n"
        f"  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;\n"
        f"  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"  server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    command = [must_have("nginx", "nginx-light"), "-p", str(folder), "-c", str(config)]
    with process(command, f"http://127.0.0.1:{port}/"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def datasette(database: Path) -> Iterator[str]:
    port = free_port()
    command = [str(peer("datasette")), "serve", str(database), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--setting", "max_returned_rows", "1000"]
    with process(command, f"http://127.0.0.1:{port}/-/versions.json"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def kinto(ini: Path, port: int) -> Iterator[str]:
    with process([str(peer("kinto")), "start", "--ini", str(ini)], f"http://127.0.0.1:{port}/v1/"):
        yield f"http://127.0.0.1:{port}"


def peer(program: str) -> Path:
    found = PEERS / program
    if not found.exists():
        raise NotMeasured(f"{program} is not installed: make bench installs it")
    return found
