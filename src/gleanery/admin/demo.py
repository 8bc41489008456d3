"""A believable sample organization, made by the same code that serves real ones."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import typer
from rich.progress import track

from gleanery.api.app import vault_of
from gleanery.errors import SettingsError
from gleanery.json_schema.validator import SchemaValidator
from gleanery.models.batches import of_outputs
from gleanery.models.requests import CookieIn, LocalStorageIn, Output, ReviewIn
from gleanery.security import tokens
from gleanery.serve import bound, prepare, serve_on
from gleanery.settings import Settings
from gleanery.storage import metadata, organizations, reviews
from gleanery.storage.audit import COMMAND_LINE
from gleanery.storage.database import Engine
from gleanery.storage.engines import opened
from gleanery.storage.outputs import ingest
from gleanery.storage.sessions import cookies, local_storage
from gleanery.values import timestamps

ORGANIZATION = "Harvest & Co"
_BATCH = 200
_DAY = 86_400 * timestamps.SECOND

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
_COLOURS = ("black", "sand", "forest green", "slate", "red")
_STREETS = ("Mill Lane", "Station Road", "Harbour Street", "Rue Verte", "Lindenallee")


class Sample:
    """The groups of the sample; the same on every run."""

    def __init__(self) -> None:
        self._random = random.Random(7)

    def batches(self) -> Iterator[tuple[str, list[Output], int]]:
        """Group, outputs and how many days ago they were scraped, oldest first."""
        shops = [self._product(number) for number in range(2400)]
        homes = [self._listing(number) for number in range(900)]
        news = [self._article(number) for number in range(500)]
        for group, found in (("shop-prices", shops), ("property-listings", homes), ("news", news)):
            for start in range(0, len(found), _BATCH):
                yield group, found[start : start + _BATCH], 6
        changed = self._random.sample(shops, 150)
        yield "shop-prices", [self._repriced(output) for output in changed], 1

    def _product(self, number: int) -> Output:
        pick = self._random.choice
        country, region, domain, currency = pick(_MARKETS)
        maker, thing, colour = pick(_MAKERS), pick(_THINGS), pick(_COLOURS)
        return Output(
            job_id=f"catalogue-{domain}",
            source_url=f"https://www.{maker.lower()}.example/{domain}/p/{10_000 + number}",
            key=f"sku-{10_000 + number}",
            data={
                "name": f"{maker} {thing}, {colour}",
                "brand": maker,
                "price": round(self._random.uniform(9, 240), 2),
                "currency": currency,
                "in_stock": self._random.random() < 0.8,
                "rating": round(self._random.uniform(2.5, 5), 1),
                "reviews": self._random.randrange(2000),
                "attributes": {"colour": colour, "weight_g": self._random.randrange(120, 4000)},
            },
            tags={"country": country, "region": region, "category": thing},
        )

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


_COOKIES = [
    CookieIn(
        domain=".homes.example",
        name="session",
        value="demo-4f1c9a",
        secure=True,
        http_only=True,
        expires="2031-01-01T00:00:00Z",  # type: ignore[arg-type]
        path="/",
    ),
    CookieIn(domain="www.corvo.example", name="consent", value="all", path=""),
    CookieIn(domain=".news.example", name="subscriber", value="demo-77d0", secure=True),
]
_ENTRIES = [
    LocalStorageIn(domain="homes.example", key="auth", value='{"token":"demo-51aa"}'),
    LocalStorageIn(domain="www.corvo.example", key="region", value="DE", path="/"),
]
_REVIEWS = [
    ("shop-prices", ReviewIn(job_id="catalogue-de", status="approved", comment="Spot check fine.")),
    (
        "shop-prices",
        ReviewIn(job_id="catalogue-jp", status="changes_requested", comment="Prices lack the tax."),
    ),
    ("property-listings", ReviewIn(job_id="rentals", status="in_review", comment="")),
    ("news", ReviewIn(job_id="front-pages", status="rejected", comment="Half are adverts.")),
]


def run(data: Path | None, port: int) -> None:
    """Fills a database, unless that was done before, and serves it."""
    with ExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gleanery-demo-")))
        settings = Settings(data=data, port=port, log_level="warning").check()
        listener, settings = bound(settings)
        is_new = not settings.sqlite_file.exists()
        asyncio.run(prepare(settings))
        token = asyncio.run(_token(settings, is_new))
        typer.echo(introduction(settings.address, token))
        serve_on(listener, settings)


async def _token(settings: Settings, is_new: bool) -> str:
    """A token for the sample, which is made first if the database is new."""
    async with opened(settings) as database:
        if not is_new and not await metadata.is_sample(database):
            raise SettingsError(
                f"{settings.data} holds a database that is not a finished sample: "
                "give --data an empty folder, or none"
            )
        token = await organizations.create_token(
            database, ORGANIZATION, frozenset(tokens.SCOPES), timestamps.now(), None
        )
        if is_new:
            await _store_sample(database, settings, token)
            await metadata.mark_as_sample(database)
        return token


async def _store_sample(engine: Engine, settings: Settings, token: str) -> None:
    grant = await organizations.find_grant(engine, tokens.digest(token))
    assert grant is not None
    organization_id, vault, now = grant.organization_id, vault_of(settings), timestamps.now()
    database, by = engine.for_tenant(organization_id), COMMAND_LINE
    schemas = SchemaValidator()  # the sample has none, so that nothing is started
    for group, found, days_ago in track(list(Sample().batches()), "Making the sample"):
        moment = now - days_ago * _DAY
        await ingest.store_outputs(
            database, schemas, organization_id, group, of_outputs(found), partial(int, moment)
        )
    for group, review in _REVIEWS:
        await reviews.add_review(database, group, review, timestamps.now, by)
    await cookies.store_cookies(database, vault, _COOKIES, now, by)
    await local_storage.store_entries(database, vault, _ENTRIES, now, by)


def introduction(address: str, token: str) -> str:
    """What a newcomer reads: the token and lines that work when pasted."""
    header = '-H "Authorization: Bearer $TOKEN"'
    since = (datetime.now(UTC) - timedelta(days=2)).strftime("%Y-%m-%d")
    cookie = '[{"domain": ".shop.example", "name": "sid", "value": "s3cret", "path": ""}]'
    return f"""
Gleanery serves the sample organization “{ORGANIZATION}” at {address}
(the reference is at {address}/docs; Ctrl-C ends it). In another terminal, paste:

TOKEN={token}

# the first page of a group's outputs, then only what changed in the last two days
curl {header} "{address}/v1/outputs/shop-prices?limit=2"
curl {header} "{address}/v1/outputs/shop-prices?limit=2&created_after={since}"

# outputs of one country, of one region
curl {header} "{address}/v1/outputs/property-listings?limit=2&country=UK"
curl {header} "{address}/v1/outputs/property-listings?limit=2&region=DE-BY"

# what the reviewers say, and the session state that scrapers use
curl {header} "{address}/v1/reviews/shop-prices"
curl {header} "{address}/v1/cookies"
curl {header} "{address}/v1/local-storage"

# hand the scrapers a cookie
curl {header} -H "Content-Type: application/json" \\
  -d '{cookie}' "{address}/v1/cookies"
"""
