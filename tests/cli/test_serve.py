"""``gleanery serve``: settings, TLS, workers, logs, health checks and shutdown."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gleanery import __version__
from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.observability.metrics import COUNTERS, GAUGES
from gleanery.service.storage.postgres.database import PostgresDatabase
from gleanery.service.storage.sqlite.database import SqliteDatabase
from tests.support.calls import note_calls
from tests.support.certificates import write_certificate
from tests.support.exports import export_link
from tests.support.metrics import fresh_metrics
from tests.support.process import (
    PROC,
    Running,
    environment,
    free_port,
    gleanery,
    gleanery_in_process,
    is_ready,
)
from tests.support.raw_http import connect, request_head
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

HERE = "http://127.0.0.1"


def token_in(folder: Path) -> str:
    scopes = "session:read,session:write,outputs:read,outputs:write"
    made = gleanery_in_process(
        "token", "create", "--organization", "a", "--scopes", scopes, "--data", str(folder)
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", "0.0.0.0"], "--behind-proxy"),
        (["--host", "192.0.2.1"], "--tls-cert"),
        (["--host", "0.0.0.0", "--behind-proxy"], "--base-url"),
        (["--behind-proxy"], "--base-url"),
        (["--tls-cert", __file__], "go together"),
        (
            ["--tls-cert", "x.pem", "--tls-key", __file__],
            f"existing file: {Path('x.pem').absolute()}",
        ),
        (["--base-url", "data.example.com"], "--base-url must be"),
        (["--base-url", "https://a/?x=1"], "--base-url must be"),
        (["--cors-origin", "app.example"], "write https://app.example instead of app.example"),
        (["--cors-origin", "localhost:5173"], "write http://localhost:5173 instead of"),
        (["--cors-origin", "https://app.example/"], "write https://app.example instead of"),
        (["--cors-origin", "https://app.example/a?b"], "write https://app.example instead of"),
        (["--cors-origin", "https://App.example:443"], "write https://app.example instead of"),
        (
            ["--cors-origin", "https://bücher.example"],
            "write https://xn--bcher-kva.example",
        ),
        (["--cors-origin", "null"], "such as https://app.example.com, or * alone, not null"),
        (["--cors-origin", "https://*.example"], "or * alone, not https://*.example"),
        (["--cors-origin", "ftp://app.example"], "--cors-origin must be an origin as browsers"),
        (["--cors-origin", "https://a:b@app.example"], "or * alone, without a user name"),
        (["--cors-origin", "https://a.example", "--cors-origin", "b.example"], "https://b.example"),
        (["--cors-origin", "*", "--cors-origin", "https://a.example"], "without other origins"),
        (["--smtp-server", "a b"], "--smtp-server must be the name or address of a host"),
        (["--smtp-server", "mail.example:0"], "--smtp-server must be"),
        (["--smtp-server", "mail.example"], "--smtp-server and --smtp-sender go together"),
        (["--smtp-sender", "a@b.example"], "--smtp-server and --smtp-sender go together"),
        (["--smtp-sender", "ops"], "--smtp-sender must be an e-mail address"),
        (["--smtp-tls", "ssl"], "--smtp-tls must be starttls, tls or none"),
        (["--smtp-username", "a"], "--smtp-username and GLEANERY_SMTP_PASSWORD go together"),
        (["--metrics-groups", "101"], "--metrics-groups must be from 0 to 100"),
        (["--database", "mysql://a/b"], "postgresql://"),
        (["--database", "postgresql://127.0.0.1:1/x"], "GLEANERY_SECRET_KEY"),
        (["--pooling", "transaction"], "--pooling and --listen-database need --database"),
        (["--pooling", "statement"], "--pooling must be session or transaction"),
        (["--listen-database", "postgresql://a/b"], "--pooling and --listen-database need"),
        (["--tls-cert", __file__, "--tls-key", __file__], "both PEM"),
        (["--data", __file__], "must be a folder"),
        (["--data", ""], "--data is empty"),
        (["--data="], "--data is empty"),
        (["--host", ""], "--host is empty"),
        ([""], "An argument is empty"),
        (["--workers", "0"], "--workers"),
        (["--token-cache-seconds", "-1"], "--token-cache-seconds"),
        (["--token-cache-seconds", "nan"], "--token-cache-seconds must be at least 0"),
        (["--blob-url-seconds", "604801"], "from 1 to 604800"),
        (["--audit-days", "29"], "--audit-days must be at least 30"),
        (["--rate-limit", "often"], "such as 600/minute"),
        (["--rate-limit-storage", "redis://a"], "--rate-limit-storage needs --rate-limit"),
        (["--rate-limit", "1/day", "--rate-limit-storage", "memory://"], "redis://"),
        (["--blobs", "gs://bucket"], "s3://bucket/prefix"),
        (["--blobs", "S3:bucket"], "--blobs must be a folder or s3://bucket/prefix"),
        (["--blobs", "S3://bucket"], "--blobs must be a folder or s3://bucket/prefix"),
        (["--blobs-public-url", "http://a"], "--blobs-public-url needs --blobs with s3://"),
        (["--blobs", "s3://a", "--blobs-public-url", "http://a/b"], "without path and query"),
        (["--tombstone-days", "0"], "--tombstone-days"),
        (["--sweep-seconds", "0"], "--sweep-seconds"),
        (["--port", "70000"], "--port"),
        (["--max-records", "0"], "--max-records"),
        (["--log-level", "loud"], "--log-level"),
        (["--log-format", "xml"], "--log-format"),
    ],
)
def test_an_invalid_setting_ends_the_start_with_one_sentence(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    ended = gleanery_in_process("serve", "--data", str(tmp_path / "data"), *options)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "data").exists()


MAIL: dict[str, Any] = {"smtp_server": "mail.example", "smtp_sender": "data@shop.example"}


@pytest.mark.parametrize("server", ["mail.example", "mail:2525", "192.0.2.1", "[::1]:25", "[::1]"])
def test_a_mail_server_is_a_host_or_an_address(server: str) -> None:
    Settings(**(MAIL | {"smtp_server": server})).check()


@pytest.mark.parametrize("server", ["::1", "[::1", "[x]:25", "a:b", "a:", "a:70000", "smtp://a"])
def test_anything_else_is_not_a_mail_server(server: str) -> None:
    with pytest.raises(SettingsError, match="smtp-server must be"):
        Settings(**(MAIL | {"smtp_server": server})).check()


def test_a_password_for_the_mail_server_needs_encryption() -> None:
    login = MAIL | {"smtp_username": "me", "smtp_password": "secret"}
    Settings(**login).check()
    Settings(**login, smtp_tls="tls").check()
    Settings(**(login | {"smtp_server": "127.0.0.1:2525"}), smtp_tls="none").check()
    Settings(**MAIL, smtp_tls="none").check()
    with pytest.raises(SettingsError, match="none would expose the password"):
        Settings(**login, smtp_tls="none").check()
    with pytest.raises(SettingsError, match="needs --smtp-server"):
        Settings(smtp_username="me", smtp_password="secret").check()


def test_transaction_pooling_needs_a_direct_address_for_notifications() -> None:
    url = "postgresql://pooler/gleanery"
    settings = Settings(database=url, secret_key=SECRET_KEY, pooling="transaction")
    with pytest.raises(SettingsError, match="--pooling transaction needs --listen-database"):
        settings.check()
    replace(settings, listen_database="postgresql://server/gleanery").check()


def test_the_variable_has_origins_that_are_separated_by_spaces() -> None:
    origins = "https://app.example http://localhost:5173  https://[::1]:8443"
    settings = Settings.from_environment({"GLEANERY_CORS_ORIGIN": origins})
    assert settings.cors_origin == tuple(origins.split())
    with pytest.raises(SettingsError, match=r"write https://b\.example instead of b\.example"):
        Settings.from_environment({"GLEANERY_CORS_ORIGIN": "https://a.example b.example"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("t", True), ("Y", True), (" on ", True), ("f", False), ("n", False), ("Off", False)],
)
def test_a_variable_has_the_same_words_for_true_and_false_as_an_option(
    text: str, value: bool
) -> None:
    url = "https://data.example.com"
    settings = Settings.from_environment({"GLEANERY_BEHIND_PROXY": text, "GLEANERY_BASE_URL": url})
    assert settings.behind_proxy is value


@pytest.mark.parametrize(
    ("host", "reason"),
    [("192.0.2.1", "Cannot assign requested address"), ("x.invalid", "there is no such host")],
)
def test_a_foreign_address_ends_the_start_with_one_sentence(
    tmp_path: Path, host: str, reason: str
) -> None:
    proxy = ("--behind-proxy", "--base-url", "https://data.example")
    ended = gleanery_in_process("serve", "--data", str(tmp_path), "--host", host, *proxy)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"gleanery: Cannot listen on {host} port 8000: {reason}. Give an address of this machine "
        "with --host\n"
    )


@pytest.mark.parametrize(
    "command", [["serve", "--port", "0"], ["keys", "list"], ["keys", "rotate"]]
)
def test_an_unreadable_secret_key_is_reported_even_if_the_database_is_down(
    tmp_path: Path, command: list[str]
) -> None:
    options = ["--data", str(tmp_path), "--database", "postgresql://127.0.0.1:1/x"]
    ended = gleanery_in_process(*command, *options, GLEANERY_SECRET_KEY="not a key")
    assert ended.returncode == 2
    assert "GLEANERY_SECRET_KEY must be 32 bytes in base64" in ended.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("password", ["pa#ss", "pa/ss", "pa?ss"])
def test_an_invalid_url_does_not_show_its_password(tmp_path: Path, password: str) -> None:
    key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
    url = f"postgresql://me:{password}@127.0.0.1:1/x"
    ended = gleanery("serve", "--data", str(tmp_path), "--database", url, GLEANERY_SECRET_KEY=key)
    assert ended.returncode == 2
    assert "pa" not in ended.stderr.replace("password", "").replace(str(tmp_path), "")


@pytest.mark.thorough
def test_a_port_in_use_is_one_sentence_and_creates_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = gleanery("serve", "--data", str(tmp_path / "data"), "--port", str(port))
    assert ended.returncode == 2
    assert "--port" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "data").exists()


# --- serving ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_tls_and_base_url(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    data, port = tmp_path / "data", free_port()
    options = ["--data", str(data), "--port", str(port), "--base-url", "https://data.example/x/"]
    with Running("serve", *options, "--tls-cert", str(cert), "--tls-key", str(key)) as running:
        trust = ssl.create_default_context(cafile=str(cert))
        url = f"https://127.0.0.1:{port}"
        running.wait_ready(url, verify=trust)
        with Client(url, token_in(data), verify=trust) as client:
            outputs = [{"job_id": "j", "source_url": str(n), "data": {}} for n in range(3)]
            client.store("group", *outputs)
            page = client.get("/v1/outputs/group?limit=2", headers={"Host": "evil"}).json()
            start = "https://data.example/x/v1/outputs/group?limit=2&cursor="
            assert page["metadata"]["next_url"].startswith(start)
            expiry = "gleanery_tls_certificate_expiry_timestamp_seconds"
            assert gauge(client.get("/metrics").text, expiry) > time.time()
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{HERE}:{port}/healthz")
        trust.maximum_version = ssl.TLSVersion.TLSv1_2
        trust.set_ciphers("ALL")  # even then the cipher is an AEAD
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            name, *_ = secured.cipher() or ("",)
            assert re.fullmatch("ECDHE-.*(GCM|CHACHA20).*", name)


@pytest.mark.thorough
def test_behind_a_proxy_plain_http_is_allowed(tmp_path: Path) -> None:
    port = free_port()
    options = ["--data", str(tmp_path), "--port", str(port), "--behind-proxy"]
    with Running("serve", *options, "--base-url", "https://data.example") as running:
        running.wait_ready(f"{HERE}:{port}")
        running.stop()
        assert "https://data.example" in "".join(running.log)


@pytest.mark.thorough
def test_workers_share_a_database_and_metrics(tmp_path: Path) -> None:
    port = free_port()
    with Running(
        "serve", "--data", str(tmp_path), "--port", str(port), "--workers", "2"
    ) as running:
        url = f"{HERE}:{port}"
        running.wait_ready(url)
        token = token_in(tmp_path)
        for number in range(20):
            with Client(url, token) as client:  # a new connection: any worker may take it
                client.store("group", {"job_id": "j", "source_url": str(number), "data": {}})
                assert len(client.items("group", limit=1000)) == number + 1
        count = 'gleanery_request_seconds_count{operation="store_outputs",status="200"} 20.0'
        with Client(url, None) as nobody:
            assert count in fresh_metrics(nobody)
        running.stop()
    lines = [json.loads(line) for line in running.log]
    serving = [line for line in lines if line["event"] == "serving"]
    assert serving[0]["workers"] == 2


@pytest.mark.thorough
@pytest.mark.parametrize(("workers", "has_tls"), [(1, True), (2, False)])
def test_health_checks_are_answered_when_every_worker_has_all_its_connections(
    tmp_path: Path, workers: int, has_tls: bool
) -> None:
    port, data = free_port(), tmp_path / "data"
    certificate, key = write_certificate(tmp_path)
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key)) if has_tls else ()
    limits = ("--workers", str(workers), "--max-connections", "3")
    url = f"{'https' if has_tls else 'http'}://127.0.0.1:{port}"
    trusted = ssl.create_default_context(cafile=certificate)

    def status(path: str) -> int:
        return httpx2.get(url + path, verify=trusted).status_code

    def open_request(token: str) -> socket.socket:
        """A request that waits for its body, unless it is above the limit of its worker."""
        plain = connect(url)
        held = trusted.wrap_socket(plain, server_hostname="127.0.0.1") if has_tls else plain
        lines = ("Content-Type: application/json", "Content-Length: 2", "Expect: 100-continue")
        held.sendall(request_head(Client(url, token), "POST", "/v1/cookies", *lines))
        held.recv(100)
        return held

    with (
        Running("serve", "--data", str(data), "--port", str(port), *limits, *tls) as running,
        ExitStack() as stack,
    ):
        running.wait_ready(url, trusted)
        token = token_in(data)

        def is_full() -> bool:
            stack.enter_context(open_request(token))
            text = httpx2.get(f"{url}/metrics", verify=trusted).text
            held = re.findall(r"^gleanery_requests_in_progress\{.*\} 3\.0$", text, re.M)
            return len(held) == workers

        wait_until(is_full)
        for _ in range(10):
            assert [status(path) for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
            assert status("/docs") == 503
        stack.close()  # a stop would wait for the bodies
        running.stop()
    assert any("the connection limit is reached" in line for line in running.log)


@pytest.mark.extended
@PROC
def test_a_worker_is_replaced_and_its_counts_stay_if_temporary_files_are_removed(
    tmp_path: Path,
) -> None:
    port, temporary = free_port(), tmp_path / "temporary"
    temporary.mkdir()
    options = ("--data", str(tmp_path / "data"), "--port", str(port), "--workers", "2")
    with Running("serve", *options, TMPDIR=str(temporary)) as running, ExitStack() as at_the_end:
        at_the_end.callback(running.stop)
        url = f"{HERE}:{port}"
        running.wait_ready(url)
        for _ in range(20):
            assert httpx2.get(f"{url}/nowhere").status_code == 404
        shutil.rmtree(temporary)  # as a cleaner of /tmp does
        workers = running.workers()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len({*running.workers()} - {*workers}) == 2)
        running.wait_ready(url)
        count = 'gleanery_request_seconds_count{operation="unmatched",status="404"} 20.0'
        with Client(url, None) as nobody:
            text = fresh_metrics(nobody)
        assert count in text
        assert "\ngleanery_worker_restarts_total 2.0\n" in text


@pytest.mark.extended
@PROC
def test_a_worker_that_is_suspended_for_seconds_is_not_replaced(tmp_path: Path) -> None:
    port = free_port()
    options = ("--data", str(tmp_path), "--port", str(port), "--workers", "2")
    with Running("serve", *options) as running, ExitStack() as at_the_end:
        at_the_end.callback(running.stop)
        running.wait_ready(f"{HERE}:{port}")
        workers = running.workers()
        os.kill(workers[0], signal.SIGSTOP)  # as on an overloaded machine
        time.sleep(7)  # less than the supervisor allows
        os.kill(workers[0], signal.SIGCONT)
        assert running.workers() == workers


def refuses_connections(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.thorough
def test_requests_in_flight_are_finished_on_sigterm(tmp_path: Path) -> None:
    port = free_port()
    with Running("serve", "--data", str(tmp_path), "--port", str(port)) as running:
        running.wait_ready(f"{HERE}:{port}")
        body = json.dumps([{"domain": "a.com", "name": "n", "value": "v"}]).encode()
        head = (
            "POST /v1/cookies HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {token_in(tmp_path)}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Expect: 100-continue\r\n\r\n"
        )
        with connect(f"{HERE}:{port}") as connection:
            connection.sendall(head.encode())
            assert b" 100 Continue" in connection.recv(100)  # its handler has begun
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: refuses_connections(port))
            connection.sendall(body)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert b" 200 " in answer.split(b"\r\n")[0]
        assert b'"created":1' in answer
        assert running.process.wait(TIMEOUT_SECONDS) == 0


@pytest.mark.extended
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_second_ctrl_c_does_not_prevent_the_stop(tmp_path: Path, workers: str) -> None:
    port = free_port()
    options = ("--data", str(tmp_path), "--port", str(port), "--workers", workers)
    with Running("serve", *options) as running:
        running.wait_ready(f"{HERE}:{port}")
        for _ in range(2):
            running.process.send_signal(signal.SIGINT)
            time.sleep(0.03)
        running.process.wait(TIMEOUT_SECONDS)


# --- variables ----------------------------------------------------------------------------------

KUBERNETES = {
    "GLEANERY_PORT": "tcp://10.0.0.7:8000",
    "GLEANERY_PORT_8000_TCP": "tcp://10.0.0.7:8000",
    "GLEANERY_PORT_8000_TCP_ADDR": "10.0.0.7",
    "GLEANERY_PORT_8000_TCP_PORT": "8000",
    "GLEANERY_PORT_8000_TCP_PROTO": "tcp",
    "GLEANERY_SERVICE_HOST": "10.0.0.7",
    "GLEANERY_SERVICE_PORT": "8000",
    "GLEANERY_SERVICE_PORT_HTTP": "8000",
    "GLEANERY_DB_PORT": "tcp://10.0.0.8:5432",
    "GLEANERY_DB_SERVICE_HOST": "10.0.0.8",
}


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [
        ("GLEANERY_DATABSE", "did you mean GLEANERY_DATABASE?"),
        ("GLEANERY_MAX_CONNECTION", "did you mean GLEANERY_MAX_CONNECTIONS?"),
        ("GLEANERY_ORGANISATION", "did you mean GLEANERY_ORGANIZATION?"),
        ("GLEANERY_QQQQ", "gleanery serve --help lists the variables"),
    ],
)
def test_an_unknown_variable_gets_a_warning(tmp_path: Path, variable: str, suggestion: str) -> None:
    told = gleanery_in_process("migrate", "--data", str(tmp_path), **{variable: "s3cret"})
    assert told.returncode == 0
    first, *_ = told.stderr.splitlines()
    assert first == f"gleanery: warning: unknown variable {variable}; {suggestion}"
    assert "s3cret" not in told.stderr
    assert told.stdout.endswith("The schema is up to date.\n")


@pytest.mark.parametrize(
    "variable", ["GLEANERY_DATABASE", "GLEANERY_SECRET_KEY", "GLEANERY_EXPIRES_IN"]
)
def test_an_empty_variable_is_rejected(tmp_path: Path, variable: str) -> None:
    command = ("token", "create", "--organization", "a", "--data", str(tmp_path / "data"))
    ended = gleanery_in_process(*command, **{variable: ""})
    assert ended.returncode == 2
    assert ended.stderr == f"gleanery: {variable} is empty: give it a value, or unset it\n"
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (("organization", "delete", "a"), "GLEANERY_YES"),
        (("organization", "delete", "a"), "GLEANERY_IGNORE_MISSING_FILES"),
        (("keys", "forget"), "GLEANERY_YES"),
        (("keys", "retire"), "GLEANERY_NOW"),
    ],
)
def test_no_variable_confirms_a_step(
    tmp_path: Path, command: tuple[str, ...], variable: str
) -> None:
    shown = gleanery_in_process(*command, "--help", **{variable: "1"})
    assert f"unknown variable {variable}" in shown.stderr
    assert f"env var: {variable}" not in shown.stdout


def test_the_variable_yes_deletes_no_organization(tmp_path: Path) -> None:
    token_in(tmp_path)
    command = ("organization", "delete", "a", "--data", str(tmp_path))
    ended = gleanery_in_process(*command, GLEANERY_YES="1")
    assert ended.returncode != 0
    listed = gleanery_in_process("organization", "list", "--data", str(tmp_path))
    assert "active" in listed.stdout


def test_known_variables_get_no_warning(tmp_path: Path) -> None:
    variables = {
        "GLEANERY_DATA": str(tmp_path),
        "GLEANERY_ORGANIZATION": "a",
        "GLEANERY_EXPIRES_IN": "1h",
        "GLEANERY_URL": "http://127.0.0.1:8000",
        "GLEANERY_TOKEN": "glean_x",
        "GLEANERY_BENCH_SECONDS": "1",
        "GLEANERY_FUZZ_EXAMPLES": "1",
    }
    made = gleanery_in_process("token", "create", **variables)
    assert made.returncode == 0, made.stderr
    assert "warning" not in made.stderr


def test_the_variables_of_a_kubernetes_service_are_ignored(tmp_path: Path) -> None:
    told = gleanery_in_process("serve", "--data", str(tmp_path), "--host", "x", **KUBERNETES)
    warning, problem = told.stderr.splitlines()
    assert warning.startswith("gleanery: warning: ignored the variables that Kubernetes sets")
    assert all(name in warning for name in KUBERNETES)
    assert "Plain HTTP on x" in problem  # not a message about --port
    assert Settings.from_environment(KUBERNETES).port == Settings().port


@pytest.mark.thorough
def test_a_service_starts_with_the_variables_of_kubernetes(tmp_path: Path) -> None:
    port, variables = str(free_port()), KUBERNETES | {"GLEANERY_LOG_LEVL": "debug"}
    with Running("serve", "--data", str(tmp_path), "--port", port, **variables) as running:
        running.wait_ready(f"{HERE}:{port}")
        running.stop()
    assert sum("did you mean GLEANERY_LOG_LEVEL?" in line for line in running.log) == 1


# --- what an operator sees ----------------------------------------------------------------------


def test_health_readiness_and_metrics(service: Service) -> None:
    with service.stranger() as nobody:
        assert nobody.get("/healthz").json() == {"status": "ok"}
        # An earlier test may have added a migration to this process, until a second ago.
        wait_until(lambda: nobody.get("/readyz").json() == {"status": "ready"})
        nobody.get("/v1/cookies")
        assert nobody.get("/metrics").headers["content-type"].startswith("text/plain")
        count = 'gleanery_request_seconds_count{operation="get_cookies",status="401"}'
        assert count in fresh_metrics(nobody)


def gauge(text: str, name: str, label: str = 'worker="1"') -> float:
    [value] = re.findall(rf"^{name}\{{{label}\}} (.*)$", text, re.M)
    return float(value)


def test_metrics_of_the_process_and_the_disk(service: Service) -> None:
    with service.stranger() as nobody:
        text = fresh_metrics(nobody)
    assert gauge(text, "process_start_time_seconds") <= time.time()
    assert gauge(text, "process_max_fds") > 0
    assert gauge(text, "gleanery_info", f'version="{__version__}"') == 1
    for folder in ("data", "blobs"):
        assert gauge(text, "gleanery_disk_free_bytes", f'folder="{folder}"') > 0
    assert "\ngleanery_worker_restarts_total 0.0\n" in text


def test_metrics_of_connections_and_requests(service: Service) -> None:
    with service.client() as client, service.stranger() as nobody:
        json_body = ("Content-Type: application/json", "Content-Length: 9")
        head = request_head(client, "POST", "/v1/cookies", *json_body, "Expect: 100-continue")
        with connect(service.url) as connection:
            connection.sendall(head)
            assert b" 100 Continue" in connection.recv(100)  # the request is in progress
            text = fresh_metrics(nobody)
            assert gauge(text, "gleanery_requests_in_progress") == 1  # the scrape holds no slot
            assert gauge(text, "gleanery_connections_open") >= 2
    for kind in ("long_polls", "transfers"):
        assert gauge(text, f"gleanery_{kind}_in_progress") == 0


def test_metrics_of_the_database_pool(service: Service) -> None:
    with service.stranger() as nobody:
        text = fresh_metrics(nobody)
    if service.settings.database is None:
        assert "gleanery_postgres" not in text
    else:
        size = service.settings.pool_size
        assert gauge(text, "gleanery_postgres_pool_connections_max") == size
        assert 0 <= gauge(text, "gleanery_postgres_pool_connections_in_use") <= size
        assert gauge(text, "gleanery_postgres_pool_requests_waiting") >= 0


def test_every_metric_has_its_type_and_its_line_in_the_documentation(service: Service) -> None:
    with service.stranger() as nobody:
        text = fresh_metrics(nobody)
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    assert types.keys() == dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.M)).keys()
    samples = re.findall(r"^(\w+?)(?:_bucket|_count|_sum)?(?:\{[^}]*\})? \S+$", text, re.M)
    measured_by_sweep = {"gleanery_organization_storage_bytes"}  # without a value before the first
    assert {*samples} | measured_by_sweep == types.keys()
    assert all(name.endswith("_total") == (type_ == "counter") for name, type_ in types.items())
    page = (Path(__file__).parents[2] / "docs/operations/monitor.md").read_text()
    names = {*types, *(metric.name for metric in (*GAUGES, *COUNTERS))}
    assert [name for name in sorted(names) if f"`{name}" not in page] == []


MANY = 100


def test_the_metrics_are_rendered_at_most_once_per_second(service: Service) -> None:
    """Each scrape is counted, so each rendering has another text."""
    with service.stranger() as nobody:
        began = time.monotonic()
        texts = {nobody.get("/metrics").text for _ in range(MANY)}
        assert len(texts) <= time.monotonic() - began + 2


def test_many_requests_for_the_readiness_do_not_check_the_database_often(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SqliteDatabase if service.settings.database is None else PostgresDatabase
    checks = note_calls(monkeypatch, engine, "schema_state")
    began = time.monotonic()
    with service.stranger() as nobody:
        for _ in range(MANY):
            assert nobody.get("/readyz").status_code == 200
    most = max(Counter(database for (database, *_) in checks).values(), default=0)
    # Once per second for these requests, and once by itself.
    assert most <= 2 * (time.monotonic() - began + 2)


def test_head_works_wherever_get_does(service: Service) -> None:
    from gleanery.service.application import OPERATIONS

    with service.client() as client:
        query = {"source_url": "u"}
        id_ = client.post("/v1/files", params=query, content=b"bytes").json()["id"]
        files = [{"field": "f", "id": id_}]
        client.store("group", {"job_id": "j", "source_url": "u", "data": {}, "files": files})
        [item] = client.items("group")
        link = item["files"][0]["blob_url"]
        review = client.post("/v1/reviews/group", json={"job_id": "j", "status": "pending"}).json()
        run = client.post("/v1/runs/group", json={"job_id": "j"}).json()
        client.put("/v1/monitors/group", json=[{"kind": "failed_run"}])
        failed = client.post(f"/v1/runs/group/{run['run_id']}/finish", json={"status": "failed"})
        assert failed.status_code == 200
        [alert] = client.get("/v1/alerts").json()["alerts"]
        target = {"url": "https://receiver.invalid", "events": ["test"]}
        webhook = client.post("/v1/webhooks", json=target).json()
        special = {
            "/v1/reviews/{group_id}/sample": "/v1/reviews/group/sample?job_id=j&seed=a",
            "/v1/files": "/v1/files?source_url=u",
            "/v1/blobs/{id}": link,
            "/v1/exports/{group_id}/{file_name}": export_link(client),
        }
        for operation in OPERATIONS:
            if operation.method == "GET":
                path = special.get(operation.path, operation.path)
                path = path.replace("{group_id}", "group").replace("{id}", id_)
                path = path.replace("{output_id}", item["output_id"])
                path = path.replace("{review_id}", review["review_id"])
                path = path.replace("{run_id}", run["run_id"])
                path = path.replace("{webhook_id}", webhook["id"])
                path = path.replace("{alert_id}", alert["alert_id"])
                got, head = client.get(path), client.head(path)
                assert (head.status_code, head.content) == (got.status_code, b"")
                assert got.status_code == (307 if operation.path == "/" else 200)
                assert head.headers.get("content-type") == got.headers.get("content-type")
                if operation.name != "metrics":  # it counts one more request
                    for name in ("content-length", "transfer-encoding"):
                        assert head.headers.get(name) == got.headers.get(name), path
        assert client.head("/v1/outputs/unknown").status_code == 404


def test_every_response_has_a_request_id_that_a_proxy_may_set(service: Service) -> None:
    with service.client() as client:
        made = {client.get("/v1/cookies").headers["x-request-id"] for _ in range(5)}
        assert len(made) == 5
        for sent, kept in (("abc-1.2_3", True), ("a b", False), ("x" * 65, False)):
            answer = client.get("/v1/cookies", headers={"X-Request-ID": sent})
            assert (answer.headers["x-request-id"] == sent) is kept
        assert client.get("/nowhere", headers={"X-Request-ID": "a"}).headers["x-request-id"] == "a"


def test_responses_forbid_caching_and_sniffing(client: Client) -> None:
    answer = client.get("/v1/cookies")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_no_other_origin_is_allowed(client: Client) -> None:
    origin = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    for answer in (
        client.get("/v1/cookies", headers=origin),
        client.request("OPTIONS", "/v1/cookies", headers=origin),
    ):
        assert not any(name.startswith("access-control") for name in answer.headers)
    assert answer.status_code == 405


@pytest.mark.thorough
def test_each_request_is_one_json_log_line_with_its_id(tmp_path: Path) -> None:
    port = free_port()
    with Running("serve", "--data", str(tmp_path), "--port", str(port)) as running:
        running.wait_ready(f"{HERE}:{port}")
        httpx2.get(f"{HERE}:{port}/%1b%5b2J", headers={"X-Request-ID": "escape"})
        httpx2.get(f"{HERE}:{port}/v1/outputs/x?q=1", headers={"X-Request-ID": "find-me"})
        running.stop()
    lines = [json.loads(line) for line in running.log]
    [line] = [line for line in lines if line.get("request_id") == "find-me"]
    [escape] = [line for line in lines if line.get("request_id") == "escape"]
    assert "\x1b" not in escape["path"]  # still percent-encoded: no escape sequence for a terminal
    assert (line["event"], line["level"]) == ("request", "info")
    assert (line["method"], line["path"]) == ("GET", "/v1/outputs/x")
    assert (line["operation"], line["status"]) == ("get_outputs", 401)
    assert line["milliseconds"] >= 0
    assert line["timestamp"].endswith("Z")


@pytest.mark.thorough
def test_the_log_says_that_a_database_is_new(tmp_path: Path) -> None:
    for is_new in (True, False):
        port = free_port()
        with Running("serve", "--data", str(tmp_path / "data"), "--port", str(port)) as running:
            running.wait_ready(f"{HERE}:{port}")
            running.stop()
        lines = [json.loads(line) for line in running.log]
        created = [line["data"] for line in lines if line["event"] == "created a new database"]
        assert created == ([str(tmp_path / "data")] if is_new else [])


@pytest.mark.thorough
def test_serve_without_options_uses_the_current_folder(tmp_path: Path) -> None:
    import subprocess
    import sys

    port = str(free_port())
    process = subprocess.Popen(
        [sys.executable, "-m", "gleanery", "serve"],
        cwd=tmp_path,
        env=environment(GLEANERY_PORT=port),
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: is_ready(f"{HERE}:{port}"))
        assert (tmp_path / "gleanery-data" / "gleanery.sqlite").exists()
        assert (tmp_path / "gleanery-data").stat().st_mode & 0o777 == 0o700
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
