"""The feed storage: it stores the items of a feed in a group, with ``gleanery://group/job``."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from scrapy.exceptions import NotConfigured
from scrapy.extensions.feedexport import BlockingFeedStorage
from scrapy.utils.project import data_path

from gleanery.client import PushReport
from gleanery.client.queue.batches import in_batches
from gleanery.client.queue.sender import RejectedItems, items_are, plain_name, they_are
from gleanery.client.queue.spool import Spool
from gleanery.integrations.scrapy.items import InvalidItem, ItemEncoder, OutputPusher
from gleanery.integrations.scrapy.runs import runs_of
from gleanery.integrations.scrapy.settings import GleanerySettings, patient_retries

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

_FORMATS = ("jsonlines", "jsonl", "jl")
_FOLDER = "feeds"
_MAX_REASONS = 100

_log = logging.getLogger(__name__)


class FeedError(Exception):
    """A feed is not stored, or not all of it. The message says where the rest is."""


@dataclass
class _Outcome:
    """What is stored, and where the other items are."""

    file: Path
    rejected: RejectedItems
    """Outputs that the service rejects."""
    unusable: RejectedItems
    """Items that are no outputs, because they have no URL or no key."""
    counts: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    spool: Path | None = None
    """Folder that has all items which are not stored yet."""
    error: Exception | None = None

    def add_report(self, report: PushReport) -> None:
        for name in ("created", "updated", "unchanged"):
            self.counts[name] += getattr(report, name)
        self.add_reasons(*(f"{'.'.join(each.loc)}: {each.msg}" for each in report.errors))

    def add_reasons(self, *reasons: str) -> None:
        self.reasons += reasons[: _MAX_REASONS - len(self.reasons)]

    def problems(self) -> Iterator[str]:
        """Say what is not stored, and how it can be."""
        if self.error is not None and self.spool is None:
            yield f"{str(self.error).rstrip('.')}. The feed is kept in {self.file}"
        elif self.error is not None:
            yield (
                f"{str(self.error).rstrip('.')}. The items are in {self.spool}, and the next run "
                "with this group and job sends them first"
            )
        if number := self.counts["unreadable"]:
            subject = items_are(number)
            yield f"{subject} in a file that cannot be read. The feed is kept in {self.file}"
        if number := self.counts["rejected"]:
            yield f"{items_are(number)} invalid. {self.rejected.advice(number)}"
        if number := self.counts["unusable"]:
            subject, path = items_are(number), self.unusable.path
            yield f"{subject} without a URL or a key. {they_are(number)} in {path}"


class GleaneryFeedStorage(BlockingFeedStorage):
    """Feed storage ``gleanery://group/job``. Without a job, it is that of the settings."""

    def __init__(self, crawler: Crawler, settings: GleanerySettings) -> None:
        self._crawler = crawler
        self._settings = settings
        self._run = runs_of(crawler).open(settings, is_feed=True)
        self._run.begin_at_end(OutputPusher(settings, self._run).begin)

    @classmethod
    def from_crawler(
        cls, crawler: Crawler, uri: str, *, feed_options: dict[str, Any] | None = None
    ) -> Self:
        _check_options(uri, feed_options or {})
        settings = GleanerySettings.from_crawler(crawler)
        group, job = _parse(uri)
        return cls(crawler, replace(settings, group=group, job=job or settings.job))

    def open(self, spider: Spider) -> IO[bytes]:
        """Return a new file. It lasts until its items are stored, even if the crawl is killed."""
        folder = self._crawler.settings["FEED_TEMPDIR"]
        if folder and not Path(folder).is_dir():
            raise OSError(f"Not a Directory: {folder}")
        path = Path(folder or data_path(str(Path(self._settings.spool) / _FOLDER), createdir=True))
        names = plain_name(self._settings.require_group()), plain_name(str(self._settings.job))
        path /= f"{'-'.join(names)}-{time.time_ns()}.jsonl"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(descriptor)
        return path.open("r+b")

    def store(self, file: IO[bytes]) -> Deferred[None]:
        """Store the feed in a thread. The result is an error if an item is not stored."""
        pushed: Any = super().store(file)
        stored: Deferred[None] = pushed.addCallback(self._finish)
        return stored

    def _store_in_thread(self, file: IO[bytes]) -> Any:
        settings = self._settings
        outcome = _Outcome(
            Path(file.name), settings.open_rejected(), settings.open_rejected("-unusable")
        )
        try:
            file.flush()
            file.seek(0)
            self._push(file, outcome)
        except Exception as error:  # of the service or of the disk: no item may be lost
            outcome.error = error
            if outcome.spool is None:
                self._run.note_problem("a feed was not stored")
        finally:
            file.close()
        self._run.note_lost(outcome.counts["unusable"] + outcome.counts["unreadable"])
        return outcome

    def _push(self, file: IO[bytes], outcome: _Outcome) -> None:
        """Write the items to the spool, and send it: also what an earlier run has left there."""
        spool = self._settings.open_spool()
        try:
            for lines in in_batches(self._encode(file, outcome), self._settings.batch_size):
                spool.append(lines)
            outcome.spool = spool.folder
            self._send(spool, outcome)
        finally:
            self._run.note_left(spool.items())
            spool.close()

    def _encode(self, file: IO[bytes], outcome: _Outcome) -> Iterator[bytes]:
        """Read the items as outputs, one after the other."""
        encoder = ItemEncoder(self._settings)
        for line in file:
            try:
                yield encoder.encode(json.loads(line))
            except InvalidItem as error:
                outcome.unusable.add([line.rstrip()])
                outcome.counts["unusable"] += 1
                outcome.add_reasons(str(error))

    def _send(self, spool: Spool, outcome: _Outcome) -> None:
        pusher = OutputPusher(self._settings, self._run)
        retries = patient_retries(self._crawler.settings)
        with self._settings.client(max_retries=retries) as client:
            while len(spool) > 0:
                if not (is_earlier := spool.earlier > 0):
                    pusher.begin(client)
                number, lines = spool.count_first(), spool.read_first()
                if lines is None:  # it cannot be read, and is left out
                    outcome.counts["unreadable"] += number
                    continue
                report, rejected = pusher.store(client, lines, is_earlier=is_earlier)
                if rejected:
                    outcome.rejected.add(rejected)
                    outcome.counts["rejected"] += len(rejected)
                spool.remove_first()
                outcome.add_report(report)
            pusher.begin(client)  # a feed without items is an empty run

    def _finish(self, outcome: _Outcome) -> None:
        for name in ("created", "updated", "unchanged"):
            self._count(f"gleanery/feed_{name}", outcome.counts[name])
        invalid = outcome.counts["rejected"] + outcome.counts["unusable"]
        self._count("gleanery/feed_invalid", invalid)
        for reason in outcome.reasons:
            _log.error("The feed has an invalid item: %s", reason)
        if outcome.spool is not None and not outcome.counts["unreadable"]:
            outcome.file.unlink(missing_ok=True)
        if problems := list(outcome.problems()):
            raise FeedError("; ".join(problems)) from outcome.error

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
