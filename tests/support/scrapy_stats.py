"""Stats of a Scrapy run, written to a file at its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scrapy.statscollectors import StatsCollector


class WrittenStats(StatsCollector):
    """Stats that are in ``stats.json`` of the current folder when the run has ended."""

    def _persist_stats(self, stats: dict[str, Any]) -> None:
        Path("stats.json").write_text(json.dumps(stats, default=str))
