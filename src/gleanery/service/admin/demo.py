"""Demo data: a realistic sample organization, stored by the same code as real data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.admin import sample
from gleanery.service.admin.sample import (
    Acknowledgement,
    Event,
    Review,
    Run,
    Sample,
    Setup,
    first_repriced,
)
from gleanery.service.foundation.blobs import open_blobs
from gleanery.service.foundation.field_types import MAX_INT64
from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.security.tokens import COMMAND_LINE
from gleanery.service.foundation.security.vault import open_vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import console_sessions, organizations
from gleanery.service.resources.groups import catalog
from gleanery.service.resources.monitors import alert_pages, alerts
from gleanery.service.resources.monitors.evaluation import Monitors
from gleanery.service.resources.monitors.models import AlertIn
from gleanery.service.resources.outputs import ingest
from gleanery.service.resources.outputs.batches import from_outputs
from gleanery.service.resources.reviews import adding
from gleanery.service.resources.runs import changing
from gleanery.service.resources.runs.changing import RunWork
from gleanery.service.resources.runs.models import FinishIn, RunIn
from gleanery.service.resources.sessions import writing
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.state_models import Cookie, LocalStorageEntry
from gleanery.service.storage import metadata
from gleanery.service.storage.database import Database, Engine
from gleanery.service.storage.engines import open_engine

ORGANIZATION = "Harvest & Co"
_DAY = 86_400 * timestamps.SECOND
_BATCH = 500
_OUTPUT_TIME = 2 * timestamps.SECOND  # that a scraper needs for an output
_LAST_PAGES = 40 * timestamps.SECOND  # that it needs for pages without outputs, at the end

_ENTRIES = [
    LocalStorageEntry(domain="homes.example", key="auth", value='{"token":"demo-51aa"}'),
    LocalStorageEntry(domain="www.corvo.example", key="region", value="DE", path="/"),
]


def _cookies(now: int) -> list[Cookie]:
    """Return the cookies of some sessions: one has expired, and one soon will."""
    seconds = now // timestamps.SECOND
    return [
        Cookie(
            domain=".homes.example",
            name="session",
            value="demo-4f1c9a",
            secure=True,
            http_only=True,
            expires=seconds + 2 * 86_400,
            path="/",
        ),
        Cookie(domain="www.corvo.example", name="consent", value="all", path=""),
        Cookie(
            domain="www.corvo.example",
            name="basket",
            value="demo-90ce",
            path="/",
            expires=seconds - 5 * 3600,
        ),
        Cookie(
            domain=".news.example",
            name="subscriber",
            value="demo-77d0",
            secure=True,
            expires=1_924_992_000,  # 2031-01-01
        ),
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
    images = await sample.store_images(database, open_blobs(settings.blobs_location), now)
    await _Replay(engine, database, now).store(Sample(images).events(), progress)
    await writing.store(COOKIES, database, vault, _cookies(now), now, actor)
    await writing.store(LOCAL_STORAGE, database, vault, _ENTRIES, now, actor)


class _Replay:
    """Stores the history of the sample, each event at its time, and judges each run."""

    def __init__(self, engine: Engine, database: Database, now: int) -> None:
        self._engine = engine
        self._database = database
        self._end = now
        self._now = now
        self._computations = FairThread()
        self._validator = SchemaValidator()  # starts no process, because no group has a schema
        self._work = RunWork(Monitors(self._computations, self._clock), self._clock)

    def _clock(self) -> int:
        return self._now

    async def store(self, events: list[Event], progress: StartProgress) -> None:
        advance = progress("Creating the sample", len(events))
        for event in events:
            await self._move_to(int(self._end - event.days_ago * _DAY))
            await self._store(event)
            advance(1)
        await self._move_to(self._end)

    async def _move_to(self, time: int) -> None:
        """Let time pass, and look whether a job is overdue by then."""
        self._now = time
        for look in await self._work.monitors.overdue(self._engine):
            await look()

    async def _store(self, event: Event) -> None:
        database, clock = self._database, self._clock
        match event:
            case Setup(_, group, settings):
                validator = self._validator
                await catalog.set_group(database, validator, group, settings, clock, COMMAND_LINE)
            case Run():
                await self._store_run(event)
            case Review(_, group, review, person):
                actor = COMMAND_LINE._replace(person=person)
                await adding.add_review(database, group, review, clock, actor)
            case Acknowledgement(_, group, job, person):
                actor = COMMAND_LINE._replace(person=person)
                page = await alert_pages.read_page(database, "open", group, job, MAX_INT64, 1)
                for alert in page.alerts:
                    wanted = AlertIn(acknowledged=True)
                    await alerts.change(database, alert["alert_id"], wanted, clock, actor)

    async def _store_run(self, run: Run) -> None:
        """Store a run that begins now: its start, its batches and its end."""
        database, clock, run_id = self._database, self._clock, None
        if run.status is not None:
            begun = RunIn(job_id=run.job, labels=None if run.labels is None else dict(run.labels))
            started = await changing.start(database, run.group, begun, clock, None)
            run_id = started["run_id"]
        for start in range(0, len(run.outputs), _BATCH):
            batch = from_outputs([*run.outputs[start : start + _BATCH]])
            self._now += len(batch.outputs) * _OUTPUT_TIME
            await ingest.store_batch(
                database,
                self._validator,
                self._computations,
                run.group,
                batch,
                clock,
                run_id=run_id,
            )
        if run_id is not None and run.status is not None:
            self._now += _LAST_PAGES
            end = FinishIn(status=run.status, message=run.message)
            await changing.finish(database, self._work, run.group, run_id, end, clock)


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

{console_sessions.link_address(address, login.link)}

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
{program} history shop-prices --url {first_repriced().source_url}
{program} fields shop-prices --job catalogue-de
{program} export shop-prices -o approved.csv --view approved

# (to keep the address and the token without these variables: {program} login {address})

# the same over HTTP: the first page of outputs, then only what changed in the last two days
curl {header} "{address}/v1/outputs/shop-prices?limit=2"
curl {header} "{address}/v1/outputs/shop-prices?limit=2&created_after={since}"

# only approved outputs, and the feed of all changes with deletions
curl {header} "{address}/v1/outputs/shop-prices?limit=2&approved=true"
curl {header} "{address}/v1/changes/shop-prices?limit=2"

# the newest runs: what each has sent, what was missing, and how it ended
curl {header} "{address}/v1/runs/shop-prices?limit=2"

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
