"""Certificates: reloading, expiry, and files that cannot be used."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import (
    connect_tls,
    serial_number,
    served_serial_number,
    unverified_context,
    write_certificate,
)
from tests.support.process import PROC, Running, free_port, gleanery_in_process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

WORKERS = pytest.mark.parametrize("workers", [1, 2])


@contextmanager
def serving(folder: Path, workers: int = 1) -> Iterator[tuple[Running, int]]:
    port = free_port()
    files = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    options = ("--data", str(folder / "data"), "--port", str(port), "--workers", str(workers))
    with Running("serve", *options, *files) as running:
        running.wait_ready(f"https://127.0.0.1:{port}", unverified_context())
        if workers > 1:
            running.wait_for(lambda: count(running, "a worker process serves") == workers)
        yield running, port
        running.stop()


def events(running: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in running.log]


def has_event(running: Running, start: str) -> bool:
    return any(event["event"].startswith(start) for event in events(running))


def count(running: Running, name: str) -> int:
    return sum(event["event"] == name for event in events(running))


def reload_count(running: Running) -> int:
    return count(running, "loaded the TLS certificate")


@WORKERS
def test_a_replaced_certificate_is_used_for_new_connections(tmp_path: Path, workers: int) -> None:
    write_certificate(tmp_path)
    with serving(tmp_path, workers) as (running, port), connect_tls(port) as open_before:
        certificate, _ = write_certificate(tmp_path)
        wait_until(lambda: reload_count(running) == workers)
        for _ in range(10):  # any worker may answer
            assert served_serial_number(port) == serial_number(certificate)
        open_before.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in open_before.recv(65536)


@WORKERS
def test_sighup_reloads_the_certificate(tmp_path: Path, workers: int) -> None:
    write_certificate(tmp_path)
    with serving(tmp_path, workers) as (running, _):
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: reload_count(running) == workers)
        assert running.stop() == 0


def test_an_expired_certificate_does_not_replace_a_valid_one(tmp_path: Path) -> None:
    certificate, _ = write_certificate(tmp_path)
    valid = serial_number(certificate)
    with serving(tmp_path) as (running, port):
        write_certificate(tmp_path, days=-1)
        wait_until(
            lambda: any("has expired" in str(line.get("reason")) for line in events(running))
        )
        assert served_serial_number(port) == valid


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    _, key = write_certificate(tmp_path)
    with serving(tmp_path) as (running, _):
        key.unlink()
        wait_until(lambda: any(str(key) in str(line.get("reason")) for line in events(running)))


def test_an_invalid_certificate_does_not_replace_a_valid_one(tmp_path: Path) -> None:
    certificate, _ = write_certificate(tmp_path)
    valid = serial_number(certificate)
    with serving(tmp_path) as (running, port):
        certificate.write_text("not a certificate")
        wait_until(lambda: has_event(running, "the TLS certificate was not reloaded"))
        assert served_serial_number(port) == valid
        certificate, _ = write_certificate(tmp_path)
        wait_until(lambda: served_serial_number(port) == serial_number(certificate))


def test_a_certificate_that_became_a_pipe_does_not_stop_the_service(tmp_path: Path) -> None:
    certificate, _ = write_certificate(tmp_path)
    valid = serial_number(certificate)
    with serving(tmp_path) as (running, port):
        certificate.unlink()
        os.mkfifo(certificate)
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: has_event(running, "the TLS certificate was not reloaded"))
        assert served_serial_number(port) == valid


@pytest.mark.extended
@PROC
def test_a_worker_that_cannot_read_its_certificate_logs_one_line(tmp_path: Path) -> None:
    certificate, _ = write_certificate(tmp_path)
    with serving(tmp_path, workers=2) as (running, _):
        certificate.write_text("not a certificate")
        os.kill(running.workers()[0], signal.SIGKILL)
        running.wait_for(lambda: has_event(running, "a worker process failed"))
        write_certificate(tmp_path)
        running.wait_for(lambda: count(running, "a worker process serves") == 3)


@pytest.mark.parametrize(
    ("days", "level", "event"),
    [
        (-1, "error", "the TLS certificate has expired"),
        (3, "warning", "the TLS certificate expires soon"),
    ],
)
def test_the_log_warns_of_an_expiry(tmp_path: Path, days: int, level: str, event: str) -> None:
    write_certificate(tmp_path, days)
    with serving(tmp_path) as (running, _):
        wait_until(lambda: has_event(running, event))
    [found] = [line for line in events(running) if line["event"].startswith(event)]
    assert found["level"] == level


def test_the_key_of_another_certificate_is_reported(tmp_path: Path) -> None:
    certificate, _ = write_certificate(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    _, key = write_certificate(other)
    files = ("--tls-cert", str(certificate), "--tls-key", str(key))
    ended = gleanery_in_process("serve", "--data", str(tmp_path / "data"), *files)
    assert ended.stderr == "gleanery: --tls-key is not the private key of --tls-cert\n"


def test_an_encrypted_key_is_reported(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, password=b"secret")
    files = ("--tls-cert", str(certificate), "--tls-key", str(key))
    ended = gleanery_in_process("serve", "--data", str(tmp_path / "data"), *files)
    assert ended.returncode == 2
    assert ended.stderr.startswith("gleanery: The private key of --tls-key is encrypted")
    assert not (tmp_path / "data").exists()
