"""Where the bytes of files are: a folder, or a bucket of S3 or of what speaks like it.

Keys are made here and hold nothing that a client has sent. Of an upload that fails nothing stays,
but for parts in a bucket when the process is stopped in the middle.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.store import LocalStore, ObjectStore, S3Store

from gleanery.errors import SettingsError, Unavailable

_PARTS_AT_ONCE = 3
_UPLOAD_SECONDS = (
    12 * 3600.0
)  # well below what unreferenced blobs are given before they are removed
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
    """A name that no blob ever had; spread over folders, for stores that mind many in one."""
    name = secrets.token_hex(16)
    return f"{organization_id}/{name[:2]}/{name}"


class Blobs:
    """The bytes of files by their keys."""

    _part_bytes = 1024 * 1024

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, key: str, media_type: str, chunks: AsyncIterator[bytes]) -> None:
        """Stores what the iterator gives, durably; if that fails, nothing."""
        with _told():
            async with asyncio.timeout(_UPLOAD_SECONDS):
                await obstore.put_async(
                    self._store,
                    key,
                    chunks,
                    attributes=self._attributes(media_type),
                    chunk_size=self._part_bytes,
                    max_concurrency=_PARTS_AT_ONCE,
                )

    async def read(self, key: str, start: int, stop: int) -> AsyncGenerator[bytes]:
        """The bytes from start up to stop, a piece at a time.

        Each piece is asked for on its own, so that a slow client keeps nothing of the store's.
        """
        while start < stop:
            end = min(start + _READ_BYTES, stop)
            with _told():
                try:
                    piece = await obstore.get_range_async(self._store, key, start=start, end=end)
                except FileNotFoundError:
                    raise NoBlob(key) from None
            yield bytes(piece)
            start = end

    async def holds(self, key: str) -> bool:
        with _told():
            try:
                await obstore.head_async(self._store, key)
            except FileNotFoundError:
                return False
            return True

    async def copy(self, key: str, to: str) -> None:
        with _told():
            await obstore.copy_async(self._store, key, to)

    async def delete(self, key: str) -> None:
        """Removes a blob, if it is there."""
        with _told(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, key)

    def _attributes(self, media_type: str) -> Any:
        return None


class FolderBlobs(Blobs):
    """Blobs as files below a folder; one that is made here only its owner can enter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            for one in (folder.parent, folder):  # the mode is for the last of a path alone
                one.mkdir(mode=0o700, parents=True, exist_ok=True)
            super().__init__(LocalStore(prefix=folder.absolute(), automatic_cleanup=False))
        except OSError as error:
            raise SettingsError(
                f"Can't keep files in {folder.absolute()}: {error.strerror}; choose another place "
                "with --blobs, or with --data for everything, or change its owner"
            ) from None

    async def put(self, key: str, media_type: str, chunks: AsyncIterator[bytes]) -> None:
        await super().put(key, media_type, chunks)
        with _told():
            await asyncio.to_thread(self._sync, self._folder / key)

    async def delete(self, key: str) -> None:
        await super().delete(key)
        # A process that was killed leaves what it had written so far, under this name.
        part = (self._folder / key).with_name(key.rpartition("/")[2] + "#1")
        with _told():
            await asyncio.to_thread(part.unlink, missing_ok=True)

    def _sync(self, path: Path) -> None:
        """Forces the file and the entries that lead to it to the disk."""
        for one in (path, *path.parents):
            descriptor = os.open(one, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if one == self._folder:
                return


class S3Blobs(Blobs):
    """Blobs as objects in a bucket; endpoint and credentials are the usual AWS variables."""

    _part_bytes = 5 * 1024 * 1024  # the least that S3 takes

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
            raise SettingsError(f"Can't use --blobs {url}: {error}") from None

    async def sign(self, keys: Sequence[str], seconds: int) -> Sequence[str]:
        """Links to the blobs that anyone may follow for so long."""
        assert isinstance(self._store, S3Store)
        with _told():
            lifetime = timedelta(seconds=seconds)
            return await obstore.sign_async(self._store, "GET", list(keys), lifetime)

    def _attributes(self, media_type: str) -> Any:
        return {"Content-Type": media_type, "Content-Disposition": "attachment"}


def open_blobs(where: str) -> Blobs:
    """The blobs at ``s3://bucket/prefix``, or in a folder."""
    return S3Blobs(where) if where.startswith("s3://") else FolderBlobs(Path(where))


class NoBlob(Exception):
    """The store has nothing under this key."""


@contextmanager
def _told() -> Iterator[None]:
    """The store's own errors, told as facts that a caller knows."""
    try:
        yield
    except (obstore.exceptions.BaseError, OSError) as error:
        raise Unavailable("The store of files is not available now; try again") from error
