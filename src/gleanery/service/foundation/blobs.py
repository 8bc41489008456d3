"""Blob store for the bytes of files: a folder, or a bucket of an S3-compatible service.

Keys are random and contain nothing that a client sent. A failed upload leaves no data,
except parts in a bucket if the process was killed.

Each use shows whether the store works. A worker also probes it from time to time, so that the
metrics show a failure before a client meets it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import secrets
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.store import LocalStore, ObjectStore, S3Store

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import DISK_FULL, Unavailable
from gleanery.service.foundation.folders import create_private_folder

_CONCURRENT_PARTS = 3
_MAX_S3_PARTS = 10_000
_UPLOAD_SECONDS = 12 * 3600.0  # well below the time after which unreferenced blobs are removed
_READ_BYTES = 1024 * 1024
_RETRY_SECONDS, _REQUEST_SECONDS = 10, 15  # three parts of 5 MiB take 15 s with 8 Mbit/s
_CHECK_SECONDS = 10
_PROBE_SECONDS = 5
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+(/[!-~]*)?")
_STATUS = re.compile(r"status code: ([0-9]{3})")
_ERROR_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_NO_BLOBS = "The store of files is not available now; try again"
_MOVED = (
    "the folder of files was moved, replaced or deleted: put it back, or restart the service to "
    "use what is there now"
)
_REGION_ERRORS = ("AuthorizationHeaderMalformed", "PermanentRedirect", "configured region")


_log = logging.getLogger("gleanery")


def new_key(organization_id: int) -> str:
    """Return a unique key. Keys are spread over folders, because large folders are slow."""
    name = secrets.token_hex(16)
    return f"{organization_id}/{name[:2]}/{name}"


class Blobs:
    """Blobs by key."""

    _min_part_bytes = 1024 * 1024

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.errors = 0
        """Number of uses that failed because of the store."""
        self.is_failing = False
        """True if the last use failed because of the store."""

    async def check(self) -> None:
        """Check that the store can be used.

        Raise SettingsError if a setting is wrong, and Unavailable if the store does not respond.
        """

    async def put(
        self, key: str, media_type: str, chunks: AsyncIterator[bytes], max_bytes: int
    ) -> None:
        """Store the chunks durably, all or nothing. Together they have at most ``max_bytes``."""
        with self._used():
            async with asyncio.timeout(_UPLOAD_SECONDS):
                await obstore.put_async(
                    self._store,
                    key,
                    chunks,
                    attributes=self._attributes(media_type),
                    chunk_size=self._part_bytes(max_bytes),
                    max_concurrency=_CONCURRENT_PARTS,
                )

    async def read(self, key: str, start: int, stop: int) -> AsyncGenerator[bytes]:
        """Yield the bytes from start to stop in chunks.

        Each chunk is a separate request, so a slow client holds no connection to the store.
        """
        while start < stop:
            end = min(start + _READ_BYTES, stop)
            with self._used():
                try:
                    piece = await obstore.get_range_async(self._store, key, start=start, end=end)
                except FileNotFoundError:
                    raise BlobNotFound(key) from None
            yield bytes(piece)
            start = end

    async def exists(self, key: str) -> bool:
        with self._used():
            try:
                await obstore.head_async(self._store, key)
            except FileNotFoundError:
                return False
            return True

    async def copy(self, key: str, to: str) -> None:
        with self._used():
            await obstore.copy_async(self._store, key, to)

    async def delete(self, key: str) -> None:
        """Delete a blob, if it exists."""
        with self._used(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, key)

    async def delete_folder(self, name: str) -> None:
        """Delete all blobs whose keys start with this folder."""
        with self._used():
            async for found in obstore.list(self._store, prefix=name):
                await obstore.delete_async(self._store, [blob["path"] for blob in found])

    async def probe(self) -> None:
        """Find out whether the store works, for ``is_failing``."""
        with suppress(Unavailable), self._used():
            await asyncio.to_thread(self._probe)

    def _probe(self) -> None:
        """Use the store. Raise an error of the store if it fails."""
        raise NotImplementedError

    @property
    def is_away(self) -> bool:
        """True if nothing can be deleted now, so that a request should not try it."""
        return False

    @contextmanager
    def _used(self, *, is_proof: bool = True) -> Iterator[None]:
        """Note whether the store works, and convert its errors to Unavailable.

        Work that sends no request to the store does not prove that it works.
        """
        try:
            yield
        except (obstore.exceptions.BaseError, OSError) as error:
            self._note_failure(_reason(error))
            raise Unavailable(_NO_BLOBS, _reason(error)) from error
        if self.is_failing and is_proof:
            self.is_failing = False
            _log.warning("the store of files works again")

    def _note_failure(self, reason: str) -> None:
        self.errors += 1
        if not self.is_failing:
            self.is_failing = True
            _log.error("the store of files fails", extra={"reason": reason})

    def _part_bytes(self, max_bytes: int) -> int:
        return self._min_part_bytes

    def _attributes(self, media_type: str) -> Any:
        return None


class FolderBlobs(Blobs):
    """Blobs as files in a folder. A new folder is private to its owner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            create_private_folder(folder)
            self._identity = _identity(folder)
            super().__init__(LocalStore(prefix=folder.absolute(), automatic_cleanup=False))
        except OSError as error:
            raise SettingsError(
                f"Cannot store files in {folder.absolute()}: {error.strerror}. Choose another "
                "folder with --blobs or --data, or change its owner"
            ) from None

    async def put(
        self, key: str, media_type: str, chunks: AsyncIterator[bytes], max_bytes: int
    ) -> None:
        await super().put(key, media_type, chunks, max_bytes)
        with self._used():
            await asyncio.to_thread(self._sync, self._folder / key)
            if _identity(self._folder) != self._identity:
                raise OSError(_MOVED)

    async def delete(self, key: str) -> None:
        await super().delete(key)
        # A process that was killed leaves an incomplete blob under this name.
        part = (self._folder / key).with_name(key.rpartition("/")[2] + "#1")
        with self._used():
            await asyncio.to_thread(part.unlink, missing_ok=True)

    async def delete_folder(self, name: str) -> None:
        """Also delete incomplete blobs, which the store does not list, and the folder itself."""
        with self._used(), suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, self._folder / name)

    def _probe(self) -> None:
        self._folder.stat()

    def _sync(self, path: Path) -> None:
        """Make the file and its parent folders durable."""
        for entry in (path, *path.parents):
            descriptor = os.open(entry, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if entry == self._folder:
                return


def _identity(folder: Path) -> tuple[int, int]:
    """Return what tells the folder from another one, such as that below a disk that is gone."""
    status = folder.stat()
    return status.st_dev, status.st_ino


class S3Blobs(Blobs):
    """Blobs as objects in a bucket. The AWS variables give endpoint and credentials.

    Links contain ``public_url`` instead of that endpoint, if it is given.
    """

    _min_part_bytes = 5 * 1024 * 1024  # the minimum of S3

    def __init__(self, url: str, public_url: str | None = None) -> None:
        self._url = url
        endpoint = _endpoint()
        store = _open_bucket(url, endpoint)
        self._signing_store = _open_bucket(url, public_url) if public_url else store
        super().__init__(store)

    async def check(self) -> None:
        """Check credentials, endpoint, region and bucket. Nothing is written.

        The asynchronous functions of the S3 library abort the process if it ends soon afterwards.
        """
        await asyncio.to_thread(_check_bucket, self._url)

    async def sign(self, keys: Sequence[str], seconds: int) -> Sequence[str]:
        """Return links to the blobs that are valid for this time without credentials."""
        with self._used(is_proof=False):
            lifetime = timedelta(seconds=seconds)
            return await obstore.sign_async(self._signing_store, "GET", list(keys), lifetime)

    @property
    def is_away(self) -> bool:
        return self.is_failing

    def _probe(self) -> None:
        """Ask for an object that does not exist. See ``check`` for why this does not await."""
        store = _open_bucket(self._url, _endpoint(), _PROBE_SECONDS, _PROBE_SECONDS)
        with suppress(FileNotFoundError):
            obstore.head(store, new_key(0))

    def _part_bytes(self, max_bytes: int) -> int:
        """Return a size for which the largest possible upload has few enough parts."""
        return max(self._min_part_bytes, -(-max_bytes // _MAX_S3_PARTS))

    def _attributes(self, media_type: str) -> Any:
        return {"Content-Type": media_type, "Content-Disposition": "attachment"}


def _endpoint() -> str | None:
    """Read the URL of the S3 service from the environment; None for Amazon S3."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if (endpoint := os.environ.get(name)) is not None:
            if not _ENDPOINT.fullmatch(endpoint):
                raise SettingsError(f"{name} must be an http or https URL")
            return endpoint
    return None


def _open_bucket(
    url: str,
    endpoint: str | None,
    request_seconds: int = _REQUEST_SECONDS,
    retry_seconds: int = _RETRY_SECONDS,
) -> S3Store:
    """Open the bucket of ``s3://bucket/prefix``. This sends no request."""
    # The library prefers this name to all others, even if it is only a variable.
    options: dict[str, Any] = {"aws_endpoint_url_s3": endpoint} if endpoint else {}
    if "AWS_REGION" not in os.environ and "AWS_DEFAULT_REGION" not in os.environ:
        options["region"] = "us-east-1"
    parts = urlsplit(url)
    try:
        return S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={
                "allow_http": urlsplit(endpoint or "").scheme == "http",
                "timeout": timedelta(seconds=request_seconds),
            },
            retry_config=_retries(retry_seconds),
            **options,
        )
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise SettingsError(f"Cannot use --blobs {url}: {reason}") from None


def _retries(seconds: int) -> Any:
    return {
        "max_retries": 6,
        "retry_timeout": timedelta(seconds=seconds),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=3),
            "base": 2,
        },
    }


# --- the check of a bucket ----------------------------------------------------------------------


def _check_bucket(url: str) -> None:
    """List the bucket, and look for an object that does not exist.

    Another web server may have a page for every path.
    """
    endpoint = _endpoint()
    store = _open_bucket(url, endpoint, _CHECK_SECONDS, _CHECK_SECONDS)
    _check_credentials(url, store)
    place = urlsplit(endpoint).netloc if endpoint else "Amazon S3"
    try:
        next(iter(obstore.list(store, chunk_size=1)), None)
        obstore.head(store, new_key(0))
    except FileNotFoundError:
        return
    except obstore.exceptions.BaseError as error:
        raise _check_error(url, place, str(error)) from None
    raise _wrong_bucket(url, f"{place} is not an S3 service. Check AWS_ENDPOINT_URL")


def _check_credentials(url: str, store: S3Store) -> None:
    """Sign a link, which needs the credentials but no request to the bucket."""
    try:
        obstore.sign(store, "GET", new_key(0), timedelta(seconds=1))
    except obstore.exceptions.BaseError:
        raise _wrong_bucket(
            url,
            "there are no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give "
            "the machine a role",
        ) from None


def _check_error(url: str, place: str, message: str) -> SettingsError | Unavailable:
    """Return the error for a message of the S3 library, which has one class for most errors."""
    status, code = _STATUS.search(message), _ERROR_CODE.search(message)
    reason = f" ({code[1]})" if code else ""
    if any(error in message for error in _REGION_ERRORS):
        return _wrong_bucket(url, f"it is in another region{reason}. Set AWS_REGION to its region")
    if status is None or status[1] >= "500":
        return Unavailable(
            f"Cannot reach the store of files {url} at {place}{reason}. Start it, or check "
            "AWS_ENDPOINT_URL and the network"
        )
    if status[1] == "404":
        return _wrong_bucket(
            url, f"it does not exist{reason}. Create it, or check --blobs and AWS_ENDPOINT_URL"
        )
    if status[1] in ("401", "403"):
        return _wrong_bucket(
            url,
            f"the store denies access{reason}. Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and "
            "the permissions to list the bucket and to read, write and delete its objects",
        )
    return _wrong_bucket(
        url,
        f"the store responds with {status[1]}{reason}. Check AWS_ENDPOINT_URL, AWS_REGION and the "
        "credentials",
    )


def _wrong_bucket(url: str, problem: str) -> SettingsError:
    return SettingsError(f"Cannot use the bucket {url}: {problem}")


def open_blobs(location: str, public_url: str | None = None) -> Blobs:
    """Open the store at ``s3://bucket/prefix``, or in a folder.

    ``public_url`` is the endpoint of the bucket in links.
    """
    if location.startswith("s3://"):
        return S3Blobs(location, public_url)
    return FolderBlobs(Path(location))


class BlobNotFound(Exception):
    """The store has no blob with this key."""


def _reason(error: Exception) -> str:
    """Return a short reason for the log."""
    if os.strerror(errno.ENOSPC) in str(error):
        return DISK_FULL
    return (str(error).splitlines() or [type(error).__name__])[0]
