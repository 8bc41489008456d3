"""The files pipeline: it stores files in Gleanery, and downloads only those that it lacks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from email.message import Message
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from urllib.parse import unquote

from itemadapter import ItemAdapter
from scrapy import Request, signals
from scrapy.http.request import NO_CALLBACK
from scrapy.pipelines.files import FilesPipeline
from scrapy.pipelines.media import MediaPipeline
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.python.failure import Failure

from gleanery.client import ClientError, Invalid, StoredFile, TooLarge
from gleanery.client.retries import delay_after, is_temporary
from gleanery.integrations.scrapy.coroutines import (
    CoroutineRunner,
    download,
    held_open,
    is_closing,
)
from gleanery.integrations.scrapy.crawl_sessions import SessionUnavailable
from gleanery.integrations.scrapy.problems import LostItem
from gleanery.integrations.scrapy.settings import GleanerySettings

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

try:
    from scrapy.pipelines.media import FileException
except ImportError:  # before Scrapy 2.14
    from scrapy.pipelines.files import FileException  # type: ignore[no-redef]

_OK = 200
_TIMEOUT = 30.0
"""Seconds without a byte of a response of the service."""
_STEP_SECONDS = 1.0
_MAX_VERSION = 1024  # limits of the service
_MAX_FILENAME = 255

T = TypeVar("T")

_log = logging.getLogger(__name__)


class FileError(FileException):
    """A file is not downloaded, or not stored."""


class FileMissed(FileError):
    """A file is not stored for a reason that is not in the file: another crawl can store it."""


class _NoStore:
    """Store that FilesPipeline requires. It is not used."""

    def __init__(self, uri: str) -> None:
        pass


class GleaneryFilesPipeline(FilesPipeline):
    """Files pipeline that stores in Gleanery.

    It asks the site for the ETag of a file with a HEAD request, and downloads the file unless the
    service has that version. The item gets the ids of its files.
    """

    STORE_SCHEMES: ClassVar[dict[str, Any]] = {"gleanery": _NoStore}

    def __init__(self, settings: GleanerySettings, *, crawler: Crawler) -> None:
        super().__init__("gleanery://service", crawler=crawler)
        self._runner = CoroutineRunner()
        self._client = settings.async_client(max_retries=0, timeout=_TIMEOUT)
        self._calls = _PatientCalls(crawler, self._runner, settings.close_seconds)
        self._are_required = crawler.settings.getbool("GLEANERY_FILES_REQUIRED")
        # A file is in memory from its download until it is stored, so that a slow service
        # must not let downloads go on.
        self._slots = DeferredSemaphore(max(crawler.settings.getint("CONCURRENT_REQUESTS"), 1))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        pipeline = cls(GleanerySettings.from_crawler(crawler), crawler=crawler)
        crawler.signals.connect(pipeline.spider_closed, signals.spider_closed)
        return pipeline

    async def spider_closed(self) -> None:
        """Close the connections to the service."""
        await self._runner.run(self._client.aclose())
        self._runner.close()

    def media_to_download(
        self, request: Request, info: MediaPipeline.SpiderInfo, *, item: Any = None
    ) -> Deferred[Any]:
        """Return the file of a request: one that the service has, or a new one."""
        return deferred_from_coro(self._obtain_in_turn(request, info))

    def get_media_requests(self, item: Any, info: MediaPipeline.SpiderInfo) -> list[Request]:
        """Return a request for each URL of the item: of a list, or a single one."""
        return [Request(url, callback=NO_CALLBACK) for url in _urls(self._urls_of(item))]

    def item_completed(self, results: list[Any], item: Any, info: MediaPipeline.SpiderInfo) -> Any:
        """Put the ids of the files into the item. A file that failed is logged, and left out."""
        if not results:
            return item
        ids = [file["id"] for ok, file in results if ok]
        self._handle_failures([failure for ok, failure in results if not ok])
        is_single = isinstance(self._urls_of(item), str)
        try:
            ItemAdapter(item)[self.files_result_field] = next(iter(ids), None) if is_single else ids
        except KeyError:
            raise FileError(
                f"{type(item).__name__} has no field {self.files_result_field!r} for the ids of "
                "its files: add it, or set FILES_RESULT_FIELD"
            ) from None
        return item

    def _handle_failures(self, failures: list[Failure]) -> None:
        """Drop the item, if it must not replace a stored output that has its files."""
        if failures:
            self._count("gleanery/files_failed", len(failures))
        missed = next((one.value for one in failures if isinstance(one.value, FileMissed)), None)
        if missed is not None or (failures and self._are_required):
            reason = f": {missed}" if missed else ""
            raise LostItem(f"{len(failures)} files of the item are not stored{reason}")

    def _urls_of(self, item: Any) -> Any:
        return ItemAdapter(item).get(self.files_urls_field)

    async def _obtain_in_turn(
        self, request: Request, info: MediaPipeline.SpiderInfo
    ) -> dict[str, Any]:
        """Obtain the file when there is room for it, even if the spider closes before that."""
        with held_open(self.crawler):
            await maybe_deferred_to_future(self._slots.acquire())
            try:
                return await self._obtain(request, info)
            finally:
                self._slots.release()

    async def _obtain(self, request: Request, info: MediaPipeline.SpiderInfo) -> dict[str, Any]:
        try:
            stored = await self._find(request)
            if stored is not None:
                return self._describe(request, stored, "uptodate")
            response = await self._download(request)
            status = "cached" if "cached" in response.flags else "downloaded"
            return self._describe(request, await self._store(request, response), status)
        except FileError:
            raise
        except ClientError as error:
            kind = FileError if _is_about_file(error) else FileMissed
            raise kind(f"{request} is not stored: {error}") from error
        except SessionUnavailable as error:
            raise FileMissed(f"{request} is not downloaded: {error}") from error
        except Exception:
            self.media_failed(Failure(), request, info)  # type: ignore[no-untyped-call]
            raise  # media_failed logs the error, and raises it as Scrapy does

    async def _find(self, request: Request) -> StoredFile | None:
        """Return the file of the service, if it has the version that the site has now."""
        if request.method != "GET":
            return None
        version = await self._ask_site(request)
        if version is None:
            return None
        return await self._calls.call(lambda: self._client.find_file(request.url, version))

    async def _ask_site(self, request: Request) -> str | None:
        """Return the version of a file at the site; None if the site does not say it."""
        head = request.replace(method="HEAD", meta={**request.meta, "dont_retry": True})
        try:
            response = await self._download_any(head)
        except Exception as error:  # many errors of many handlers: the GET request decides
            _log.debug("%s failed, so the file is downloaded: %s", head, error)
            return None
        return _version_of(response) if response.status == _OK else None

    async def _download(self, request: Request) -> Response:
        response = await self._download_any(request)
        if response.status != _OK:
            raise FileError(f"{request} is not downloaded: the status is {response.status}")
        if not response.body:
            raise FileError(f"{request} is not downloaded: the file is empty")
        return response

    async def _download_any(self, request: Request) -> Response:
        if self.handle_httpstatus_list:
            request.meta["handle_httpstatus_list"] = self.handle_httpstatus_list
        else:
            request.meta["handle_httpstatus_all"] = True
        return await download(self.crawler, request)

    async def _store(self, request: Request, response: Response) -> StoredFile:
        stored = await self._calls.call(
            lambda: self._client.upload(
                response.body,
                source_url=request.url,
                etag=_version_of(response),
                filename=_filename_of(request, response),
                content_type=_media_type_of(response),
            )
        )
        self._count("gleanery/files_stored")
        self._count("gleanery/file_bytes", stored.size)
        return stored

    def _describe(self, request: Request, stored: StoredFile, status: str) -> dict[str, Any]:
        """Return what Scrapy's pipeline knows about a file, with the id that the service gave."""
        self._count("file_count")
        self._count(f"file_status_count/{status}")
        _log.debug("File (%s): %s is %s", status, request, stored.id)
        return {
            "url": request.url,
            "path": stored.blob_key,
            "checksum": stored.file_checksum,
            "status": status,
            "id": stored.id,
        }

    def _count(self, name: str, number: int = 1) -> None:
        if self.crawler.stats is not None:
            self.crawler.stats.inc_value(name, number)


def _is_about_file(error: ClientError) -> bool:
    """Return True if the service rejects the file, and would reject it again."""
    return isinstance(error, Invalid | TooLarge) and not is_temporary(error)


def _urls(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        return list(value)
    raise TypeError(f"Expected a URL or a list of URLs of files, not {type(value).__name__}")


# --- calls of the service that go on while the crawl runs ---------------------------------------


class _PatientCalls:
    """Calls of the service, each repeated until it succeeds.

    When the spider closes, they end if no call succeeds for ``close_seconds``.
    """

    def __init__(self, crawler: Crawler, runner: CoroutineRunner, close_seconds: float) -> None:
        self._crawler = crawler
        self._runner = runner
        self._close_seconds = close_seconds
        self._closes_at: float | None = None
        self._is_waiting = False

    async def call(self, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result. Raise ClientError if it can never succeed, or the crawl has ended."""
        retries = 0
        while True:
            try:
                result = await self._runner.run(send())
            except ClientError as error:
                if not is_temporary(error) or not self._may_wait():
                    raise
                self._note_outage(error)
                await self._pause(delay_after(error, retries))
                retries += 1
            else:
                self._is_waiting = False
                self._closes_at = None
                return result

    def _may_wait(self) -> bool:
        """Return True while the crawl runs, and for some time after the last success."""
        if not is_closing(self._crawler):
            return True
        if self._closes_at is None:
            self._closes_at = time.monotonic() + self._close_seconds
        return time.monotonic() < self._closes_at

    def _note_outage(self, error: ClientError) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            _log.warning("%s. Files wait until Gleanery responds", str(error).rstrip("."))

    async def _pause(self, seconds: float) -> None:
        """Wait for the next attempt. Return earlier if the crawl ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._may_wait():
            await self._runner.run(asyncio.sleep(min(left, _STEP_SECONDS)))


# --- metadata of a file, read from the response that has it -------------------------------------


def _version_of(response: Response) -> str | None:
    """Return the ETag of a response, or else its date; None if it has neither."""
    for name, prefix in (("ETag", ""), ("Last-Modified", "Last-Modified: ")):
        value = (response.headers.get(name) or b"").decode("latin-1").strip()
        if value and len(prefix + value) <= _MAX_VERSION:
            return prefix + value
    return None


def _media_type_of(response: Response) -> str | None:
    """Return the Content-Type of a file; None for one that the service takes for a form."""
    value = (response.headers.get("Content-Type") or b"").decode("latin-1").strip()
    is_form = value.lower().startswith(("multipart/", "application/x-www-form-urlencoded"))
    return value if value.isascii() and value and not is_form else None


def _filename_of(request: Request, response: Response) -> str:
    """Return the name of a file: that of Content-Disposition, or else the end of the path."""
    message = Message()
    message["Content-Disposition"] = _first_line(response.headers.get("Content-Disposition"))
    name = message.get_filename() or unquote(urlparse_cached(request).path)
    return PurePosixPath(name.replace("\\", "/")).name[:_MAX_FILENAME]


def _first_line(header: bytes | None) -> str:
    return (header or b"").decode("latin-1").partition("\n")[0].strip()
