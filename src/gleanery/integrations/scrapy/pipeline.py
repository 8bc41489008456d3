"""The item pipeline: it stores items in batches, without blocking the reactor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from gleanery.integrations.scrapy.settings import GleanerySettings

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler


class GleaneryPipeline:
    """Item pipeline that stores items as outputs of a group."""

    def __init__(self, settings: GleanerySettings) -> None:
        settings.require_group()
        self._settings = settings

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(GleanerySettings.from_crawler(crawler))

    def process_item(self, item: Any, spider: Spider | None = None) -> Any:
        return item
