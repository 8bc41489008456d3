"""Messages about a database that cannot be used: one sentence that says why and what to do."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from gleanery.service.foundation.security.vault import KeyFile
from tests.support.certificates import write_certificate
from tests.support.postgres_server import PostgresServer
from tests.support.process import gleanery, gleanery_in_process, new_token, run_successfully
from tests.support.service import SECRET_KEY

PASSWORD = "hunter2"


def refusal(*arguments: str) -> str:
    """The one sentence of a command that fails."""
    ended = gleanery_in_process(*arguments, GLEANERY_SECRET_KEY=SECRET_KEY)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("gleanery: ")
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert PASSWORD not in ended.stderr
    return ended.stderr.removeprefix("gleanery: ")


def refused_url(url: str, tmp_path: Path) -> str:
    return refusal("serve", "--port", "0", "--data", str(tmp_path / "data"), "--database", url)


# --- the URL ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"u:{PASSWORD}@h/x?sslmode=verify_full", "sslmode in --database must be one of disable,"),
        (f"u:{PASSWORD}@h:abc/x", "The port in --database must be a number from 1 to 65535"),
        (f"u:{PASSWORD}@h:99999/x", "The port in --database must be a number from 1 to 65535"),
        (f"u:{PASSWORD}@[::1]:b,h:1/x", "The port in --database must be a number"),
        (f"u:{PASSWORD}/x@h/x", "The port in --database must be a number from 1 to 65535; percent"),
        (f"u:{PASSWORD}@h/x?sslrootcert=/none", "The file of sslrootcert in --database does not"),
        (f"u:{PASSWORD}@[h/x", "--database is not a valid URL"),
        (f"u:{PASSWORD}@h,i/x?target_session_attrs=any", "target_session_attrs in --database must"),
        (f"u:{PASSWORD}@h/x?y", "--database is not a valid URL"),
        (f"u:{PASSWORD}@,/x", "--database needs at least one host"),
        (f"u:{PASSWORD}@/x?host=a,b&port=1,2,3", "--database needs at least one host"),
    ],
)
def test_an_invalid_part_of_the_url_is_named(url: str, message: str, tmp_path: Path) -> None:
    assert refused_url(f"postgresql://{url}", tmp_path).startswith(message)


# --- the server ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("token", "list")])
def test_a_refused_connection_names_the_host(command: tuple[str, ...], tmp_path: Path) -> None:
    url = f"postgresql://u:{PASSWORD}@127.0.0.1:1/x"
    told = refusal(*command, "--data", str(tmp_path), "--database", url)
    assert told.startswith("Cannot reach the PostgreSQL database at 127.0.0.1:1: the connection is")
    assert "Start the server" in told


def test_a_name_with_two_addresses_that_refuse_is_refused(tmp_path: Path) -> None:
    assert "the connection is refused" in refused_url("postgresql://u@localhost:1/x", tmp_path)


def test_an_unknown_host_is_named(tmp_path: Path) -> None:
    told = refused_url(f"postgresql://u:{PASSWORD}@db.invalid/x", tmp_path)
    assert told.startswith("Cannot reach the PostgreSQL database at db.invalid: the host name is")


@pytest.mark.thorough
def test_a_server_that_does_not_respond_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        told = refused_url(f"postgresql://u:{PASSWORD}@{place}/x", tmp_path)
    assert told.startswith(f"Cannot reach the PostgreSQL database at {place}: it does not respond")


def test_a_part_of_a_password_is_not_taken_for_the_host(tmp_path: Path) -> None:
    told = refused_url(f"postgresql://u:a@{PASSWORD}@127.0.0.1:1/x", tmp_path)
    assert told.startswith("Cannot reach the PostgreSQL database: ")


def test_a_rejected_login_and_a_missing_database_are_named(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    folder = quote(postgres.socket_folder, safe="")
    login = refused_url(f"postgresql://nobody:{PASSWORD}@/postgres?host={folder}", tmp_path)
    assert "rejects the login: role" in login
    assert "Check the user and password in --database" in login
    database = refused_url(f"postgresql://postgres@/nothing?host={folder}", tmp_path)
    assert 'does not have the database: database "nothing" does not exist' in database


# --- the certificate of the server --------------------------------------------------------------


@contextmanager
def tls_server(cert: Path, key: Path) -> Iterator[int]:
    """Starts TLS as PostgreSQL does, and returns its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(8)  # the request for TLS
                    connection.sendall(b"S")
                    context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("host", "trusted", "days", "message"),
    [
        ("127.0.0.1", "other", 365, "is not trusted (self-signed certificate): add sslrootcert="),
        ("localhost", "server", 365, "is for another host name: use its name in --database"),
        ("127.0.0.1", "server", -1, "has expired: renew it on the server"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_explained(
    host: str, trusted: str, days: float, message: str, tmp_path: Path
) -> None:
    for name in ("server", "other"):
        (tmp_path / name).mkdir()
        cert, key = write_certificate(tmp_path / name, days)
    cert, key = tmp_path / "server" / "cert.pem", tmp_path / "server" / "key.pem"
    root = tmp_path / trusted / "cert.pem"
    with tls_server(cert, key) as port:
        query = f"sslmode=verify-full&sslrootcert={quote(str(root))}"
        told = refused_url(f"postgresql://u:{PASSWORD}@{host}:{port}/x?{query}", tmp_path)
    assert told.startswith(f"The certificate of the PostgreSQL server at {host}:{port} {message}")


def test_a_missing_root_certificate_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    told = refused_url("postgresql://u@127.0.0.1:1/x?sslmode=verify-full", tmp_path)
    assert "add sslrootcert=/path/to/root.crt to --database" in told


# --- a damaged SQLite file ----------------------------------------------------------------------


@pytest.fixture(params=["the first page", "later pages"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A data folder with a damaged database."""
    data = tmp_path / "data"
    new_token(["--data", str(data)])
    with (data / "gleanery.sqlite").open("r+b") as file:
        size = file.seek(0, 2)
        start = 100 if request.param == "the first page" else 16384
        file.seek(start)
        file.write(b"\xff" * (size - start))
    return data


@pytest.mark.parametrize(
    "command",
    [("serve", "--port", "0"), ("token", "list"), ("token", "create", "--organization", "b")],
)
def test_a_damaged_database_is_called_damaged(damaged: Path, command: tuple[str, ...]) -> None:
    told = refusal(*command, "--data", str(damaged))
    assert "is damaged: keep the damaged file, and restore a backup" in told


def test_a_backup_of_a_damaged_database_says_that_it_is_damaged(
    damaged: Path, tmp_path: Path
) -> None:
    told = refusal("backup", str(tmp_path / "b.tar"), "--data", str(damaged))
    assert "is damaged" in told
    assert "Error of SQLite" not in told


def test_a_file_that_is_no_database_is_called_damaged(tmp_path: Path) -> None:
    run_successfully("migrate", "--data", str(tmp_path / "data"))
    (tmp_path / "data" / "gleanery.sqlite").write_bytes(b"text" * 10_000)
    assert "is damaged" in refusal("token", "list", "--data", str(tmp_path / "data"))


# --- a lost SQLite database ---------------------------------------------------------------------

CREATING = [
    ("serve", "--port", "0"),
    ("token", "create", "--organization", "a"),
    ("migrate",),
    ("demo", "--port", "0"),
]


def _leave_key(folder: Path) -> None:
    KeyFile(folder / "secret.key").create()


def _leave_blob(folder: Path) -> None:
    (folder / "blobs" / "1" / "ab").mkdir(parents=True)


def _leave_log(folder: Path) -> None:
    (folder / "gleanery.sqlite-wal").write_bytes(b"log")


LEFT = {
    "secret.key": _leave_key,
    "blobs/1": _leave_blob,
    "gleanery.sqlite-wal": _leave_log,
}


@pytest.mark.parametrize("command", CREATING, ids=lambda command: command[0])
@pytest.mark.parametrize("left", LEFT)
def test_no_empty_database_is_created_beside_what_is_left_of_one(
    command: tuple[str, ...], left: str, tmp_path: Path
) -> None:
    LEFT[left](tmp_path)
    told = refusal(*command, "--data", str(tmp_path))
    assert told.startswith(f"There is no database in {tmp_path}, but {tmp_path / left} is left: ")
    assert "restore a backup" in told
    assert told.endswith("To start with an empty database, give --create\n")
    assert not (tmp_path / "gleanery.sqlite").exists()


@pytest.mark.parametrize("command", [*CREATING, ("token", "list")], ids=lambda command: command[-1])
def test_a_database_of_no_bytes_is_not_used(command: tuple[str, ...], tmp_path: Path) -> None:
    database = tmp_path / "gleanery.sqlite"
    database.touch()
    told = refusal(*command, "--data", str(tmp_path))
    assert told.startswith(f"The database {database} is empty: put the database back, or restore")
    assert database.stat().st_size == 0


@pytest.mark.parametrize("left", [*LEFT, "gleanery.sqlite"])
def test_an_empty_database_can_be_created_on_request(left: str, tmp_path: Path) -> None:
    LEFT.get(left, lambda folder: (folder / left).touch())(tmp_path)
    arguments = ("token", "create", "--organization", "a", "--data", str(tmp_path))
    assert gleanery_in_process(*arguments).returncode == 2
    assert run_successfully(*arguments, "--create")
    assert run_successfully(*arguments)


def test_several_commands_create_one_database(tmp_path: Path) -> None:
    """None of them takes the file of another for an empty one that is left."""
    with ThreadPoolExecutor(4) as threads:
        ended = threads.map(
            lambda name: gleanery(
                "token", "create", "--organization", name, "--data", str(tmp_path)
            ),
            "abcd",
        )
        assert [command.returncode for command in ended] == [0] * 4
    listed = run_successfully("token", "list", "--data", str(tmp_path))
    assert len(listed.splitlines()) == 5
    assert not list(tmp_path.glob("creating-*"))
