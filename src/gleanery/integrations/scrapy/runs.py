"""The run of a crawl: when it starts, what belongs to it, and how it ends.

Theory of operation
-------------------

A crawler has one ``CrawlRuns``. It counts what goes wrong in the crawl, and has a ``CrawlRun`` for
each group and job: that of the pipeline, and those of feeds.

- **Start.** The thread that sends the items starts the run. Before that, it sends what earlier
  crawls have left in the spool. So an output that only they have sent is missing in this run.
- **Items.** They belong to the run. If it has ended, for example because the spider was silent for
  too long, they are stored without it: they belong to the implicit run of the job.
- **End.** When the spider is closed and every feed is stored, the run is finished: as complete only
  if nothing went wrong, because a complete run makes outputs missing that it has not sent.
- **JOBDIR.** A crawl that is stopped leaves its run open, and a file that names it. The next part
  goes on with this run. If it has ended, the next part has its own run, which is never complete.

A run that somebody else has started, for example ``gleanery run exec``, is left to them. Only
problems end it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from scrapy import signals

from gleanery.client import Client, ClientError, Conflict, Forbidden, Invalid, NotFound
from gleanery.client.queue.sender import PermanentFailure
from gleanery.client.queue.spool import spool_folder
from gleanery.client.runs import shorten_message
from gleanery.integrations.scrapy.coroutines import CoroutineRunner, within
from gleanery.integrations.scrapy.problems import (
    FAILED_REQUESTS,
    FAILED_STARTS,
    LostItem,
    Problems,
)
from gleanery.integrations.scrapy.settings import GleanerySettings

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from gleanery.client.models import FinalRunStatus

_log = logging.getLogger(__name__)

_SHORTEST_WAIT = 10.0
"""Seconds for which the end of a crawl waits for the end of its run, at least."""
_MAX_RETRIES = 4
_FINISHED, _STOPPED, _START_ERROR = "finished", "shutdown", "start_error"
"""Reasons of Scrapy for the end of a spider."""
_IGNORED = "httperror/response_ignored_status_count/"
_GONE = frozenset({"404", "410"})
"""Statuses of pages that a site does not have any more: this is not a failure of the crawl."""
_QUEUE_FILES = ("requests.seen", "requests.queue")
"""What Scrapy keeps in JOBDIR."""


# --- the parts of a crawl with JOBDIR -----------------------------------------------------------


class _EarlierPart(NamedTuple):
    """What an earlier part of the crawl has written."""

    run_id: str | None
    """None if its run is finished, or unknown."""
    is_paused: bool
    """False if the part was killed."""
    problems: Problems


class _JobFile:
    """File in JOBDIR that names the run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.earlier = self._read()
        """The part before this one; None if this is the first one."""

    def save(self, run_id: str | None, problems: Problems, *, is_paused: bool = False) -> None:
        """Write what the next part needs. If that fails, the next part has its own run."""
        content = {"run_id": run_id, "is_paused": is_paused, "problems": asdict(problems)}
        temporary = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content), encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            _log.warning("The run cannot be continued later: %s", error)

    def _read(self) -> _EarlierPart | None:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            problems = Problems(**content["problems"])
            return _EarlierPart(content["run_id"], content["is_paused"], problems)
        except (OSError, ValueError, TypeError, KeyError):
            folder = self._path.parent
            is_used = any((folder / name).exists() for name in _QUEUE_FILES)
            return _EarlierPart(None, False, Problems()) if is_used else None


def _open_job_file(settings: GleanerySettings, crawler: Crawler) -> _JobFile | None:
    folder = crawler.settings.get("JOBDIR")
    if not folder:
        return None
    with settings.client() as client:
        target = (client.base_url, settings.require_group(), str(settings.job))
    name = spool_folder(Path(folder), *target).name
    return _JobFile(Path(folder) / f"gleanery-run-{name}.json")


# --- runs ---------------------------------------------------------------------------------------


class CrawlRun:
    """The run to which the items of one group and job belong.

    The threads that send the items call ``begin`` and the methods ``note_…``.
    """

    def __init__(self, settings: GleanerySettings, file: _JobFile | None = None) -> None:
        self._settings = settings
        self._file = file
        self._given = settings.given_run()
        self.run_id: str | None = None
        """None before the start, without a run, and after the run has ended."""
        self._has_begun = not settings.has_run
        self._beginning = threading.Lock()
        self._problems = Problems()
        self._stored = 0
        self._left = 0
        self._begin_at_end: Callable[[Client], None] | None = None

    def begin_at_end(self, begin: Callable[[Client], None]) -> None:
        """Let this function begin the run at the end of the crawl, if nothing else has.

        Scrapy does not store an empty feed with FEED_STORE_EMPTY = False. Its run is empty.
        """
        self._begin_at_end = begin

    # what the senders say

    def begin(self, client: Client) -> None:
        """Start the run, or continue one. An exception means that this is to be repeated."""
        with self._beginning:  # feeds have threads as well
            if not self._has_begun:
                self._begin(client)
                self._has_begun = True

    def _begin(self, client: Client) -> None:
        earlier = self._file.earlier if self._file else None
        run_id = self._given
        if run_id is None and earlier is not None and earlier.run_id is not None:
            run_id = self._find_running(client, earlier.run_id)
        if run_id is None:
            run_id = self._start(client)
        if earlier is not None:
            self._problems += _problems_of(earlier, is_same=earlier.run_id == run_id)
        self.run_id = run_id
        if self._file is not None:
            self._file.save(run_id, self._problems)

    def note_stored(self, stored: int, rejected: int) -> None:
        """Note the result of a request."""
        self._stored += stored
        self._problems.items += rejected

    def note_lost(self, items: int) -> None:
        """Note items that are not stored, and never will be."""
        self._problems.items += items

    def note_problem(self, note: str) -> None:
        """Note another reason why the run is not complete."""
        self._problems += Problems(notes=[note])

    def note_left(self, items: int) -> None:
        """Note items that wait in the spool for the next crawl."""
        self._left += items

    def note_end(self, error: Exception | None) -> None:
        """Note that the service takes no items of this run any more."""
        _log.warning("Items are stored without the run %s: %s", self.run_id, error)
        self.run_id = None
        if self._file is not None:
            self._file.save(None, self._problems)

    def _find_running(self, client: Client, run_id: str) -> str | None:
        try:
            is_running = client.get_run(self._settings.require_group(), run_id).status == "running"
        except NotFound:
            return None
        except Forbidden:  # the token can only write. If the run has ended, a push says so
            return run_id
        return run_id if is_running else None

    def _start(self, client: Client) -> str | None:
        settings = self._settings
        group, job = settings.require_group(), str(settings.job)
        try:
            return client.start_run(group, job, settings.run_labels).run_id
        except (Invalid, NotFound) as error:  # items are stored even so
            _log.error("The crawl has no run: %s", error)
            return None

    # the end

    async def finish(self, runner: CoroutineRunner, reason: str, problems: Problems) -> None:
        """Finish the run, or leave it to the next part of the crawl. Log if that fails."""
        await self._begin_late(runner)
        if self.run_id is None:
            return
        if reason == _STOPPED and self._file is not None:
            self._file.save(self.run_id, self._problems + problems, is_paused=True)
            _log.info("The run %s goes on with the next crawl in JOBDIR", self.run_id)
            return
        problems = self._problems + Problems(items=self._left) + _describe_end(reason) + problems
        status = self._choose_status(reason, problems)
        if status != "complete" or self._given is None:
            await self._send_end(runner, status, str(problems) if problems else None)
        if self._file is not None:
            self._file.save(None, Problems())

    async def _begin_late(self, runner: CoroutineRunner) -> None:
        """Begin the run of an empty feed. A feed that was not stored has failed before."""
        begin = self._begin_at_end
        if begin is None or self._has_begun or self._problems or self._left:
            return

        def call() -> None:
            with self._settings.client(max_retries=_MAX_RETRIES) as client:
                begin(client)

        try:
            await runner.run(within(self._longest_wait, asyncio.to_thread(call)))
        except (ClientError, PermanentFailure) as error:
            _log.error("The crawl has no run: %s", error)

    @property
    def _longest_wait(self) -> float:
        return max(self._settings.close_seconds, _SHORTEST_WAIT)

    def _choose_status(self, reason: str, problems: Problems) -> FinalRunStatus:
        if not problems:
            return "complete"
        return "partial" if self._stored or reason == _STOPPED else "failed"

    async def _send_end(
        self, runner: CoroutineRunner, status: FinalRunStatus, message: str | None
    ) -> None:
        settings, run_id = self._settings, str(self.run_id)
        if message is not None:
            message = shorten_message(message)

        async def send() -> None:
            async with settings.async_client(max_retries=_MAX_RETRIES) as client:
                await client.finish_run(settings.require_group(), run_id, status, message)

        try:
            await runner.run(within(self._longest_wait, send()))
        except Conflict as error:  # somebody has finished it, or it was abandoned
            _log.warning("The run %s is not %s: %s", run_id, status, error)
        except ClientError as error:
            _log.error("The run %s is not finished, and will be abandoned: %s", run_id, error)
        else:
            _log.info("The run %s is %s%s", run_id, status, f": {message}" if message else "")


def _problems_of(earlier: _EarlierPart, *, is_same: bool) -> Problems:
    """Return what an earlier part of the crawl means for the run of this one."""
    if not is_same or earlier.run_id is None:
        return Problems(notes=["the crawl continues an earlier one, whose run has ended"])
    if not earlier.is_paused:
        return earlier.problems + Problems(notes=["an earlier part of the crawl was killed"])
    return earlier.problems


def _describe_end(reason: str) -> Problems:
    if reason in (_FINISHED, _START_ERROR):
        return Problems()
    if reason == _STOPPED:
        return Problems(notes=["the crawl was stopped"])
    return Problems(notes=[f"the spider was closed with the reason {reason}"])


class CrawlRuns:
    """The runs of a crawl, and what goes wrong in it."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._runs: dict[tuple[str, str | None], CrawlRun] = {}
        self._problems = Problems()
        self._waits_for_feeds = False
        self._reason: str | None = None
        connect = crawler.signals.connect
        connect(self._spider_error, signals.spider_error)
        connect(self._item_error, signals.item_error)
        connect(self._item_dropped, signals.item_dropped)
        connect(self._request_dropped, signals.request_dropped)
        connect(self._spider_closed, signals.spider_closed)
        connect(self._feeds_closed, signals.feed_exporter_closed)

    def open(self, settings: GleanerySettings, *, is_feed: bool = False) -> CrawlRun:
        """Return the run of the group and the job, which is the same for each caller."""
        if is_feed:
            self._waits_for_feeds = True
        key = (settings.require_group(), settings.job)
        if key not in self._runs:
            self._runs[key] = CrawlRun(settings, _open_job_file(settings, self._crawler))
        return self._runs[key]

    def _spider_error(self) -> None:
        self._problems.callbacks += 1

    def _item_error(self) -> None:
        self._problems.items += 1

    def _item_dropped(self, exception: object) -> None:
        """Count only what our components drop: a project drops items on purpose."""
        if isinstance(exception, LostItem):
            self._problems.items += 1

    def _request_dropped(self, request: Request) -> None:
        """Count a request that the scheduler drops, although it cannot be a duplicate."""
        if request.dont_filter:
            self._problems.requests += 1

    async def _spider_closed(self, reason: str) -> None:
        self._reason = reason
        if not self._waits_for_feeds:
            await self._finish(reason)

    async def _feeds_closed(self) -> None:
        """Finish the runs, unless the spider is closed after its feeds."""
        self._waits_for_feeds = False
        if self._reason is not None:
            await self._finish(self._reason)

    async def _finish(self, reason: str) -> None:
        problems = self._problems + self._problems_in_stats(reason)
        runner = CoroutineRunner()
        try:
            for run in self._runs.values():
                await run.finish(runner, reason, problems)
        finally:
            runner.close()
            self._runs.clear()

    def _problems_in_stats(self, reason: str) -> Problems:
        stats: dict[str, Any] = self._crawler.stats.get_stats() if self._crawler.stats else {}
        ignored = sum(
            number
            for name, number in stats.items()
            if name.startswith(_IGNORED) and name.removeprefix(_IGNORED) not in _GONE
        )
        has_failed = reason == _START_ERROR or stats.get(FAILED_STARTS)
        notes = ["the spider failed at its start"] if has_failed else []
        return Problems(requests=stats.get(FAILED_REQUESTS, 0) + ignored, notes=notes)


_runs_of: WeakKeyDictionary[Crawler, CrawlRuns] = WeakKeyDictionary()


def runs_of(crawler: Crawler) -> CrawlRuns:
    """Return the runs of a crawl, which all its components share."""
    if crawler not in _runs_of:
        _runs_of[crawler] = CrawlRuns(crawler)
    return _runs_of[crawler]
