"""Upload of an export to S3: a multipart upload that is completed at the end."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gleanery.tables.export import ExportFailed, InvalidExport, already_exists, require

_PART_BYTES = 16 * 1024 * 1024  # an upload has at most 10,000 parts: 160 GB
_CONCURRENT_PARTS = 2
_REQUEST_SECONDS, _RETRY_SECONDS = 60, 120
_WAIT_SECONDS = 0.5


class _Aborted(Exception):
    """The caller does not want the object any more."""


class S3Object:
    """An object that appears when its upload is completed.

    The library reads the bytes in a thread, from a queue that holds one part.
    """

    def __init__(self, url: str, overwrite: bool) -> None:
        self.name = url
        self._obstore = require("obstore", "s3")
        require("obstore.store", "s3")
        self._store, self._key = self._open_bucket(url)
        self._overwrite = overwrite
        self._check_is_new()
        self._pending = bytearray()
        self._parts: queue.Queue[bytes | None] = queue.Queue(maxsize=1)
        self._is_aborted = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._upload, name="upload", daemon=True)
        self._thread.start()

    def _open_bucket(self, url: str) -> tuple[Any, str]:
        parts = urlsplit(url)
        key = url.removeprefix(f"s3://{parts.netloc}/")
        if not parts.netloc or not key or key == url or key.endswith("/"):
            raise InvalidExport("A destination in S3 has the form s3://bucket/key")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        options: dict[str, Any] = {"aws_endpoint_url_s3": endpoint} if endpoint else {}
        if "AWS_REGION" not in os.environ and "AWS_DEFAULT_REGION" not in os.environ:
            options["region"] = "us-east-1"
        store = self._obstore.store.S3Store(
            parts.netloc,
            client_options={
                "allow_http": urlsplit(endpoint or "").scheme == "http",
                "timeout": timedelta(seconds=_REQUEST_SECONDS),
            },
            retry_config={"retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
            **options,
        )
        return store, key

    def _check_is_new(self) -> None:
        if self._overwrite:
            return
        try:
            self._obstore.head(self._store, self._key)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._failure(error) from None
        raise already_exists(self.name)

    def _upload(self) -> None:
        try:
            self._obstore.put(
                self._store,
                self._key,
                self._read_parts(),
                use_multipart=True,
                chunk_size=_PART_BYTES,
                max_concurrency=_CONCURRENT_PARTS,
            )
        except BaseException as error:  # an error inside the library is not an Exception
            self._error = error

    def _read_parts(self) -> Iterator[bytes]:
        """Yield the parts. An error that this raises makes the library abort the upload."""
        while (part := self._parts.get()) is not None:
            yield part
        if self._is_aborted:
            raise _Aborted

    def write(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) >= _PART_BYTES:
            self._send(bytes(self._pending[:_PART_BYTES]))
            del self._pending[:_PART_BYTES]

    def _send(self, part: bytes | None) -> None:
        """Give a part to the thread, or raise the error with which it ended."""
        while self._thread.is_alive():
            try:
                return self._parts.put(part, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue
        if self._error:
            raise self._failure(self._error)

    def adopt(self, path: Path) -> None:
        with path.open("rb") as stream:
            while data := stream.read(_PART_BYTES):
                self.write(data)

    def publish(self) -> None:
        if self._pending:
            self._send(bytes(self._pending))
        self._check_is_new()  # as late as possible: the library completes an upload in any case
        self._send(None)
        self._thread.join()
        if self._error:
            raise self._failure(self._error)

    def discard(self) -> None:
        self._is_aborted = True
        while self._thread.is_alive():
            self._make_room()
            self._parts.put(None)
            self._thread.join(_WAIT_SECONDS)

    def _make_room(self) -> None:
        try:
            self._parts.get_nowait()
        except queue.Empty:
            return

    def _failure(self, error: BaseException) -> ExportFailed:
        """Return the error with the first line of the library's message."""
        reason = str(error).partition("\n")[0]
        return ExportFailed(
            f"Cannot write {self.name}: {reason}. Check the bucket, AWS_ENDPOINT_URL, AWS_REGION, "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )


def open_object(url: str, overwrite: bool) -> S3Object:
    return S3Object(url, overwrite)
