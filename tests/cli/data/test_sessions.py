"""``gleanery sessions``: list, import, export, delete and lease."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gleanery.sessions import FORMATS
from tests.cli.data.conftest import CommandLine
from tests.support.databases import execute_sql
from tests.support.process import environment
from tests.support.service import Client, Service
from tests.support.session_documents import cookie, document, exported, imported, origin
from tests.support.terminal import Terminal
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

SECRET = "planted-s3cret"
STATE = document(
    cookie("sid", value=SECRET, secure=True, sameSite="Lax"),
    origins=(origin("https://shop.example", token=SECRET),),
)
LEASES = "/v1/sessions/leases"


@pytest.fixture
def state_file(tmp_path: Path) -> str:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(STATE))
    return str(path)


@pytest.fixture
def stored(client: Client) -> Client:
    imported(client, STATE)
    return client


def value_of_sid(client: Client) -> str:
    return str(exported(client, domain="shop.example")["cookies"][0]["value"])


# --- list, import and delete --------------------------------------------------------------------


def test_a_file_is_imported_and_listed(gleanery: CommandLine, state_file: str) -> None:
    done = gleanery("sessions", "import", state_file)
    assert done.returncode == 0, done.stderr
    assert "cookies: 1 created" in done.stdout
    listed = gleanery("sessions", "list")
    assert "shop.example" in listed.stdout
    assert (
        json.loads(gleanery("sessions", "list", "shop.example", "--json").stdout)[0]["cookies"] == 1
    )
    assert gleanery("sessions", "list", "other.example").stderr == "There is no session.\n"


def test_a_dry_run_shows_records_and_stores_nothing(
    gleanery: CommandLine, state_file: str, client: Client
) -> None:
    done = gleanery("sessions", "import", state_file, "--dry-run", "--profile", "second")
    assert "Would store in the profile second, from the format playwright" in done.stdout
    assert "sid" in done.stdout
    as_json = json.loads(gleanery("sessions", "import", state_file, "--dry-run", "--json").stdout)
    assert {record["name"] for record in as_json["records"]} == {"sid", "token"}
    assert client.get("/v1/sessions").json() == []


def test_no_output_has_a_value(gleanery: CommandLine, state_file: str) -> None:
    damaged = Path(state_file).with_name("damaged.json")
    damaged.write_text(json.dumps(STATE)[:-9])
    runs = [
        gleanery("sessions", "import", state_file, "--dry-run"),
        gleanery("sessions", "import", state_file, "--dry-run", "--json"),
        gleanery("sessions", "import", state_file, "--json"),
        gleanery("sessions", "import", str(damaged)),
        gleanery("sessions", "import", state_file, "--format", "netscape"),
        gleanery("sessions", "list", "--json"),
        gleanery("sessions", "lease", "shop.example", "--", "true"),
        gleanery("sessions", "delete", "shop.example", "--yes"),
    ]
    assert [done.returncode for done in runs] == [0, 0, 0, 2, 2, 0, 0, 0]
    assert SECRET not in "".join(done.stdout + done.stderr for done in runs)


@pytest.mark.thorough
def test_standard_input_is_imported(gleanery: CommandLine, client: Client) -> None:
    command = [sys.executable, "-m", "gleanery", "sessions", "import", "-"]
    header = f"Cookie: sid={SECRET}".encode()
    variables = environment(**gleanery.variables)
    done = subprocess.run(command, input=header, env=variables, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"--url" in done.stderr
    command += ["--url", "https://shop.example/"]
    subprocess.run(command, input=header, env=variables, capture_output=True, check=True)
    assert value_of_sid(client) == SECRET


def test_names_cannot_control_the_terminal(gleanery: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(document(origins=(origin("https://a.test", **{"\x1b[2Jk": "v"}),))))
    done = gleanery("sessions", "import", str(path), "--dry-run")
    assert "[2Jk" in done.stdout
    assert "\x1b" not in done.stdout


def test_losses_are_printed_as_warnings(gleanery: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    entry = {"origin": "https://shop.example", "localStorage": [], "indexedDB": [{"name": "db"}]}
    path.write_text(json.dumps(document(cookie("sid"), origins=(entry,))))
    done = gleanery("sessions", "import", str(path), "--json")
    assert done.returncode == 0
    assert "gleanery: warning: IndexedDB is not kept" in done.stderr
    assert len(json.loads(done.stdout)["losses"]) == 1


def test_a_session_is_deleted(gleanery: CommandLine, stored: Client) -> None:
    asked = gleanery("sessions", "delete", "shop.example")
    assert asked.returncode == 2
    assert "give --yes" in asked.stderr
    done = gleanery("sessions", "delete", "shop.example", "--yes")
    assert done.stdout == "Deleted 2 records.\n"
    unknown = gleanery("sessions", "delete", "shop.example", "--yes")
    assert unknown.returncode == 2
    assert "gleanery sessions list" in unknown.stderr


@pytest.mark.thorough
def test_a_deletion_is_confirmed_on_a_terminal(gleanery: CommandLine, stored: Client) -> None:
    for answer, status in (("n", 1), ("y", 0)):
        with Terminal("sessions", "delete", "shop.example", **gleanery.variables) as terminal:
            terminal.wait_for("Delete 1 cookie and 1 local-storage record of shop.example")
            terminal.write(f"{answer}\n")
            assert terminal.wait() == status, terminal.shown


# --- export -------------------------------------------------------------------------------------


def test_a_cookie_without_a_domain_needs_the_option_for_its_page(
    gleanery: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "cookies.json"
    file.write_text('[{"name": "sid", "value": "1"}]')
    done = gleanery("sessions", "import", str(file), "--format", "extension")
    assert done.returncode == 2
    assert "or --url with the page" in done.stderr


def test_a_session_is_exported_to_a_private_file(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    path = tmp_path / "cookies.txt"
    options = ("--format", "netscape", "-o", str(path))
    done = gleanery("sessions", "export", "shop.example", *options)
    assert done.returncode == 0, done.stderr
    assert "gleanery: warning: SameSite is lost" in done.stderr
    assert f"Wrote the session of shop.example to {path}." in done.stderr
    assert SECRET in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("format_", [name for name in FORMATS if name != "auto"])
def test_an_export_of_nothing_fails(
    gleanery: CommandLine, stored: Client, tmp_path: Path, format_: str
) -> None:
    path = tmp_path / "state.json"
    options = ("--format", format_, "--url", "https://other.example/", "-o", str(path))
    done = gleanery("sessions", "export", "other.example", *options)
    assert done.returncode == 1
    assert "There is nothing to export" in done.stderr
    assert "contains a login" not in done.stderr
    assert not path.exists()


def test_a_file_is_replaced_only_on_request(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    path = tmp_path / "state.json"
    path.write_text("precious")
    path.chmod(0o644)
    refused = gleanery("sessions", "export", "shop.example", "-o", str(path))
    assert refused.returncode == 2
    assert "or give --overwrite" in refused.stderr
    assert path.read_text() == "precious"
    gleanery("sessions", "export", "shop.example", "-o", str(path), "--overwrite")
    assert json.loads(path.read_text())["cookies"][0]["value"] == SECRET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.thorough
def test_a_terminal_shows_the_session_with_a_warning(gleanery: CommandLine, stored: Client) -> None:
    options = ("--format", "cookie", "--url", "https://shop.example/")
    with Terminal("sessions", "export", "shop.example", *options, **gleanery.variables) as terminal:
        assert terminal.wait() == 0
    assert "this output contains a login" in terminal.shown
    assert f"Cookie: sid={SECRET}" in terminal.shown


def test_an_unknown_format_is_an_error_of_the_user(gleanery: CommandLine, stored: Client) -> None:
    done = gleanery("sessions", "export", "shop.example", "--format", "excel")
    assert done.returncode == 2
    assert "playwright" in done.stderr
    done = gleanery("sessions", "export", "shop.example", "--format", "cookie")
    assert "--url" in done.stderr
    done = gleanery("sessions", "lease", "shop.example", "--format", "excel", "--", "true")
    assert done.returncode == 2


# --- lease --------------------------------------------------------------------------------------

_REPORT = """
import json, os, stat, sys
path = sys.argv[1]
assert path == os.environ["GLEANERY_SESSION_FILE"]
report = {"mode": stat.S_IMODE(os.stat(path).st_mode), "path": path, "arguments": sys.argv[3:]}
report["folder"] = stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode)
report["state"] = json.load(open(path))
json.dump(report, open(sys.argv[2], "w"))
sys.exit(7)
"""


def program(script: str, *arguments: str) -> list[str]:
    return ["--", sys.executable, "-c", script, *arguments]


def lease(gleanery: CommandLine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return gleanery("sessions", "lease", "shop.example", *arguments)


def test_a_command_runs_with_the_session(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    done = lease(gleanery, *program(_REPORT, "{}", str(path), "", "a={}"))
    assert done.returncode == 7, done.stderr
    report: dict[str, Any] = json.loads(path.read_text())
    assert report["state"]["cookies"][0]["value"] == SECRET
    assert (report["mode"], report["folder"]) == (0o600, 0o700)
    assert report["arguments"] == ["", f"a={report['path']}"]
    assert not Path(report["path"]).parent.exists()
    assert stored.get(LEASES).json() == []


_CHANGE = f"""
import sys
text = open(sys.argv[1]).read()
open(sys.argv[1], "w").write(text.replace("{SECRET}", "changed-s3cret"))
"""


@pytest.mark.thorough
def test_a_changed_file_is_stored_only_on_request(gleanery: CommandLine, stored: Client) -> None:
    lease(gleanery, *program(_CHANGE, "{}"))
    assert value_of_sid(stored) == SECRET
    done = lease(gleanery, "--store", "--format", "netscape", *program(_CHANGE, "{}"))
    assert done.returncode == 0, done.stderr
    assert value_of_sid(stored) == "changed-s3cret"
    assert "changed-s3cret" not in done.stdout + done.stderr
    assert exported(stored, domain="shop.example")["cookies"][0]["sameSite"] == "Lax"


def test_another_holder_is_a_failure(gleanery: CommandLine, stored: Client) -> None:
    stored.post(LEASES, json={"domain": "shop.example", "seconds": 60})
    done = lease(gleanery, "--", "true")
    assert done.returncode == 1
    assert "Another holder has this session" in done.stderr


def test_a_wrong_command_takes_no_lease(gleanery: CommandLine, stored: Client) -> None:
    done = lease(gleanery, "--", "no-such-program-anywhere")
    assert done.returncode == 2
    assert "not found" in done.stderr
    assert lease(gleanery).returncode == 2
    audit = stored.get("/v1/audit").json()["entries"]
    assert "acquire_lease" not in [entry["action"] for entry in audit]


def test_a_command_without_a_login_is_warned(gleanery: CommandLine, stored: Client) -> None:
    done = gleanery("sessions", "lease", "nosuch.example", "--", "true")
    assert done.returncode == 0
    assert "there is no session of nosuch.example" in done.stderr
    assert "no session" not in lease(gleanery, "--", "true").stderr


_WAIT = """
import pathlib, signal, sys, time
received = []
def receive(number, frame):
    received.append(number)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, receive)
pathlib.Path(sys.argv[1]).touch()
while not received:
    time.sleep(0.01)
time.sleep(0.2)
sys.exit(10 * len(received) + received[0] if sys.argv[2] == "end" else time.sleep(1000))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on(
    gleanery: CommandLine, stored: Client, tmp_path: Path, number: signal.Signals
) -> None:
    started = tmp_path / "started"
    command = [sys.executable, "-m", "gleanery", "sessions", "lease", "shop.example"]
    with subprocess.Popen(
        [*command, *program(_WAIT, str(started), "end")],
        env=environment(**gleanery.variables),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(started.exists)
        assert len(stored.get(LEASES).json()) == 1
        os.kill(process.pid, number)
        assert process.wait(TIMEOUT_SECONDS) == 10 + number
    assert stored.get(LEASES).json() == []


@pytest.mark.thorough
def test_a_terminal_interrupts_the_command_once(
    gleanery: CommandLine, stored: Client, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    arguments = ("sessions", "lease", "shop.example", *program(_WAIT, str(started), "end"))
    with Terminal(*arguments, **gleanery.variables) as terminal:
        wait_until(started.exists)
        terminal.write("\x03")
        assert terminal.wait() == 10 + signal.SIGINT, terminal.shown
    assert stored.get(LEASES).json() == []


@pytest.mark.thorough
def test_a_command_without_its_lease_is_stopped(
    gleanery: CommandLine, stored: Client, service: Service, tmp_path: Path
) -> None:
    started = tmp_path / "started"

    def end_lease() -> None:
        wait_until(started.exists)
        execute_sql(service.settings, "UPDATE session_leases SET expires_at = acquired_at")

    ending = threading.Thread(target=end_lease)
    ending.start()
    done = lease(gleanery, "--store", "--seconds", "6", *program(_WAIT, str(started), "stay"))
    ending.join()
    assert done.returncode == 1
    assert "the command was stopped" in done.stderr
    assert value_of_sid(stored) == SECRET


def test_the_variable_of_a_lease_is_known(gleanery: CommandLine) -> None:
    assert gleanery("--version", GLEANERY_SESSION_FILE="state.json").stderr == ""
