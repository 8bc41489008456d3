"""A real S3 endpoint for tests, on this machine, with network failures on demand."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote

BUCKET = "files"
PLACE = f"s3://{BUCKET}/some/prefix"


class Bucket:
    """A bucket with its own endpoint."""

    def __init__(self) -> None:
        # They take more than a second to import, and most tests need none of them.
        import boto3
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._app: Any = DomainDispatcherApplication(create_backend_app)
        self.failing = 0
        """Number of requests that will get 500."""
        self.rejection: tuple[str, str] | None = None
        """Status line and error code that every request gets, as the service words them."""
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
        os.environ.update(self.variables)  # as an operator does
        self.client: Any = boto3.client("s3")
        self.client.create_bucket(Bucket=BUCKET)

    def _answer(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        if self.failing > 0:
            self.failing -= 1
            start_response("500 Internal Server Error", [("Content-Length", "0")])
            return [b""]
        if self.rejection is not None:
            status, code = self.rejection
            start_response(status, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>No</Message></Error>".encode()]
        if "X-Amz-Signature=" in environ["QUERY_STRING"] and not _is_signed(environ):
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SignatureDoesNotMatch</Code></Error>"]
        answer: Iterable[bytes] = self._app(environ, start_response)
        return answer

    def keys(self) -> list[str]:
        """All objects, and the parts of uploads that were neither completed nor aborted."""
        listed = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        pending = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return [one["Key"] for one in (*listed, *pending)]

    def parts(self) -> list[int]:
        """Sizes of the parts of unfinished uploads."""
        pending = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return [
            part["Size"]
            for one in pending
            for part in self.client.list_parts(
                Bucket=BUCKET, Key=one["Key"], UploadId=one["UploadId"]
            ).get("Parts", [])
        ]

    def stop(self) -> None:
        self._server.shutdown()


def _is_signed(environ: Any) -> bool:
    """Checks the signature of a link, which moto does not: it is valid for one host and path."""
    query = dict(parse_qsl(environ["QUERY_STRING"]))
    given = query.pop("X-Amz-Signature")
    names = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(query.items()))
    lines = (
        environ["REQUEST_METHOD"],
        environ["RAW_URI"].partition("?")[0],
        names,
        f"host:{environ['HTTP_HOST']}\n",
        "host",
        "UNSIGNED-PAYLOAD",
    )
    scope = query["X-Amz-Credential"].partition("/")[2]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, digest))
    key = b"AWS4test"
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.compare_digest(key.hex(), given)


class Credentials:
    """Fake metadata service of a cloud machine: returns keys for one minute, or none."""

    def __init__(self) -> None:
        from werkzeug.serving import make_server

        self.are_known = True
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        start_response("200 OK" if self.are_known else "404 Not Found", [])
        if not path.endswith("/role"):
            return [b"token" if path.endswith("/token") else b"role"]
        ends = datetime.now(UTC) + timedelta(minutes=1)
        keys = {"AccessKeyId": "test", "SecretAccessKey": "test", "Token": "test"}
        return [json.dumps(keys | {"Expiration": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}).encode()]

    def stop(self) -> None:
        self._server.shutdown()
