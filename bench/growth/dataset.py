"""Outputs of the growth measurement: many equal groups, with items of about 560 bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

SMALL, LARGE = (
    int(number) for number in os.environ.get("GLEANERY_BENCH_GROWTH", "100000 10000000").split()
)
"""Outputs in the two databases that are compared."""
GROUPS = int(os.environ.get("GLEANERY_BENCH_GROUPS", "1000"))
ORGANIZATIONS = 10
MATCHES = 10
"""Outputs of each group that have the rare values, and outputs that are approved."""

RARE = {
    "job_id": "rare",
    "url": "https://shop.example/rare",
    "country": "Iceland",
    "region": "IS-1",
}
REVIEWED = {
    "job_id": "reviewed",
    "url": "https://shop.example/reviewed",
    "country": "Norway",
    "region": "NO-03",
}
_COUNTRIES = ("Germany", "France", "Japan", "Brazil", "Canada", "India")
_REGIONS = ("DE-BY", "FR-75C", "JP-13", "BR-SP", "CA-ON", "IN-MH")
COMMON = {"job_id": "catalogue-1", "country": _COUNTRIES[1], "region": _REGIONS[1]}


def group_name(number: int) -> str:
    return f"shop-{number}"


def organization_name(number: int) -> str:
    return f"organization-{number}"


def organization_of(group: int) -> int:
    return group % ORGANIZATIONS


def group_outputs(count: int) -> Iterator[dict[str, Any]]:
    """Generate the outputs of a group. Rare and reviewed ones are evenly spaced."""
    for number in range(count):
        yield output(number, _special_values(number, count))


def common_outputs(count: int, version: int = 0) -> list[dict[str, Any]]:
    """Return the outputs of a group that are neither rare nor reviewed."""
    numbers = (number for number in range(count) if _special_values(number, count) is None)
    return [output(number, version=version) for number in numbers]


def _special_values(number: int, count: int) -> dict[str, str] | None:
    interval = max(count // MATCHES, 2)
    position = number % interval
    return RARE if position == interval // 2 else REVIEWED if position == 0 else None


def output(number: int, special: dict[str, str] | None = None, version: int = 0) -> dict[str, Any]:
    values = special or _common_values(number)
    return {
        "job_id": values["job_id"],
        "source_url": values["url"],
        "key": f"sku-{number}",
        "data": {
            "name": f"shelf {number * 7919 % 9973}",
            "price": number * 31 % 50_000 / 100 + version,
            "in_stock": number % 5 > 0,
        },
        "tags": {"country": values["country"], "region": values["region"]},
    }


def _common_values(number: int) -> dict[str, str]:
    index = number * 7 % 13 % len(_COUNTRIES)
    return {
        "job_id": f"catalogue-{number % 7}",
        "url": f"https://shop.example/p/{number}",
        "country": _COUNTRIES[index],
        "region": _REGIONS[index],
    }
