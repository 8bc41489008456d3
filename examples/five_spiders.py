"""Five spiders that store what a shop has on one day; since day 11, each of them is broken.

``python five_spiders.py 11`` stores the runs of day 11 in the group ``shops``. With ``--repaired``
all spiders work again, and the shop of s2 has only half of its products. The guide "Know when a
scraper breaks" tells the story.
"""

from __future__ import annotations

import argparse
from typing import Any

from gleanery import Client

GROUP = "shops"
SPIDERS = ("s1", "s2", "s3", "s4", "s5")
PRODUCTS = 200
BROKEN_SINCE = 11
Items = list[dict[str, Any]]


def products(spider: str, day: int) -> Items:
    """Return what the shop of a spider has. Each day, 5 of the 200 products are sold out."""
    return [
        {
            "url": f"https://{spider}.example/products/{number}",
            "name": f"Product {number}",
            "price": 10.5 + number,
        }
        for number in range(PRODUCTS)
        if (number + day) % 40
    ]


def scrape(spider: str, day: int, is_repaired: bool) -> Items | None:
    """Return what a spider finds, or None if it does not run."""
    items = products(spider, day)
    if day < BROKEN_SINCE or (is_repaired and spider != "s2"):
        return items
    match spider:
        case "s1":  # half of the pages show the price in another place
            return [item | {"price": None} if n % 2 else item for n, item in enumerate(items)]
        case "s2":  # the list of products ends earlier
            return items[:95]
        case "s3":  # the site blocks it, and it ends without an error
            return []
        case "s4":  # a category of the shop has another address
            return [item for item in items if item["price"] < 170]
        case _:  # its line in the crontab is gone
            return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("day", type=int)
    parser.add_argument("--repaired", action="store_true")
    arguments = parser.parse_args()
    stored = []
    with Client() as client:
        for spider in SPIDERS:
            items = scrape(spider, arguments.day, arguments.repaired)
            if items is not None:
                with client.run(GROUP, job_id=spider) as run:
                    run.push(items)
                stored.append(f"{spider} {len(items)}")
    print(f"Day {arguments.day}: {', '.join(stored)}")


if __name__ == "__main__":
    main()
