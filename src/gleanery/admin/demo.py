"""Demo data: a realistic sample organization, stored by the same code as real data."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from gleanery.errors import SettingsError
from gleanery.json_schema.validator import SchemaValidator
from gleanery.models.batches import from_outputs
from gleanery.models.requests import Output, ReviewIn
from gleanery.models.session_state import Cookie, LocalStorageEntry
from gleanery.observability.progress import StartProgress
from gleanery.scheduling.fair_thread import FairThread
from gleanery.security import console_login, tokens
from gleanery.security.vault import open_vault
from gleanery.settings import Settings
from gleanery.storage import console_sessions, metadata, organizations
from gleanery.storage.audit import COMMAND_LINE
from gleanery.storage.database import Database, Engine
from gleanery.storage.engines import open_engine
from gleanery.storage.outputs import ingest
from gleanery.storage.reviews import adding
from gleanery.storage.sessions import records
from gleanery.storage.sessions.cookies import COOKIES
from gleanery.storage.sessions.local_storage import LOCAL_STORAGE
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
    """Generator of the sample's groups; every run gives the same data."""

    def __init__(self) -> None:
        self._random = random.Random(7)

    def batches(self) -> Iterator[tuple[str, list[Output], int]]:
        """Yield group, outputs and their age in days, oldest first."""
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
    Cookie(
        domain=".homes.example",
        name="session",
        value="demo-4f1c9a",
        secure=True,
        http_only=True,
        expires=1_924_992_000,  # 2031-01-01
        path="/",
    ),
    Cookie(domain="www.corvo.example", name="consent", value="all", path=""),
    Cookie(domain=".news.example", name="subscriber", value="demo-77d0", secure=True),
]
_ENTRIES = [
    LocalStorageEntry(domain="homes.example", key="auth", value='{"token":"demo-51aa"}'),
    LocalStorageEntry(domain="www.corvo.example", key="region", value="DE", path="/"),
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


class Login(NamedTuple):
    """Access to the sample organization: a token, and the secret of a one-time login link."""

    token: str
    link: str


async def create_login(settings: Settings, is_new: bool, progress: StartProgress) -> Login:
    """Return a login for the sample organization, which is created in a new database."""
    async with open_engine(settings) as database:
        if not is_new and not await metadata.is_demo(database):
            raise SettingsError(
                f"{settings.data} contains a database that is not a complete sample: give --data "
                "an empty folder, or omit it"
            )
        token = await organizations.create_token(
            database, ORGANIZATION, frozenset(tokens.SCOPES), timestamps.now(), None
        )
        if is_new:
            await _store_sample(database, settings, token, progress)
            await metadata.mark_as_demo(database)
        return Login(token, await _create_link(database, token))


async def _create_link(engine: Engine, token: str) -> str:
    grant = await organizations.find_grant(engine, tokens.digest(token))
    assert grant is not None
    return await console_sessions.create_link(engine, grant, None, timestamps.now())


async def _store_sample(
    engine: Engine, settings: Settings, token: str, progress: StartProgress
) -> None:
    grant = await organizations.find_grant(engine, tokens.digest(token))
    assert grant is not None
    now, vault = timestamps.now(), open_vault(settings.secret_key, settings.key_file)
    database, actor = engine.for_tenant(grant.organization_id), COMMAND_LINE
    await _store_outputs(database, now, progress)
    for group, review in _REVIEWS:
        await adding.add_review(database, group, review, timestamps.now, actor)
    await records.store(COOKIES, database, vault, _COOKIES, now, actor)
    await records.store(LOCAL_STORAGE, database, vault, _ENTRIES, now, actor)


async def _store_outputs(database: Database, now: int, progress: StartProgress) -> None:
    schema_validator = SchemaValidator()  # starts no process, because no group has a schema
    batches = list(Sample().batches())
    advance = progress("Creating the sample", len(batches))
    for group, outputs, days_ago in batches:
        batch, clock = from_outputs(outputs), partial(int, now - days_ago * _DAY)
        await ingest.store_batch(database, schema_validator, FairThread(), group, batch, clock)
        advance(1)


def _changed_page() -> str:
    """Return the page of an output with two versions."""
    *_, (_, repriced, _) = Sample().batches()
    return repriced[0].source_url


def introduction(address: str, login: Login, program: str) -> str:
    """Return the text for a new user: the login, the token, and commands to try.

    ``program`` is how the user's shell finds the command ``gleanery``.
    """
    header = '-H "Authorization: Bearer $GLEANERY_TOKEN"'
    since = (datetime.now(UTC) - timedelta(days=2)).strftime("%Y-%m-%d")
    cookie = '[{"domain": ".shop.example", "name": "sid", "value": "s3cret", "path": ""}]'
    return f"""
Gleanery serves the sample organization “{ORGANIZATION}” at {address}
(reference: {address}/docs; Ctrl-C stops the service).

Open the console in a browser. This link signs you in once, within 15 minutes; later, paste the
token below at {address}/console:

{console_login.link_address(address, login.link)}

Or paste these lines into another terminal:

export GLEANERY_URL={address}
export GLEANERY_TOKEN={login.token}

# the groups, and the outputs of one as a table
{program} groups
{program} export shop-prices -o prices.csv

# its changes in files, with deletions: run it again, and get only the new ones
{program} pull shop-prices -o prices

# what to review, how one output changed, how well fields are filled, and only approved data
{program} sample shop-prices catalogue-de --size 4
{program} history shop-prices --url {_changed_page()}
{program} fields shop-prices --job catalogue-de
{program} export shop-prices -o approved.csv --view approved

# (to keep the address and the token without these variables: {program} login {address})

# the same over HTTP: the first page of outputs, then only what changed in the last two days
curl {header} "{address}/v1/outputs/shop-prices?limit=2"
curl {header} "{address}/v1/outputs/shop-prices?limit=2&created_after={since}"

# only approved outputs, and the feed of all changes with deletions
curl {header} "{address}/v1/outputs/shop-prices?limit=2&approved=true"
curl {header} "{address}/v1/changes/shop-prices?limit=2"

# outputs of one country, and of one region
curl {header} "{address}/v1/outputs/property-listings?limit=2&country=UK"
curl {header} "{address}/v1/outputs/property-listings?limit=2&region=DE-BY"

# reviews, and the session state that scrapers use
curl {header} "{address}/v1/reviews/shop-prices"
curl {header} "{address}/v1/cookies"
curl {header} "{address}/v1/local-storage"

# store a cookie for the scrapers
curl {header} -H "Content-Type: application/json" \\
  -d '{cookie}' "{address}/v1/cookies"
"""
