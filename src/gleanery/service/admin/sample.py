"""A sample organization: a month of runs and reviews, and images of the products."""

from __future__ import annotations

import hashlib
import random
import struct
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from gleanery.service.foundation.blobs import Blobs
from gleanery.service.resources.files import records as file_records
from gleanery.service.resources.files.models import FileIn
from gleanery.service.resources.groups.models import GroupSettings, MissingSettings
from gleanery.service.resources.outputs.models import Output
from gleanery.service.resources.reviews.models import ReviewIn
from gleanery.service.storage.database import Database

SHOP, HOMES, NEWS = "shop-prices", "property-listings", "news"
_PRODUCTS = 1500
_PRODUCTS_PER_IMAGE = 8
_START = 33  # days ago: then all groups were stored for the first time
_SHOP_DAYS = (_START, *range(28, 14, -3), *range(14, 0, -1))  # days ago, with runs of all jobs
_HOME_DAYS = (_START, 22, 15, 8, 5, 4, 3, 2, 1)
_CHANGES = (30, 45, 80, 20, 12, 60, 110)  # new prices by day of the week
_PAUSE = 0.03  # days between the starts of two jobs of a group
_REMOVED_AFTER = 2  # complete runs in a row

_MARKETS = (
    ("Germany", "DE-BY", "de", "EUR"),
    ("France", "FR-IDF", "fr", "EUR"),
    ("United Kingdom", "GB-LND", "uk", "GBP"),
    ("United States", "US-CA", "com", "USD"),
    ("Japan", "JP-13", "jp", "JPY"),
    ("Brazil", "BR-SP", "br", "BRL"),
)
_MAKERS = ("Aldwin", "Brightline", "Corvo", "Dalmar", "Estrela", "Fjord", "Hakone")
_THINGS = ("kettle", "desk lamp", "backpack", "rain jacket", "headphones", "coffee grinder")
_COLOURS = {
    "black": (34, 36, 40),
    "sand": (214, 190, 150),
    "forest green": (38, 92, 66),
    "slate": (96, 110, 128),
    "red": (190, 52, 48),
}
"""Colours of products and their images, as red, green and blue."""
_IMAGE_SIZE = 160
_STREETS = ("Mill Lane", "Station Road", "Harbour Street", "Rue Verte", "Lindenallee")


class Setup(NamedTuple):
    """The settings of a group."""

    days_ago: float
    group: str
    settings: GroupSettings


class Run(NamedTuple):
    """A run of a job, with the outputs that it sent."""

    days_ago: float
    group: str
    job: str
    outputs: Sequence[Output]
    status: Literal["complete", "partial", "failed"] | None = "complete"
    """None: its outputs name no run, so nobody starts or finishes it."""
    message: str | None = None
    labels: Mapping[str, str] | None = None


class Review(NamedTuple):
    """A review of a job."""

    days_ago: float
    group: str
    review: ReviewIn
    person: str


class Acknowledgement(NamedTuple):
    """A person says that somebody works on the newest open alert of a job."""

    days_ago: float
    group: str
    job: str
    person: str


Event = Setup | Run | Review | Acknowledgement


class Sample:
    """Generator of the sample's history, which is the same each time.

    ``images`` has the id of an uploaded image for each colour.
    """

    def __init__(self, images: Mapping[str, str]) -> None:
        self._random = random.Random(7)
        self._images = images

    def events(self) -> list[Event]:
        """Return everything that happened, oldest first."""
        found: list[Event] = [
            _SETUP,
            *self._shop(),
            *self._homes(),
            *self._news(),
            *_REVIEWS,
            _ACKNOWLEDGEMENT,
        ]
        return sorted(found, key=lambda event: -event.days_ago)

    def _shop(self) -> Iterator[Run]:
        """Yield runs of each market. Prices change on every day, and products vanish."""
        shop = {one.source_url: one for one in map(self._product, range(_PRODUCTS))}
        jobs = sorted({one.job_id for one in shop.values()})
        for day in _SHOP_DAYS:
            if day != _START:
                changed = self._random.sample([*shop.values()], _CHANGES[day % 7])
                shop |= {one.source_url: self._repriced(one) for one in changed}
            for place, job in enumerate(jobs):
                outputs = [one for one in shop.values() if one.job_id == job]
                if _has_run(job, day):
                    labels = {"currency": outputs[0].data["currency"]}
                    run = Run(day - place * _PAUSE, SHOP, job, outputs, labels=labels)
                    yield _shop_run(run, day)

    def _homes(self) -> Iterator[Run]:
        """Yield the homes. The newest run of the rentals lacks many prices."""
        homes = [self._listing(number) for number in range(900)]
        for day in _HOME_DAYS:
            homes = [self._changed_home(one) for one in homes]
            for place, job in enumerate(("rentals", "sales")):
                outputs = [one for one in homes if one.job_id == job]
                if (day, job) == (5, "rentals"):
                    outputs = []  # the scraper has found no link, and no error
                elif (day, job) == (3, "sales"):
                    outputs = outputs[: len(outputs) // 2]  # it has read half of the pages
                elif (day, job) == (1, "rentals"):
                    outputs = [self._without_price(one) for one in outputs]
                yield Run(day - place * _PAUSE, HOMES, job, outputs)

    def _changed_home(self, output: Output) -> Output:
        if self._random.random() < 0.93:
            return output
        price = round(output.data["price"] * self._random.uniform(0.9, 1.06))
        return output._replace(data=output.data | {"price": price})

    def _without_price(self, output: Output) -> Output:
        if self._random.random() < 0.62:
            return output
        return output._replace(data=output.data | {"price": None})

    def _news(self) -> Iterator[Run]:
        """Yield new articles. Earlier ones stay, so no run is complete."""
        articles = [self._article(number) for number in range(500)]
        for day in range(_START, 2, -1):
            some, articles = articles[: 6 + day * 5 % 19], articles[6 + day * 5 % 19 :]
            yield Run(day, NEWS, "front-pages", some, status=None)
        yield Run(1.9, NEWS, "front-pages", articles, status=None)

    def _product(self, number: int) -> Output:
        pick = self._random.choice
        country, region, domain, currency = pick(_MARKETS)
        maker, thing, colour = pick(_MAKERS), pick(_THINGS), pick(tuple(_COLOURS))
        page = f"https://www.{maker.lower()}.example/{domain}/p/{10_000 + number}"
        return Output(
            job_id=f"catalogue-{domain}",
            source_url=page,
            key=f"sku-{10_000 + number}",
            data={
                "name": f"{maker} {thing}, {colour}",
                "brand": maker,
                "price": round(self._random.uniform(9, 240), 2),
                "currency": currency,
                "in_stock": self._random.random() < 0.8,
                "rating": round(self._random.uniform(2.5, 5), 1),
                "reviews": self._random.randrange(2000),
                "image": f"{page}.png",
                "attributes": {"colour": colour, "weight_g": self._random.randrange(120, 4000)},
            },
            tags={"country": country, "region": region, "category": thing},
            files=[self._image(colour)] if number % _PRODUCTS_PER_IMAGE == 0 else None,
        )

    def _image(self, colour: str) -> FileIn:
        return FileIn(field="image", id=self._images[colour])

    def _repriced(self, output: Output) -> Output:
        price = round(output.data["price"] * self._random.uniform(0.8, 1.1), 2)
        return output._replace(data=output.data | {"price": price})

    def _listing(self, number: int) -> Output:
        country, region, domain, currency = self._random.choice(_MARKETS)
        street = self._random.choice(_STREETS)
        return Output(
            job_id=self._random.choice(("rentals", "sales")),
            source_url=f"https://homes.example/{domain}/{500_000 + number}",
            data={
                "address": f"{self._random.randrange(1, 180)} {street}",
                "rooms": self._random.randrange(1, 7),
                "area_m2": self._random.randrange(24, 210),
                "price": self._random.randrange(700, 4200),
                "currency": currency,
                "balcony": self._random.random() < 0.4,
            },
            tags={"country": country, "region": region},
        )

    def _article(self, number: int) -> Output:
        country, _, domain, _ = self._random.choice(_MARKETS)
        maker, thing = self._random.choice(_MAKERS), self._random.choice(_THINGS)
        day = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=13 * number)
        return Output(
            job_id="front-pages",
            source_url=f"https://news.example/{domain}/{number}",
            data={
                "headline": f"{maker} recalls its {thing}",
                "published": day.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "words": self._random.randrange(200, 1800),
            },
            tags={"country": country},
        )


def first_repriced() -> Output:
    """Return an output with several versions."""
    first: dict[str, Output] = {}
    for event in Sample(dict.fromkeys(_COLOURS, "0" * 32)).events():
        if isinstance(event, Run) and event.group == SHOP:
            for output in event.outputs:
                if first.setdefault(output.source_url, output).data != output.data:
                    return output
    raise AssertionError("the prices of the sample change")


def _has_run(job: str, days_ago: int) -> bool:
    """Return False for a job between its rejection and today."""
    return job != "catalogue-jp" or days_ago > 6


def _shop_run(run: Run, day: int) -> Run:
    """Return a run as it was on this day: some went wrong, and some products were gone."""
    outputs = run.outputs
    match run.job, day:
        case "catalogue-com", 4:
            some = outputs[: len(outputs) * 3 // 5]
            return run._replace(outputs=some, status="partial", message=_STOPPED)
        case "catalogue-fr", 2:
            return run._replace(outputs=outputs[:20], status="failed", message=_REFUSED)
        case "catalogue-br", 2 | 1:  # a new layout: only the first pages of each category are found
            return run._replace(outputs=outputs[: len(outputs) * 9 // 20])
        case "catalogue-de", 3 | 2:
            return run._replace(outputs=outputs[7:])
        case "catalogue-de", 1:  # the first are removed by now; others are missing
            return run._replace(outputs=outputs[11:])
    return run


_STOPPED = "Stopped at the time limit, after 12 of 20 categories"
_REFUSED = "HTTP 403 from www.brightline.example, 25 times in a row"
_SETUP = Setup(
    _START + 0.1,
    SHOP,
    GroupSettings(display_name="Shop prices", missing=MissingSettings(after_runs=_REMOVED_AFTER)),
)


def _review(days_ago: float, group: str, person: str, *review: str) -> Review:
    job, status, comment = review
    values = {"job_id": job, "status": status, "comment": comment}
    return Review(days_ago, group, ReviewIn.model_validate(values), person)


_REVIEWS = (
    _review(20.4, SHOP, "Mira Holm", "catalogue-com", "approved", ""),
    _review(12.3, SHOP, "Jonas Weber", "catalogue-fr", "approved", "Checked 60, all fine."),
    _review(
        10.2, HOMES, "Mira Holm", "rentals", "approved", "Addresses and areas match the pages."
    ),
    _review(6.1, SHOP, "Jonas Weber", "catalogue-jp", "changes_requested", "Prices lack the tax."),
    _review(5.3, HOMES, "Mira Holm", "sales", "in_review", "Asked the agency about two listings."),
    _review(3.5, SHOP, "Mira Holm", "catalogue-de", "approved", "Spot check fine."),
    _review(2.2, NEWS, "Jonas Weber", "front-pages", "rejected", "Half are adverts."),
    _review(0.4, SHOP, "Mira Holm", "catalogue-uk", "approved", ""),
)


_ACKNOWLEDGEMENT = Acknowledgement(3.9, SHOP, "catalogue-jp", "Jonas Weber")


async def store_images(database: Database, blobs: Blobs, now: int) -> dict[str, str]:
    """Store an image for each colour, and return the ids of the files."""
    return {colour: await _store_image(database, blobs, colour, now) for colour in _COLOURS}


async def _store_image(database: Database, blobs: Blobs, colour: str, now: int) -> str:
    content = _png(_COLOURS[colour])
    key = await file_records.begin_upload(database, now)
    await blobs.put(key, "image/png", _stream(content), len(content))
    name = f"{colour.replace(' ', '-')}.png"
    upload = file_records.Upload(
        checksum=hashlib.sha256(content).digest(),
        size=len(content),
        file_type="image/png",
        source_url=f"https://images.example/{name}",
        etag="1",
        filename=name,
    )
    file = await file_records.finish_upload(database, key, upload, now)
    return file.id.hex()


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _png(colour: tuple[int, int, int]) -> bytes:
    """Return a square of the colour on a light ground, brighter towards the top."""
    rows = b"".join(_row(y, colour) for y in range(_IMAGE_SIZE))
    header = struct.pack(">IIBBBBB", _IMAGE_SIZE, _IMAGE_SIZE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _row(y: int, colour: tuple[int, int, int]) -> bytes:
    light = 1.25 - 0.5 * y / _IMAGE_SIZE
    inside = bytes(min(255, round(part * light)) for part in colour)
    edge = _IMAGE_SIZE // 5
    if not edge <= y < _IMAGE_SIZE - edge:
        return b"\0" + b"\xf2\xf3\xf5" * _IMAGE_SIZE
    return (
        b"\0" + b"\xf2\xf3\xf5" * edge + inside * (_IMAGE_SIZE - 2 * edge) + b"\xf2\xf3\xf5" * edge
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
