"""Login: what is asked, checked and stored, and which login the other commands use."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gleanery import Client
from gleanery.client import NotConfigured
from tests.cli.data.conftest import CommandLine
from tests.support.process import environment, free_port, gleanery_in_process
from tests.support.service import Service
from tests.support.terminal import Terminal

_WRONG_TOKEN = "glean_" + "0" * 49


@pytest.fixture
def token_file(gleanery: CommandLine, tmp_path: Path) -> str:
    path = tmp_path / "token.txt"
    path.write_text(f"{gleanery.token}\n")
    return str(path)


def stored(gleanery: CommandLine) -> Path:
    return gleanery.folder / "gleanery" / "credentials.json"


def test_a_login_is_stored_for_the_client(
    gleanery: CommandLine, token_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{gleanery.url}/v1/"  # as people copy it
    done = gleanery_in_process("login", address, "--token-file", token_file, **gleanery.no_login)
    assert done.returncode == 0, done.stderr
    assert str(stored(gleanery)) in done.stdout
    assert "gleanery groups" in done.stdout
    assert gleanery.token not in done.stdout + done.stderr
    monkeypatch.setenv("XDG_CONFIG_HOME", str(gleanery.folder))
    with Client() as client:
        assert list(client.outputs("g", limit=0)) == []
        assert repr(client) == f"Client('{gleanery.url}')"


def test_only_its_owner_can_read_a_login(gleanery: CommandLine, token_file: str) -> None:
    folder = stored(gleanery).parent
    folder.mkdir(parents=True, mode=0o755)
    previous = os.umask(0)
    try:
        gleanery("login", gleanery.url, "--token-file", token_file)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(stored(gleanery).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["credentials.json"]


def test_a_token_without_the_scope_of_the_check_is_valid(
    service: Service, gleanery: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "narrow.txt"
    path.write_text(service.token(scopes=frozenset({"session:read"})))
    assert gleanery("login", gleanery.url, "--token-file", str(path)).returncode == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_WRONG_TOKEN, "Run gleanery login with a valid token"),
        ("", "must contain one token"),
        ("two words", "must contain one token"),
        ("glean_\N{LATIN SMALL LETTER U WITH DIAERESIS}", "must contain one token"),
    ],
)
def test_a_wrong_token_is_not_stored(
    gleanery: CommandLine, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text(content)
    done = gleanery("login", gleanery.url, "--token-file", str(path))
    assert done.returncode == 2
    assert message in done.stderr
    assert not stored(gleanery).exists()
    assert done.stderr.count("\n") == 1


@pytest.mark.thorough
def test_a_service_that_does_not_run_is_named(gleanery: CommandLine, token_file: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = gleanery("login", url, "--token-file", token_file)
    assert done.returncode == 1
    assert url in done.stderr
    assert done.stderr.endswith("Is the service running there?\n")


def test_a_token_does_not_cross_the_network_unencrypted(
    gleanery: CommandLine, token_file: str
) -> None:
    done = gleanery("login", "http://gleanery.example", "--token-file", token_file)
    assert done.returncode == 2
    assert "--allow-http" in done.stderr


def test_variables_that_override_the_login_are_named(
    gleanery: CommandLine, token_file: str
) -> None:
    done = gleanery("login", gleanery.url, "--token-file", token_file)
    assert "The variable GLEANERY_TOKEN overrides this login" in done.stderr
    assert "GLEANERY_URL" not in done.stderr


def test_a_login_is_used_only_for_its_service(
    gleanery: CommandLine, token_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gleanery_in_process("login", gleanery.url, "--token-file", token_file, **gleanery.no_login)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(gleanery.folder))
    with pytest.raises(NotConfigured, match=f"only for {gleanery.url}"):
        Client("https://other.example")


def test_a_logout_removes_the_login(gleanery: CommandLine, token_file: str) -> None:
    gleanery("login", gleanery.url, "--token-file", token_file)
    assert gleanery("logout").stdout == f"Removed {stored(gleanery)}.\n"
    assert not stored(gleanery).exists()
    assert gleanery("logout").stdout == "You are not logged in.\n"


@pytest.mark.thorough
def test_a_pipe_without_a_token_is_named(gleanery: CommandLine) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gleanery", "login", gleanery.url],
        env=environment(**gleanery.no_login),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "gleanery: Standard input must contain one token, and nothing else"
    )


@pytest.mark.thorough
def test_a_token_comes_from_a_pipe(gleanery: CommandLine) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gleanery", "login", gleanery.url],
        input=gleanery.token,
        env=environment(**gleanery.no_login),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Logged in" in done.stdout
    assert json.loads(stored(gleanery).read_text())["token"] == gleanery.token


@pytest.mark.thorough
def test_a_person_is_asked_and_the_token_is_not_shown(gleanery: CommandLine) -> None:
    with Terminal("login", **gleanery.no_login) as terminal:
        terminal.wait_for("Address of the service [http://127.0.0.1:8000]:")
        terminal.write(f"{gleanery.url}\n")
        terminal.wait_for("Token (it is not shown):")
        terminal.write(f"{gleanery.token}\n")
        assert terminal.wait() == 0
        assert "Logged in" in terminal.shown
        assert gleanery.token not in terminal.shown


@pytest.mark.thorough
def test_ctrl_c_at_the_prompt_stores_nothing(gleanery: CommandLine) -> None:
    with Terminal("login", gleanery.url, **gleanery.no_login) as terminal:
        terminal.wait_for("Token")
        terminal.write("\x03")
        assert terminal.wait() == 130
        assert "Traceback" not in terminal.shown
    assert not stored(gleanery).exists()
