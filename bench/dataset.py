"""Outputs of about 1 KB, as a scraper of a shop would give them."""

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
    """The same on every run. Ten of them, far apart, have what the rare filters ask for."""
    choice = random.Random(seed)
    every = max(count // RARE_MATCHES, 1)
    for number in range(count):
        is_rare = number % every == every // 2
        place = choice.randrange(len(_COUNTRIES))
        tags = {"country": _COUNTRIES[place], "region": _REGIONS[place]}
        if is_rare:
            tags = {"country": "Iceland", "region": "IS-1"}
        yield {
            "job_id": "rare" if is_rare else f"catalogue-{number % 7}",
            "source_url": "https://shop.example/rare" if is_rare else _address(number),
            "key": f"sku-{number}",
            "data": {
                "name": " ".join(choice.choices(_WORDS, k=4)),
                "price": round(choice.uniform(5, 500), 2),
                "currency": "EUR",
                "in_stock": choice.random() < 0.8,
                "description": " ".join(choice.choices(_WORDS, k=60)),
                "attributes": {word: choice.randrange(1000) for word in choice.sample(_WORDS, 5)},
            },
            "tags": tags,
        }


def _address(number: int) -> str:
    return f"https://shop.example/p/{number}"
