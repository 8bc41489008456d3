"""Blob store for the bytes of files: a folder, or a bucket of an S3-compatible service.

Keys are random and contain nothing that a client sent. A failed upload leaves no data,
except parts in a bucket if the process was killed.
"""

from __future__ import annotations

import asyncio
import os
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

from gleanery.errors import SettingsError, Unavailable

_CONCURRENT_PARTS = 3
_MAX_S3_PARTS = 10_000
_UPLOAD_SECONDS = 12 * 3600.0  # well below the time after which unreferenced blobs are removed
_READ_BYTES = 1024 * 1024
_RETRY: Any = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=3),
        "base": 2,
    },
}


def new_key(organization_id: int) -> str:
    """Return a unique key. Keys are spread over folders, because large folders are slow."""
    name = secrets.token_hex(16)
    return f"{organization_id}/{name[:2]}/{name}"


class Blobs:
    """Blobs by key."""

    _min_part_bytes = 1024 * 1024

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(
        self, key: str, media_type: str, chunks: AsyncIterator[bytes], max_bytes: int
    ) -> None:
        """Store the chunks durably, all or nothing. Together they have at most ``max_bytes``."""
        with _as_unavailable():
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
            with _as_unavailable():
                try:
                    piece = await obstore.get_range_async(self._store, key, start=start, end=end)
                except FileNotFoundError:
                    raise BlobNotFound(key) from None
            yield bytes(piece)
            start = end

    async def exists(self, key: str) -> bool:
        with _as_unavailable():
            try:
                await obstore.head_async(self._store, key)
            except FileNotFoundError:
                return False
            return True

    async def copy(self, key: str, to: str) -> None:
        with _as_unavailable():
            await obstore.copy_async(self._store, key, to)

    async def delete(self, key: str) -> None:
        """Delete a blob, if it exists."""
        with _as_unavailable(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, key)

    async def delete_folder(self, name: str) -> None:
        """Delete all blobs whose keys start with this folder."""
        with _as_unavailable():
            async for found in obstore.list(self._store, prefix=name):
                await obstore.delete_async(self._store, [blob["path"] for blob in found])

    def _part_bytes(self, max_bytes: int) -> int:
        return self._min_part_bytes

    def _attributes(self, media_type: str) -> Any:
        return None


class FolderBlobs(Blobs):
    """Blobs as files in a folder. A new folder is private to its owner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            for path in (folder.parent, folder):  # mkdir applies the mode to the last folder only
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        with _as_unavailable():
            await asyncio.to_thread(self._sync, self._folder / key)

    async def delete(self, key: str) -> None:
        await super().delete(key)
        # A process that was killed leaves an incomplete blob under this name.
        part = (self._folder / key).with_name(key.rpartition("/")[2] + "#1")
        with _as_unavailable():
            await asyncio.to_thread(part.unlink, missing_ok=True)

    async def delete_folder(self, name: str) -> None:
        """Also delete incomplete blobs, which the store does not list, and the folder itself."""
        with _as_unavailable(), suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, self._folder / name)

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


class S3Blobs(Blobs):
    """Blobs as objects in a bucket. The AWS variables give endpoint and credentials."""

    _min_part_bytes = 5 * 1024 * 1024  # the minimum of S3

    def __init__(self, url: str) -> None:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        parts = urlsplit(url)
        options: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        if endpoint and urlsplit(endpoint).scheme == "http":
            options["client_options"] = {"allow_http": True}
        if "AWS_REGION" not in os.environ and "AWS_DEFAULT_REGION" not in os.environ:
            options["region"] = "us-east-1"
        try:
            prefix = parts.path.strip("/") or None
            super().__init__(S3Store(parts.netloc, prefix=prefix, retry_config=_RETRY, **options))
        except Exception as error:
            raise SettingsError(f"Cannot use --blobs {url}: {error}") from None

    async def sign(self, keys: Sequence[str], seconds: int) -> Sequence[str]:
        """Return links to the blobs that are valid for this time without credentials."""
        assert isinstance(self._store, S3Store)
        with _as_unavailable():
            lifetime = timedelta(seconds=seconds)
            return await obstore.sign_async(self._store, "GET", list(keys), lifetime)

    def _part_bytes(self, max_bytes: int) -> int:
        """Return a size for which the largest possible upload has few enough parts."""
        return max(self._min_part_bytes, -(-max_bytes // _MAX_S3_PARTS))

    def _attributes(self, media_type: str) -> Any:
        return {"Content-Type": media_type, "Content-Disposition": "attachment"}


def open_blobs(location: str) -> Blobs:
    """Open the store at ``s3://bucket/prefix``, or in a folder."""
    return S3Blobs(location) if location.startswith("s3://") else FolderBlobs(Path(location))


class BlobNotFound(Exception):
    """The store has no blob with this key."""


@contextmanager
def _as_unavailable() -> Iterator[None]:
    """Convert errors of the store to Unavailable."""
    try:
        yield
    except (obstore.exceptions.BaseError, OSError) as error:
        raise Unavailable("The store of files is not available now; try again") from error
