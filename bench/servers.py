"""Server processes of the benchmark: each runs on loopback, normally on the same core."""

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

from bench.load_generator import SERVER_CORE, NotMeasured, pin_to_core, require_program

ROOT = Path(__file__).parent.parent
PEER_PROGRAMS = ROOT / ".venv-bench" / "bin"
THIS_PYTHON = Path(sys.executable)
BASELINE_PYTHON = ROOT / ".venv-baseline" / "bin" / "python"
"""Runs the commit that ``bench/BASELINE`` names."""
_SCOPES = "session:read,session:write,outputs:read,outputs:write,reviews:read,reviews:write"
_NEW_SCOPES = "webhooks:read,webhooks:write,monitors:read,monitors:write"
"""Scopes that the baseline does not know."""
SECRET_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def run_server(
    command: Sequence[str],
    url: str,
    variables: Mapping[str, str] | None = None,
    core: int | None = SERVER_CORE,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server process. The context begins when the URL responds."""
    log = Path(os.environ.get("GLEANERY_BENCH_LOG", os.devnull)).open("ab")  # noqa: SIM115
    process = subprocess.Popen(
        pin_to_core(core, *command),
        stdout=log,
        stderr=log,
        env={**os.environ, **(variables or {})},
        start_new_session=True,
    )
    try:
        _wait_for_response(url, process)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def _wait_for_response(url: str, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotMeasured(f"the server exited with status {process.returncode}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return  # any response is enough
        except OSError:
            time.sleep(0.01)
    raise NotMeasured(f"the server does not respond within {seconds:.0f} s")


@contextmanager
def gleanery(
    data: Path,
    database: str | None = None,
    workers: int = 1,
    core: int | None = SERVER_CORE,
    module: str = "gleanery",
    options: Sequence[str] = (),
    python: Path = THIS_PYTHON,
) -> Iterator[tuple[str, int]]:
    """Run the service and yield its URL and its process ID."""
    port = free_port()
    command = [str(python), "-m", module, "serve", *_storage_options(data, database)]
    command += ["--port", str(port), "--workers", str(workers), *options]
    url = f"http://127.0.0.1:{port}"
    variables = {"GLEANERY_SECRET_KEY": SECRET_KEY}
    with run_server(command, f"{url}/readyz", variables, core) as process:
        yield url, process.pid


@contextmanager
def gleanery_on_uvicorn(data: Path) -> Iterator[tuple[str, int]]:
    """Run the service on uvicorn, and yield its URL and its process ID."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "uvicorn", "gleanery.asgi:app", "--port", str(port)]
    command += ["--loop", "uvloop", "--http", "h11", "--no-access-log"]
    variables = {"GLEANERY_DATA": str(data), "GLEANERY_BASE_URL": url}
    with run_server(
        command, f"{url}/readyz", variables | {"GLEANERY_SECRET_KEY": SECRET_KEY}
    ) as process:
        yield url, process.pid


def create_token(
    data: Path,
    database: str | None = None,
    python: Path = THIS_PYTHON,
    organization: str = "bench",
) -> str:
    scopes = _SCOPES if python == BASELINE_PYTHON else f"{_SCOPES},{_NEW_SCOPES}"
    command = [str(python), "-m", "gleanery", "token", "create", "--organization", organization]
    command += ["--scopes", scopes, *_storage_options(data, database)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def _storage_options(data: Path, database: str | None) -> list[str]:
    return ["--data", str(data), *(["--database", database] if database else [])]


@contextmanager
def uvicorn(app: str, python: Path, path: str = "/", **variables: str) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(python), "-m", "uvicorn", app, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    with run_server(command, url + path, {"PYTHONPATH": str(ROOT), **variables}):
        yield url


@contextmanager
def bare_asgi(body: Path) -> Iterator[str]:
    with uvicorn("bench.bare_asgi:app", Path(sys.executable), BENCH_BODY=str(body)) as url:
        yield url


@contextmanager
def bare_asgi_stream(piece: Path, size: int) -> Iterator[str]:
    """Send the piece again and again, until about this many bytes are sent."""
    variables = {"BENCH_BODY": str(piece), "BENCH_STREAM_BYTES": str(size)}
    with uvicorn("bench.bare_asgi:app", Path(sys.executable), path="/", **variables) as url:
        yield url


@contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """Serve the files of the folder."""
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
    command = [require_program("nginx", "nginx-light"), "-p", str(folder), "-c", str(config)]
    with run_server(command, f"http://127.0.0.1:{port}/"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def datasette(database: Path) -> Iterator[str]:
    port = free_port()
    command = [str(peer_program("datasette")), "serve", str(database), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--setting", "max_returned_rows", "1000"]
    with run_server(command, f"http://127.0.0.1:{port}/-/versions.json"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def kinto(ini: Path, port: int) -> Iterator[str]:
    with run_server(
        [str(peer_program("kinto")), "start", "--ini", str(ini)], f"http://127.0.0.1:{port}/v1/"
    ):
        yield f"http://127.0.0.1:{port}"


def peer_program(name: str) -> Path:
    """Return the path of a program in the virtual environment of the peers."""
    path = PEER_PROGRAMS / name
    if not path.exists():
        raise NotMeasured(f"{name} is not installed: make bench installs it")
    return path
