"""The check that items of an earlier run do not replace newer values in the service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gleanery.client import Client, NotFound
from gleanery.integrations.scrapy.settings import GleanerySettings
from gleanery.integrations.scrapy.spool import Spool


def drop_older(client: Client, settings: GleanerySettings, spool: Spool) -> int:
    """Remove the items of earlier runs that were scraped again since; return their number.

    It reads the whole job, but only if somebody has stored items of it since then. The result is
    written to the spool before anything is sent, because a later run could not find it again.
    """
    batches = spool.earlier()
    times = [batch.time() for batch in batches]
    keys = _OutputKeys(client, settings)
    if not batches or not keys.is_scraped_after(min(times)):
        return 0
    scraped = keys.read_dates({keys.of_line(line) for batch in batches for line in batch.read()})
    dropped = 0
    for batch, time in zip(batches, times, strict=True):
        lines = batch.read()
        kept = [line for line in lines if scraped.get(keys.of_line(line), 0.0) <= time]
        if len(kept) < len(lines):
            batch.replace(kept)
            dropped += len(lines) - len(kept)
    return dropped


class _OutputKeys:
    """Keys of the outputs of one job, as hashes, and their dates in the service."""

    def __init__(self, client: Client, settings: GleanerySettings) -> None:
        self._client = client
        self._group = settings.require_group()
        self._job = settings.job
        self._names: Sequence[str] = settings.key_fields

    def is_scraped_after(self, time: float) -> bool:
        """Return True if the job has stored items after this time. A repeated item counts."""
        try:
            self._names = self._client.group(self._group).key_fields or self._names
            scrapes = self._client.fields(self._group, self._job).scrapes
        except NotFound:  # nothing is stored
            return False
        return any(scrape.last_seen.timestamp() > time for scrape in scrapes)

    def read_dates(self, wanted: set[int]) -> dict[int, float]:
        """Return the times at which the outputs with these keys were last scraped."""
        found = {}
        for output in self._client.outputs(self._group, job_id=self._job):
            key = self._hash(output.data, output.source_url)
            if key in wanted:
                found[key] = output.last_scraped_date.timestamp()
        return found

    def of_line(self, line: bytes) -> int:
        output = json.loads(line)
        return self._hash(output["data"], output["source_url"])

    def _hash(self, data: dict[str, Any], source_url: str) -> int:
        values = [data.get(name) for name in self._names]
        if not values or None in values:
            values = [source_url]
        # as a key, an integer equals the text of its digits
        texts = [str(value) if isinstance(value, int) else value for value in values]
        return hash(json.dumps(texts, sort_keys=True))
