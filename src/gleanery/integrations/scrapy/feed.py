"""The feed storage: it stores the items of a feed in a group, with ``gleanery://group/job``."""

from __future__ import annotations

import json
import logging
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from scrapy.exceptions import NotConfigured
from scrapy.extensions.feedexport import BlockingFeedStorage
from scrapy.utils.project import data_path

from gleanery.client import PushFailed, PushReport
from gleanery.client.items import InvalidItem as UnsendableItem
from gleanery.integrations.scrapy.items import InvalidItem, ItemEncoder
from gleanery.integrations.scrapy.keys import uses_group_key, without_key
from gleanery.integrations.scrapy.settings import GleanerySettings, patient_retries

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

_FORMATS = ("jsonlines", "jsonl", "jl")
_FOLDER = "feeds"
_COUNTS = ("created", "updated", "unchanged")

_log = logging.getLogger(__name__)


class FeedError(Exception):
    """A feed is not stored, or not all of it. The message says where it is kept."""


class _Outcome(NamedTuple):
    """What is stored, and what went wrong."""

    report: PushReport
    error: Exception | None = None


class GleaneryFeedStorage(BlockingFeedStorage):
    """Feed storage ``gleanery://group/job``. Without a job, it is that of the settings."""

    def __init__(self, crawler: Crawler, settings: GleanerySettings) -> None:
        self._crawler = crawler
        self._settings = settings

    @classmethod
    def from_crawler(
        cls, crawler: Crawler, uri: str, *, feed_options: dict[str, Any] | None = None
    ) -> Self:
        _check_options(uri, feed_options or {})
        settings = GleanerySettings.from_crawler(crawler)
        group, job = _parse(uri)
        return cls(crawler, replace(settings, group=group, job=job or settings.job))

    def open(self, spider: Spider) -> IO[bytes]:
        """Return a new file. It lasts until its items are stored, also if the crawl is killed."""
        folder = self._crawler.settings["FEED_TEMPDIR"]
        if folder and not Path(folder).is_dir():
            raise OSError(f"Not a Directory: {folder}")
        path = Path(folder or data_path(str(Path(self._settings.spool) / _FOLDER), createdir=True))
        name = f"{_plain(self._settings.group)}-{_plain(self._settings.job)}-{time.time_ns()}.jsonl"
        descriptor = os.open(path / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(descriptor)
        return (path / name).open("r+b")

    def store(self, file: IO[bytes]) -> Deferred[None]:
        """Store the feed in a thread. The result is an error if an item is not stored."""
        pushed: Any = super().store(file)
        stored: Deferred[None] = pushed.addCallback(self._finish, Path(file.name))
        return stored

    def _store_in_thread(self, file: IO[bytes]) -> Any:
        try:
            file.flush()
            file.seek(0)
            return self._push(file)
        finally:
            file.close()

    def _push(self, file: IO[bytes]) -> _Outcome:
        retries = patient_retries(self._crawler.settings)
        group = self._settings.require_group()
        try:
            with self._settings.client(max_retries=retries) as client:
                is_keyless = uses_group_key(client, self._settings)
                return _Outcome(
                    client.push(group, self._outputs(file, is_keyless), on_error="skip")
                )
        except PushFailed as error:
            return _Outcome(error.report, error)
        except Exception as error:  # also one of the file: it is kept in any case
            return _Outcome(PushReport(), error)

    def _outputs(self, file: IO[bytes], is_keyless: bool) -> Iterator[bytes | UnsendableItem]:
        """Read the items as outputs, one after the other."""
        encoder = ItemEncoder(self._settings)
        for line in file:
            try:
                output = encoder.encode(json.loads(line))
            except InvalidItem as error:
                yield UnsendableItem(str(error))
            else:
                yield without_key(output) if is_keyless else output

    def _finish(self, outcome: _Outcome, path: Path) -> None:
        report, error = outcome
        for name in _COUNTS:
            self._count(f"gleanery/feed_{name}", getattr(report, name))
        self._count("gleanery/feed_invalid", report.skipped)
        for problem in report.errors:
            _log.error("The feed has an invalid item: %s", problem)
        if error is None and not report.skipped:
            path.unlink(missing_ok=True)
            return
        problem_ = error or f"{report.skipped} items are invalid, and the others are stored"
        raise FeedError(f"{problem_}. {self._advice(path)}") from error

    def _advice(self, path: Path) -> str:
        command = ["gleanery", "push", self._settings.require_group(), str(path)]
        command += ["--job", self._settings.job or "", "--url-field", self._settings.url_field]
        if len(self._settings.key_fields) == 1:
            command += ["--key-field", self._settings.key_fields[0]]
        return f"The feed is kept; store it with: {shlex.join(command)}"

    def _count(self, name: str, number: int) -> None:
        if self._crawler.stats is not None and number:
            self._crawler.stats.inc_value(name, number)


def _check_options(uri: str, options: dict[str, Any]) -> None:
    if options.get("format") not in _FORMATS:
        raise NotConfigured(
            f"{uri} needs the format jsonlines, such as -O {uri}:jsonlines or "
            f'FEEDS = {{"{uri}": {{"format": "jsonlines"}}}}'
        )
    if options.get("postprocessing"):
        raise NotConfigured(f"{uri} is sent as it is: remove postprocessing from its options")
    if str(options.get("encoding") or "utf-8").lower() not in ("utf-8", "utf8"):
        raise NotConfigured(f"{uri} needs the encoding utf-8")


def _parse(uri: str) -> tuple[str, str | None]:
    """Return the group and the job of a URI."""
    parts = urlsplit(uri)
    group, job = unquote(parts.netloc), unquote(parts.path.strip("/"))
    if not group or parts.query or parts.fragment:
        raise NotConfigured(f"{uri} must have the form gleanery://GROUP/JOB")
    return group, job or None


def _plain(name: str | None) -> str:
    """Return a name for a part of a file name."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name or "")[:60]
