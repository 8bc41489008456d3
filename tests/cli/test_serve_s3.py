"""``gleanery serve`` with a bucket: mistakes end the start, a failure of the store does not."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.files import upload
from tests.support.forwarder import Forwarder
from tests.support.metrics import fresh_metrics
from tests.support.process import PROC, free_port, gleanery_in_process, new_token, serving_process
from tests.support.s3 import PLACE, Bucket, Credentials
from tests.support.service import Client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough


def failed_start(tmp_path: Path, blobs: str = PLACE, **variables: str) -> str:
    """Runs ``gleanery serve``, which must end before it creates anything; returns its sentence."""
    data = tmp_path / "data"
    options = ("--data", str(data), "--port", str(free_port()), "--log-level", "warning")
    ended = gleanery_in_process("serve", *options, "--blobs", blobs, **variables)
    assert ended.returncode == 2
    [sentence] = ended.stderr.splitlines()
    assert not data.exists()
    return sentence


def test_a_missing_bucket_ends_the_start(bucket: Bucket, tmp_path: Path) -> None:
    sentence = failed_start(tmp_path, "s3://missing/prefix")
    assert "Cannot use the bucket s3://missing/prefix: it does not exist" in sentence


def test_missing_credentials_end_the_start(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Credentials()
    machine.are_known = False
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    sentence = failed_start(tmp_path, AWS_METADATA_ENDPOINT=machine.url)
    machine.stop()
    assert "there are no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in sentence


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ("403 Forbidden", "AccessDenied", "the store denies access (AccessDenied)"),
        ("403 Forbidden", "InvalidAccessKeyId", "Check AWS_ACCESS_KEY_ID"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "Set AWS_REGION to its region"),
        ("301 Moved Permanently", "PermanentRedirect", "Set AWS_REGION to its region"),
        ("400 Bad Request", "ExpiredToken", "responds with 400 (ExpiredToken)"),
        ("503 Service Unavailable", "SlowDown", "Cannot reach the store of files"),
    ],
)
def test_a_rejected_request_ends_the_start(
    bucket: Bucket, tmp_path: Path, status: str, code: str, words: str
) -> None:
    bucket.rejection = (status, code)
    try:
        sentence = failed_start(tmp_path)
    finally:
        bucket.rejection = None
    assert words in sentence


@contextmanager
def other_web_server() -> Iterator[str]:
    """A web server that has a page for every path, such as the console of an S3 service."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "13")
            self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"<html></html>")

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_an_endpoint_that_is_not_s3_ends_the_start(bucket: Bucket, tmp_path: Path) -> None:
    with other_web_server() as url:
        assert "is not an S3 service" in failed_start(tmp_path, AWS_ENDPOINT_URL=url)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "ftp://127.0.0.1", "http://a b", ""])
def test_an_invalid_endpoint_ends_the_start(bucket: Bucket, tmp_path: Path, endpoint: str) -> None:
    sentence = failed_start(tmp_path, AWS_ENDPOINT_URL=endpoint)
    assert "AWS_ENDPOINT_URL must be an http or https URL" in sentence


def test_an_invalid_bucket_name_ends_the_start(bucket: Bucket, tmp_path: Path) -> None:
    assert "--blobs must be a folder or" in failed_start(tmp_path, "s3://my bucket/prefix")


def test_an_unreachable_endpoint_ends_the_start(bucket: Bucket, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    sentence = failed_start(tmp_path, AWS_ENDPOINT_URL=url)
    assert f"Cannot reach the store of files {PLACE}" in sentence


@pytest.mark.extended
def test_a_silent_endpoint_ends_the_start(bucket: Bucket, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        sentence = failed_start(tmp_path, AWS_ENDPOINT_URL=url)
    assert f"Cannot reach the store of files {PLACE}" in sentence


@pytest.mark.extended
@PROC
def test_a_worker_is_replaced_while_the_store_fails(bucket: Bucket, tmp_path: Path) -> None:
    where = ["--data", str(tmp_path)]
    with serving_process(where, "--blobs", PLACE, "--workers", "2") as (url, running):
        before = set(running.workers())
        bucket.failing = 10**6
        try:
            for worker in before:
                os.kill(worker, signal.SIGKILL)
            wait_until(lambda: len(set(running.workers()) - before) == 2)
            running.wait_ready(url)
        finally:
            bucket.failing = 0
        with Client(url, new_token(where)) as client:
            assert upload(client, b"after the failure")["size"] == 17


def store_metrics(client: Client) -> tuple[float, float]:
    """Whether the store fails, and how often it has."""
    text = fresh_metrics(client)
    [failing] = re.findall(r'^gleanery_blob_store_failing\{worker="1"\} (\S+)', text, re.M)
    [errors] = re.findall(r"^gleanery_blob_store_errors_total (\S+)", text, re.M)
    return float(failing), float(errors)


@pytest.mark.extended
@pytest.mark.parametrize("refuses", [True, False])
def test_a_store_that_does_not_answer_is_reported(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    forwarder = Forwarder(("127.0.0.1", bucket.port))
    forwarder.start()
    where = ["--data", str(tmp_path)]
    endpoint = f"http://127.0.0.1:{forwarder.port}"
    with (
        serving_process(where, "--blobs", PLACE, AWS_ENDPOINT_URL=endpoint) as (url, running),
        Client(url, new_token(where)) as client,
    ):
        file_id = upload(client, b"before the failure")["id"]
        assert store_metrics(client) == (0, 0)
        forwarder.stop() if refuses else forwarder.freeze()
        client.timeout = 45  # seconds; two requests to a silent store took a minute
        answers = (
            client.post("/v1/files", content=b"meanwhile"),
            client.get(f"/v1/files/{file_id}"),
        )
        assert [answer.status_code for answer in answers] == [503, 503]
        assert all("retry-after" in answer.headers for answer in answers)
        failing, errors = store_metrics(client)
        assert failing == 1
        assert errors >= 2
        assert client.get("/v1/cookies").status_code == 200
        forwarder.start() if refuses else forwarder.thaw()
        wait_until(lambda: store_metrics(client)[0] == 0)
        assert upload(client, b"after the failure")["size"] == 17
    forwarder.stop()
    log = "".join(running.log)
    assert log.count('"the store of files fails"') == 1
    assert log.count('"the store of files works again"') == 1


@pytest.mark.extended
def test_a_store_that_fails_is_found_without_a_request(bucket: Bucket, tmp_path: Path) -> None:
    where = ["--data", str(tmp_path)]
    with serving_process(where, "--blobs", PLACE) as (url, _):
        bucket.failing = 10**6
        try:
            with Client(url, new_token(where)) as client:
                wait_until(lambda: store_metrics(client)[0] == 1)
        finally:
            bucket.failing = 0
