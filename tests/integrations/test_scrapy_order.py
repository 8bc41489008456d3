"""The pipeline keeps the order of items, also while there is no room for them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from scrapy.utils.test import get_crawler

from gleanery.integrations.scrapy.pipeline import GleaneryPipeline

_SETTINGS = {
    "GLEANERY_URL": "http://127.0.0.1:9",
    "GLEANERY_TOKEN": "token",
    "GLEANERY_GROUP": "items",
    "GLEANERY_BATCH_SIZE": 1,
}


class Engine:
    """Engine that is only paused and continued."""

    def __init__(self) -> None:
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def unpause(self) -> None:
        self.paused = False


def new_pipeline(engine: Engine) -> Any:
    crawler: Any = get_crawler(settings_dict=_SETTINGS)
    crawler.engine = engine
    return GleaneryPipeline.from_crawler(crawler)


def take_value(pipeline: Any) -> Any:
    """Take the first batch, as the thread does, and return its only value."""
    value = json.loads(pipeline._pending.first(0).entries[0])["data"]["value"]
    pipeline._pending.remove_first()
    return value


async def yield_items(number: int) -> tuple[list[Any], list[Any], Engine]:
    """Process items while the thread takes some. Return their values in and out of the pipeline."""
    engine = Engine()
    pipeline = new_pipeline(engine)
    waiting, taken = [], []
    for value in range(number):
        result = pipeline.process_item({"url": "https://shop.example/", "value": value})
        if asyncio.iscoroutine(result):
            assert engine.paused
            waiting.append(asyncio.ensure_future(result))
        if value >= 10:
            taken += [take_value(pipeline), take_value(pipeline)]  # the reactor knows it later
        if value % 3 == 2:
            pipeline._continue()
            await asyncio.sleep(0)
    while len(taken) < number:
        taken.append(take_value(pipeline))
        pipeline._continue()
    items = await asyncio.gather(*waiting)
    return [item["value"] for item in items], taken, engine


def test_an_item_does_not_overtake_one_that_waits() -> None:
    waited, taken, engine = asyncio.run(yield_items(16))
    assert taken == list(range(16))
    assert waited == sorted(waited) != []
    assert not engine.paused
