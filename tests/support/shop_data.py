"""Products of the shop of the examples, stored as its scrapers store them."""

from __future__ import annotations

from random import Random

from examples.shop import PRODUCTS, product
from gleanery import Client
from gleanery.client import PushReport


def push_products(client: Client, group: str, day: int = 1) -> PushReport:
    """Stores all products with the prices of a day, in another order than that of their numbers."""
    numbers = list(range(1, PRODUCTS + 1))
    Random(day).shuffle(numbers)  # a scraper does not keep the order either
    items = (
        {"url": f"https://shop.example/products/{number}", **product(number, day)._asdict()}
        for number in numbers
    )
    return client.push(group, items, job_id="shop", key_field="sku")
