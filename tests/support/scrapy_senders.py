"""A sender of the Scrapy integration, without Scrapy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from gleanery.client.queue.batches import BatchQueue
from gleanery.client.queue.sender import Events, RejectedItems, Sender
from gleanery.client.queue.spool import Spool
from gleanery.integrations.scrapy.items import OutputPusher
from gleanery.integrations.scrapy.runs import CrawlRun
from gleanery.integrations.scrapy.settings import GleanerySettings


class RunningSender:
    """Sender, and what it has said to the pipeline."""

    def __init__(self, folder: Path, url: str, token: str | None, **settings: Any) -> None:
        given = {"group": "items", "job": "shop", "max_retries": 0, "close_seconds": 0.0}
        self.pending: BatchQueue[bytes] = BatchQueue(max_items=1000, max_seconds=60)
        self.spool = Spool(folder / "spool")
        self.rejected = RejectedItems(folder / "invalid", "items", "shop")
        self.counts: Counter[str] = Counter()
        self.has_ended = False
        chosen = GleanerySettings(url=url, token=token, **{**given, **settings})
        self.thread = Sender(
            self.pending,
            self.spool,
            self.rejected,
            Events(self._add, lambda: None, self._end),
            connect=chosen.client,
            target=OutputPusher(chosen, CrawlRun(chosen)),
            max_retries=chosen.max_retries,
            close_seconds=chosen.close_seconds,
            producer="this spider",
        )

    def run(self, *lines: bytes) -> None:
        """Send lines until the end."""
        for line in lines:
            assert self.pending.add(line, len(line))
        self.pending.end()
        self.thread.start()
        self.thread.join(120)
        assert not self.thread.is_alive()

    def _add(self, name: str, number: int) -> None:
        self.counts[name] += number

    def _end(self) -> None:
        self.has_ended = True
