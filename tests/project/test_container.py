"""The Dockerfile and the guide about containers agree with the project."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from checks import container
from gleanery.common.settings import table
from tests.support.process import environment, free_port, gleanery
from tests.support.service import Service

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
GUIDE = (ROOT / "docs/operations/run-in-a-container.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VARIABLES = {row.variable for row in table()}


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.M)


def test_the_build_gets_the_files_that_it_needs() -> None:
    """Everything else is ignored: secrets, data folders and the history of the repository."""
    ignored, *lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert ignored == "*"
    sources = [copy.split()[:-1] for copy in instructions("COPY") if "--from" not in copy]
    files = {file for each in sources for file in each}
    assert files == {line[1:] for line in lines if line.startswith("!")}
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert PROJECT["readme"] in files


def test_the_variables_are_settings() -> None:
    named = set(re.findall(r"GLEANERY_[A-Z_]+", DOCKERFILE + GUIDE))
    assert named <= VARIABLES
    image = dict(pair.split("=", 1) for pair in instructions("ENV")[-1].split())
    assert image["GLEANERY_DATA"] == instructions("VOLUME")[0]
    assert image["GLEANERY_PORT"] == instructions("EXPOSE")[0]
    assert f":{image['GLEANERY_PORT']}:{image['GLEANERY_PORT']}" in GUIDE
    assert f":{image['GLEANERY_DATA']}" in GUIDE


@pytest.mark.thorough
def test_the_image_runs_the_service_as_a_user_without_rights() -> None:
    [user] = instructions("USER")
    number = user.partition(":")[0]
    assert f"--uid {number}" in DOCKERFILE
    assert f"user {number}" in GUIDE
    assert json.loads(instructions("ENTRYPOINT")[0]) == [*PROJECT["scripts"]]
    [command] = json.loads(instructions("CMD")[0])
    assert gleanery(command, "--help").returncode == 0


def test_the_image_has_the_service() -> None:
    [extra] = re.findall(r"EXTRAS=(\w+)", DOCKERFILE)
    assert "gleanery[server]" in PROJECT["optional-dependencies"][extra]


def test_the_check_makes_the_base_image() -> None:
    [suite] = re.findall(r'^SUITE = "(\w+)"', (ROOT / "checks/container.py").read_text(), re.M)
    bases = {base.split()[0] for base in instructions("FROM")}
    assert bases == {f"debian:{suite}-slim"}


def health(port: int) -> int:
    command = json.loads(instructions("HEALTHCHECK")[0].split("CMD ", 1)[1])
    variables = environment() | {"GLEANERY_PORT": str(port)}
    words = [sys.executable, *command[1:]]
    return subprocess.run(words, env=variables, capture_output=True, check=False).returncode


def test_the_health_check_asks_the_service_on_its_port(service: Service) -> None:
    assert health(urlsplit(service.url).port or 0) == 0
    assert health(free_port()) != 0


class ReadyTooLate(http.server.BaseHTTPRequestHandler):
    """A service that is not ready when it is first asked."""

    remaining = 10

    def do_GET(self) -> None:
        ReadyTooLate.remaining -= 1
        is_ready = ReadyTooLate.remaining < 0
        body = b'{"status":"ready"}' if is_ready else b'{"detail":[]}'
        self.send_response(200 if is_ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_the_check_ends_if_the_service_does_not_become_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(container, "TIMEOUT_SECONDS", 0.1)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ReadyTooLate) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(AssertionError, match="the service is not ready"):
            container.wait_until_ready(server.server_port)
        server.shutdown()


@pytest.mark.thorough
def test_the_image_does_not_start_without_the_address_of_clients(tmp_path: Path) -> None:
    """Links in responses would be wrong."""
    variables = {"GLEANERY_HOST": "0.0.0.0", "GLEANERY_DATA": str(tmp_path)}
    refused = gleanery("serve", **variables, GLEANERY_BEHIND_PROXY="true")
    assert refused.returncode == 2
    assert "Give --base-url" in refused.stderr
    assert "--behind-proxy" in gleanery("serve", **variables).stderr
