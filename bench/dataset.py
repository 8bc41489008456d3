"""Test data: outputs of about 1 KB, like those of a scraper of an online shop."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

LARGE_GROUP, SMALL_GROUP = "shop", "few"
LARGE_SIZE = int(os.environ.get("GLEANERY_BENCH_OUTPUTS", "1000000"))
SMALL_SIZE = 10_000
"""Outputs in the small group. The peers hold the same records."""
RARE_MATCHES = 10
"""Outputs that match the rare value of each filter."""

_WORDS = [
    "light",
    "warm",
    "waterproof",
    "recycled",
    "cotton",
    "steel",
    "narrow",
    "tall",
    "compact",
    "durable",
    "soft",
    "quiet",
]
_COUNTRIES = ("Germany", "France", "Japan", "Brazil", "Canada", "India")
_REGIONS = ("DE-BY", "FR-75C", "JP-13", "BR-SP", "CA-ON", "IN-MH")


def outputs(count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Generate the same outputs on every run.

    Ten of them, evenly spaced, have the rare values that the filters search for.
    """
    generator = random.Random(seed)
    interval = max(count // RARE_MATCHES, 1)
    for number in range(count):
        is_rare = number % interval == interval // 2
        index = generator.randrange(len(_COUNTRIES))
        tags = {"country": _COUNTRIES[index], "region": _REGIONS[index]}
        if is_rare:
            tags = {"country": "Iceland", "region": "IS-1"}
        yield {
            "job_id": "rare" if is_rare else f"catalogue-{number % 7}",
            "source_url": "https://shop.example/rare" if is_rare else _source_url(number),
            "key": f"sku-{number}",
            "data": _product(generator),
            "tags": tags,
        }


def changed_outputs(count: int, version: int) -> Iterator[dict[str, Any]]:
    """Generate the same outputs, whose price and stock differ from version to version."""
    for output in outputs(count):
        data = output["data"]
        price = round(data["price"] * (1 + version / 100), 2)
        yield output | {"data": data | {"price": price, "in_stock": version % 2 == 0}}


def _source_url(number: int) -> str:
    return f"https://shop.example/p/{number}"


def _product(generator: random.Random) -> dict[str, Any]:
    return {
        "name": " ".join(generator.choices(_WORDS, k=4)),
        "price": round(generator.uniform(5, 500), 2),
        "currency": "EUR",
        "in_stock": generator.random() < 0.8,
        "description": " ".join(generator.choices(_WORDS, k=60)),
        "attributes": {word: generator.randrange(1000) for word in generator.sample(_WORDS, 5)},
    }
