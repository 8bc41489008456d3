"""Runs every command of the guides in docs/operations, and of the page about scaling out.

The guides that need other programs are skipped where these are missing. ``make guides`` installs
them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

from tests.support.examples import Example, examples
from tests.support.guides import (
    GUIDES,
    HOST,
    SEARCH_PATH,
    File,
    Machine,
    Step,
    require_programs,
    steps,
)
from tests.support.postgres_server import PostgresServer, postgres_server, programs_folder
from tests.support.process import Running, new_token
from tests.support.s3 import Bucket
from tests.support.service import SECRET_KEY, Client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the guides are for Debian and Ubuntu"
)

DOCS = GUIDES.parent
# Beginnings of commands that no test runs, and the reason.
NOT_RUN = {
    "sudo apt-get install": "installs packages on the machine; make guides does that",
    "sudo python3 -m venv": "the test runs the code of the repository",
    "sudo /opt/gleanery/bin/pip install": "the test runs the code of the repository",
    "sudo /opt/gleanery-next/bin/pip install": "the test runs the code of the repository",
    "sudo useradd": "adds a user to the machine; the test runs everything as one user",
    "sudo docker compose": "needs a container runtime and an image from a registry",
    "sudo certbot": "asks a public certificate authority; the test writes a certificate itself",
}


class Part(NamedTuple):
    """A guide, or the parts of it under some headings."""

    guide: str
    headings: tuple[str, ...] = ()


class Run(NamedTuple):
    """Guides that are run one after the other on one machine."""

    parts: tuple[Part, ...]
    programs: tuple[str, ...] = ()
    """Programs that the guides need, beside those of the project."""
    is_under_systemd: bool = True
    """False: the guide installs the service itself."""


FIRST = Part("run-under-systemd.md", ("Install", "Configure", "Start"))
ON_POSTGRES = Part("run-on-postgresql.md", ("",))
SCALE_OUT = "../how-to/scale-out.md"
ENVIRONMENT_KEYS = "Keys in `GLEANERY_SECRET_KEY`"
RUNS = {
    "systemd": Run((Part("run-under-systemd.md", ("Change a setting",)),)),
    "nginx": Run((Part("deploy-behind-nginx.md"),), ("nginx",)),
    "caddy": Run((Part("deploy-behind-caddy.md"),), ("caddy",)),
    "proxy": Run((Part("run-behind-a-proxy.md"),)),
    "tls": Run((Part("use-tls.md"),)),
    "asgi": Run((Part("run-on-another-asgi-server.md"),)),
    "sqlite": Run((Part("run-on-sqlite.md"),)),
    "postgresql": Run((Part("run-on-postgresql.md"),)),
    "s3": Run((Part("store-files-in-s3.md"),)),
    "container": Run((Part("run-in-a-container.md"),), is_under_systemd=False),
    "scaling out": Run((ON_POSTGRES, Part(SCALE_OUT))),
    "workers": Run((Part("run-several-workers-and-nodes.md"),)),
    "webhooks": Run((Part("send-webhooks.md"),)),
    "e-mail": Run((Part("send-alerts-by-e-mail.md"),)),
    "redis": Run((Part("limit-rates-with-redis.md"),), ("redis-server", "redis-cli")),
    "backup of SQLite": Run((Part("back-up-and-restore.md", ("SQLite",)),)),
    "backup of PostgreSQL": Run(
        (ON_POSTGRES, Part("back-up-and-restore.md", ("PostgreSQL",))),
    ),
    "keys in a file": Run(
        (Part("rotate-the-secret-key.md", ("", "Keys in `secret.key`", "A lost key")),)
    ),
    "keys in a variable": Run(
        (ON_POSTGRES, Part("rotate-the-secret-key.md", (ENVIRONMENT_KEYS,))),
    ),
    "upgrade": Run((Part("upgrade.md"),)),
    "organization": Run((Part("delete-an-organization.md"),)),
    "monitor": Run((Part("monitor.md"),), ("prometheus", "promtool")),
    "incidents": Run((Part("incident-checklist.md"),)),
}
# Texts that are replaced in all guides, and the reason.
REPLACED = {
    "-o root -g gleanery ": ("", "the test has one user"),
    "-o gleanery -g gleanery ": ("", "the test has one user"),
    "keys retire\n": ("keys retire --now\n", "links stay valid for 15 minutes"),
    "GLEANERY_HOST=0.0.0.0": ("GLEANERY_HOST=127.0.0.1", "a test listens on loopback only"),
    "scrape_interval: 15s": ("scrape_interval: 1s", "the test waits for a scrape"),
    "docs/operations/": (f"{GUIDES}/", "the test does not run in the clone"),
    "--retry 30": ("--retry 300", "a busy machine starts slowly"),
}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "machine")
    made.replacements.update({shown: used for shown, (used, _) in REPLACED.items()})
    for port in (6379, 8000, 8001, 9090):
        made.replacements[f"127.0.0.1:{port}"] = f"127.0.0.1:{made.ports[port]}"
    for port in (8000, 443):
        made.replacements[f"GLEANERY_PORT={port}"] = f"GLEANERY_PORT={made.ports[port]}"
    made.replacements["--port 8001"] = f"--port {made.ports[8001]}"
    made.replacements["-p 6379"] = f"-p {made.ports[6379]}"
    made.replacements[f"-connect {HOST}:443"] = f"-connect 127.0.0.1:{made.ports[443]}"
    yield made
    made.stop()


@pytest.fixture
def database_server(machine: Machine, tmp_path: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL that stands for db.internal, and its programs."""
    with postgres_server() as server:
        away, present = quote(f"{tmp_path}/away", safe=""), quote(server.socket_folder, safe="")
        machine.replacements.update({"@db.internal": f"@{present}", "@db1.internal": f"@{away}"})
        machine.replacements["db2.internal"] = present
        machine.replacements["@db3.internal"] = f"@{present}"  # it is no replica: nothing is read
        machine.variables.update(PGHOST=server.socket_folder, PGUSER="postgres")
        machine.search_path = str(programs_folder())
        yield server


def prepare(name: str, machine: Machine, request: pytest.FixtureRequest) -> None:
    """Adds what the packages of the other programs bring."""
    if name == "nginx":
        add_nginx(machine)
    elif name == "caddy":
        add_caddy(machine)
    elif name == "redis":
        add_redis(machine)
    elif name == "monitor":
        add_prometheus(machine)
    elif name == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        bucket.client.create_bucket(Bucket="gleanery-files")
        machine.replacements["https://s3.internal"] = bucket.variables["AWS_ENDPOINT_URL"]


def add_nginx(machine: Machine) -> None:
    """Writes the main configuration, as the package does, and starts nginx."""
    root, user = machine.root, "user root;" if os.geteuid() == 0 else ""
    for folder in ("sites-available", "sites-enabled", "cache"):
        (root / "etc/nginx" / folder).mkdir(parents=True)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    caches = "".join(f"{kind}_temp_path {root}/etc/nginx/cache/{kind};" for kind in kinds)
    (root / "etc/nginx/nginx.conf").write_text(
        f"{user} pid {root}/run/nginx-own.pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {caches} include {root}/etc/nginx/sites-enabled/*; }}\n"
    )
    program = shutil.which("nginx", path=SEARCH_PATH) or ""
    machine.add_program("bin/nginx", program, "-c", f"{root}/etc/nginx/nginx.conf")
    machine.add_unit("nginx", f"{root}/bin/nginx -g 'daemon off;'")
    for port in (80, 443):
        machine.replacements[f"listen {port}"] = f"listen 127.0.0.1:{machine.ports[port]}"
    machine.systemctl("start", "nginx")


def add_caddy(machine: Machine) -> None:
    """Starts Caddy with an empty configuration, as the package does.

    The test has no public certificate authority, so the site gets the certificate of the test.
    """
    file = machine.root / "etc/caddy/Caddyfile"
    file.parent.mkdir()
    admin = machine.ports[80]
    options = (
        f"{{\n admin 127.0.0.1:{admin}\n auto_https disable_redirects\n"
        f" default_bind 127.0.0.1\n storage file_system {machine.root}/var/lib/caddy\n}}\n"
    )
    file.write_text(options)
    certificate = f"tls {machine.certificate} {machine.key}"
    site = f"{options}{HOST}:{machine.ports[443]} {{\n {certificate}"
    machine.replacements[f"{HOST} {{"] = site
    load = f"caddy reload --config {file} --adapter caddyfile --address 127.0.0.1:{admin}"
    run = f"caddy run --config {file} --adapter caddyfile"
    machine.add_unit("caddy", run, admin, load)
    machine.systemctl("start", "caddy")


def add_redis(machine: Machine) -> None:
    """Lets the test wait for a counter: a busy machine may count a request without Redis."""
    command = f"redis-server --bind 127.0.0.1 --port {machine.ports[6379]} --save ''"
    machine.add_unit("redis-server", command, machine.ports[6379])
    url = f"http://127.0.0.1:{machine.ports[8000]}/v1/groups"
    again = f'curl --silent --output /dev/null -H "Authorization: Bearer $TOKEN" {url}; sleep 1'
    counted = f"redis-cli -p {machine.ports[6379]} dbsize"
    machine.replacements[counted] = f"until {counted} | grep -v '^0'; do {again}; done"


def add_prometheus(machine: Machine) -> None:
    root, port = machine.root, machine.ports[9090]
    machine.add_unit(
        "prometheus",
        f"prometheus --config.file {root}/etc/prometheus/prometheus.yml"
        f" --storage.tsdb.path {root}/var/lib/prometheus --web.listen-address 127.0.0.1:{port}",
        port,
    )


def parts(run: Run) -> tuple[Part, ...]:
    return (FIRST, *run.parts) if run.is_under_systemd else run.parts


def pages() -> list[Path]:
    return [*GUIDES.glob("*.md"), GUIDES / SCALE_OUT]


def is_run(step: Step) -> bool:
    return not (isinstance(step, Example) and step.command.startswith(tuple(NOT_RUN)))


@pytest.mark.extended
@pytest.mark.parametrize("name", RUNS)
def test_every_command_of_a_guide_works(
    name: str, machine: Machine, request: pytest.FixtureRequest
) -> None:
    run = RUNS[name]
    require_programs("curl", "openssl", *run.programs)
    if any(part.guide == ON_POSTGRES.guide for part in run.parts):
        request.getfixturevalue("database_server")
    prepare(name, machine, request)
    machine.run(
        [step for part in parts(run) for step in steps(part.guide, *part.headings) if is_run(step)]
    )


def searches() -> list[str]:
    """Commands of all pages that search the log or the metrics of the service."""
    commands = [
        example.command
        for page in sorted(DOCS.rglob("*.md"))
        for example in examples(page.read_text())
    ]
    return [command for command in commands if re.search(r"journalctl|/metrics.*\|", command)]


@pytest.mark.thorough
def test_every_documented_search_finds_its_lines(
    machine: Machine, postgres: PostgresServer, tmp_path: Path
) -> None:
    """The searches run on the log and the metrics of a service in which all that has happened."""
    require_programs("curl", "openssl")
    port = machine.ports[8000]
    url = f"http://127.0.0.1:{port}"
    where = ("--data", str(tmp_path / "data"), "--database", postgres.new_database())
    replica = ("--replica", "postgresql://127.0.0.1:1/away")
    limits = ("--workers", "2", "--rate-limit", "3/hour", "--slow-request-seconds", "0.001")
    mail = ("--smtp-server", "127.0.0.1:1", "--smtp-sender", "a@example.com", "--smtp-tls", "none")
    options = (*where, *replica, *limits, *mail)
    with Running("serve", *options, "--port", str(port), GLEANERY_SECRET_KEY=SECRET_KEY) as running:
        running.wait_ready(url)
        with Client(url, new_token(where, "with e-mail")) as client:
            target = {"url": "mailto:a@example.com", "format": "email", "events": ["test"]}
            webhook = client.post("/v1/webhooks", json=target).json()
            assert client.post(f"/v1/webhooks/{webhook['id']}/test").status_code == 200
        token = new_token(where)
        with Client(url, token) as client:
            client.put("/v1/groups/g", json={})
            client.get("/v1/changes/g")
            blobs = tmp_path / "data/blobs"
            moved = blobs.rename(tmp_path / "moved")
            assert client.post("/v1/files", content=b"a file").status_code == 503
            shutil.rmtree(blobs, ignore_errors=True)  # the upload may have created it
            moved.rename(blobs)
            wait_until(lambda: client.get("/v1/groups").status_code == 429)
        replica_event = "the server of --replica is left out"
        requests = ('"operation":"get_changes"', '"status":429', "slow request")
        for text in (replica_event, *requests, "the store of files fails", "no e-mail is sent"):
            running.wait_for(partial(is_logged, running, text))
        os.kill(running.workers()[0], signal.SIGKILL)  # its lines are written by now
        running.wait_for(partial(is_logged, running, "a worker process ended"))
        running.wait_ready(url)
        found = {command: search(machine, running, command) for command in searches()}
        running.stop()
    assert len(found) >= 10
    assert [command for command, lines in found.items() if not lines] == []
    for command, lines in found.items():
        if "journalctl" in command:
            assert all(json.loads(line)["event"] for line in lines)


def is_logged(running: Running, text: str) -> bool:
    return any(text in line for line in running.log)


def search(machine: Machine, running: Running, command: str) -> list[str]:
    """Runs the command on the log as it is now; returns what it prints."""
    (machine.root / "run/gleanery.log").write_text("".join(running.log))
    return machine.output_of(command).splitlines()


def test_systemd_accepts_the_unit(machine: Machine) -> None:
    """systemd itself reads the unit, and rates how well it isolates the service."""
    require_programs("systemd-analyze")
    files = [step for step in steps("run-under-systemd.md") if isinstance(step, File)]
    [unit] = [file for file in files if file.path.endswith(".service")]
    path = machine.root / "gleanery.service"
    path.write_text(machine.translate(unit.text))
    for command in (["verify"], ["security", "--offline=true", "--threshold=30"]):
        program = ["systemd-analyze", *command, path]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_no_command_is_left_out() -> None:
    """Every block of every guide is run, or its command is in the table with a reason."""
    run_steps = {
        (part.guide, step)
        for run in RUNS.values()
        for part in parts(run)
        for step in steps(part.guide, *part.headings)
    }
    names = [str(page.relative_to(GUIDES)) for page in pages()]
    all_steps = {(name, step) for name in names for step in steps(name)}
    assert all_steps == run_steps
    assert len(all_steps) > 100
    commands = "\n".join(step.command for _, step in run_steps if isinstance(step, Example))
    for page in pages():
        for command in re.findall(r"`((?:sudo|curl|gleanery-admin) [^`]+)`", page.read_text()):
            assert command in commands, (page.name, command)


def test_the_tables_are_current() -> None:
    """Each exception and each replaced text occurs in a guide."""
    commands = [
        step.command
        for page in GUIDES.glob("*.md")
        for step in steps(page.name)
        if isinstance(step, Example)
    ]
    for beginning in NOT_RUN:
        assert any(command.startswith(beginning) for command in commands), beginning
    text = "".join(page.read_text() for page in GUIDES.glob("*.md"))
    for shown in REPLACED:
        assert shown in text, shown
