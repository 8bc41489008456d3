"""Failures of commands on data: one sentence, an exit status, no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gleanery.cli.data import connection
from tests.cli.data.conftest import CommandLine
from tests.support.faulty_server import STALL, faulty_server, respond
from tests.support.process import Running, environment, free_port, gleanery_in_process
from tests.support.service import Client, Service
from tests.support.waiting import TIMEOUT_SECONDS

_TOKEN = "glean_" + "0" * 49
_OVERLOADED = {"detail": [{"loc": [], "msg": "The service is \x1b[31m overloaded", "type": "x"}]}


@pytest.fixture
def nobody(tmp_path: Path) -> dict[str, str]:
    """Variables of a user without a login."""
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_a_user_without_a_login_is_told_what_to_do(nobody: dict[str, str]) -> None:
    done = gleanery_in_process("groups", **nobody)
    assert done.returncode == 2
    assert "run gleanery login" in done.stderr
    assert "or give --service" in done.stderr
    assert "base_url" not in done.stderr


def test_a_rejected_token_is_a_user_error(service: Service, nobody: dict[str, str]) -> None:
    done = gleanery_in_process("groups", "--service", service.url, **nobody, GLEANERY_TOKEN=_TOKEN)
    assert done.returncode == 2
    assert done.stderr.endswith("Run gleanery login with a valid token, or set GLEANERY_TOKEN.\n")
    assert _TOKEN not in done.stderr


def test_a_missing_scope_is_named(service: Service, nobody: dict[str, str]) -> None:
    token = service.token(scopes=frozenset({"session:read"}))
    done = gleanery_in_process("groups", "--service", service.url, **nobody, GLEANERY_TOKEN=token)
    assert done.returncode == 2
    assert "outputs:read" in done.stderr


def test_a_token_comes_from_a_file(gleanery: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(gleanery.token)
    options = ("--service", gleanery.url, "--token-file", str(tmp_path / "token"))
    done = gleanery_in_process("groups", *options, **gleanery.no_login)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("unknown", [{}, {"GLEANERY_QQQQ": "1"}])
def test_an_empty_setting_of_the_service_is_ignored(
    gleanery: CommandLine, unknown: dict[str, str]
) -> None:
    done = gleanery_in_process("groups", **gleanery.variables, **unknown, GLEANERY_REPLICA="")
    assert done.returncode == 0, done.stderr


def test_a_token_file_that_is_missing_is_a_user_error(gleanery: CommandLine) -> None:
    done = gleanery("groups", "--token-file", "/missing/token")
    assert (done.returncode, done.stderr) == (
        2,
        "gleanery: /missing/token: No such file or directory\n",
    )


@pytest.mark.thorough
def test_a_service_that_does_not_run_is_a_failure(nobody: dict[str, str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = gleanery_in_process("groups", "--service", url, **nobody, GLEANERY_TOKEN=_TOKEN)
    assert done.returncode == 1
    [first, second, error] = done.stderr.splitlines()
    assert ": retry 1 in " in first
    assert ": retry 2 in " in second
    assert error.startswith(f"gleanery: {url} cannot be reached")
    assert error.endswith("Is the service running there?")


@pytest.mark.thorough
def test_a_retry_is_shown_with_its_reason(nobody: dict[str, str]) -> None:
    with faulty_server(respond(503, _OVERLOADED), respond(200, [])) as server:
        done = gleanery_in_process(
            "groups", "--service", server.url, **nobody, GLEANERY_TOKEN=_TOKEN
        )
    assert done.returncode == 0
    assert done.stderr.startswith("The service is \\x1b[31m overloaded: retry 1 in ")


def test_another_server_at_the_address_is_noticed(nobody: dict[str, str]) -> None:
    with faulty_server(respond(200, b"<html></html>")) as server:
        done = gleanery_in_process(
            "groups", "--service", server.url, **nobody, GLEANERY_TOKEN=_TOKEN
        )
    assert done.returncode == 1
    assert "Check the address of the service" in done.stderr


def test_an_unencrypted_address_of_another_machine_is_a_warning(
    gleanery: CommandLine, nobody: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SHORT_WORK_RETRIES", 0)
    url = "http://gleanery.invalid"  # no name server knows it
    warning = "gleanery: warning: the token crosses the network unencrypted: use https://\n"
    done = gleanery_in_process("groups", "--service", url, **nobody, GLEANERY_TOKEN=_TOKEN)
    assert done.returncode == 1
    assert done.stderr.startswith(warning)
    assert warning not in gleanery("groups").stderr


def test_an_address_with_a_wrong_path_or_scheme_is_noticed(gleanery: CommandLine) -> None:
    path = gleanery("groups", GLEANERY_URL=f"{gleanery.url}/other")
    assert path.returncode == 2
    assert path.stderr.endswith("Check the address of the service.\n")
    scheme = gleanery("groups", GLEANERY_URL=gleanery.url.replace("http://", "https://"))
    assert scheme.returncode == 2
    assert "does not speak https: use http://" in scheme.stderr
    assert scheme.stderr.count("\n") == 1  # it is not retried


@pytest.mark.thorough
def test_ctrl_c_ends_with_130(nobody: dict[str, str]) -> None:
    with faulty_server(STALL) as server:
        variables = {**nobody, "GLEANERY_URL": server.url, "GLEANERY_TOKEN": _TOKEN}
        with Running("groups", **variables) as running:
            running.wait_for(lambda: server.heads)
            assert running.stop(signal.SIGINT) == 130
    assert running.log == ["gleanery: interrupted\n"]


@pytest.mark.thorough
def test_a_reader_that_has_enough_ends_the_command_quietly(
    gleanery: CommandLine, client: Client
) -> None:
    client.store("g", {"job_id": "j", "source_url": "https://a.example", "data": {}})
    process = subprocess.Popen(
        [sys.executable, "-m", "gleanery", "groups"],
        env=environment(**gleanery.variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(TIMEOUT_SECONDS) == 1


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_an_output_that_cannot_be_written_is_a_failure(
    gleanery: CommandLine, client: Client
) -> None:
    client.store("g", {"job_id": "j", "source_url": "https://a.example", "data": {}})
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gleanery", "groups", "--json"],
            env=environment(**gleanery.variables),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"gleanery: standard output: No space left on device\n"


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize(("group", "status"), [("g", 0), ("missing", 2)])
def test_errors_that_nobody_reads_do_not_change_the_result(
    gleanery: CommandLine, client: Client, tmp_path: Path, group: str, status: int
) -> None:
    client.store("g", {"job_id": "j", "source_url": "https://a.example", "data": {}})
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gleanery", "pull", group, "-o", str(tmp_path / "copy")],
            env=environment(**gleanery.variables),
            stderr=full,
            check=False,
        )
    assert done.returncode == status
    assert len([*tmp_path.glob("copy/*.jsonl")]) == (1 if status == 0 else 0)
