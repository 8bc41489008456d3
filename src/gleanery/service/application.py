"""The application: builds the objects of the service, and starts and stops them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.api.pipeline import UNMATCHED, RequestPipeline
from gleanery.service.api.readiness import Readiness
from gleanery.service.api.reference.page import Description
from gleanery.service.api.services import Capacity, Services
from gleanery.service.foundation.blobs import open_blobs
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.observability import logs, telemetry
from gleanery.service.foundation.observability.metrics import (
    EXPIRED_RECORDS,
    EXPIRING_RECORDS,
    OPEN_ALERTS,
    SharedCounters,
)
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.security.vault import create_vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.http import ConnectionRegistry, Limits
from gleanery.service.maintenance.sweep import Sweep, SweepClock, UsageStore
from gleanery.service.resources.access import console_sessions
from gleanery.service.resources.access import operations as access
from gleanery.service.resources.access.authentication import TokenAuthenticator, TokenUse
from gleanery.service.resources.audit import operations as audit
from gleanery.service.resources.audit.log import ReadAuditor
from gleanery.service.resources.changes import operations as changes
from gleanery.service.resources.exports import operations as exports
from gleanery.service.resources.exports.tables import TableExports
from gleanery.service.resources.files import operations as files
from gleanery.service.resources.files.links import FileLinks
from gleanery.service.resources.groups import operations as groups
from gleanery.service.resources.monitors import operations as monitors
from gleanery.service.resources.monitors.evaluation import Monitors
from gleanery.service.resources.monitors.metrics import JobMetrics
from gleanery.service.resources.outputs import operations as outputs
from gleanery.service.resources.outputs.large_batches import LargeBatches
from gleanery.service.resources.reviews import operations as reviews
from gleanery.service.resources.runs import operations as runs
from gleanery.service.resources.runs.changing import RunWork
from gleanery.service.resources.sessions import operations as sessions
from gleanery.service.resources.system import operations as system
from gleanery.service.resources.system.metrics import observe_service
from gleanery.service.resources.webhooks import operations as webhooks
from gleanery.service.resources.webhooks.dispatcher import Dispatcher
from gleanery.service.resources.webhooks.targets import Targets
from gleanery.service.storage import metadata
from gleanery.service.storage.database import Engine
from gleanery.service.storage.engines import create_engine

if TYPE_CHECKING:
    from gleanery.service.api.rate_limits import RateLimiter

_log = logging.getLogger("gleanery")
_NO_KEYS = "The secret keys cannot be read: the log of the service says why"
_PROBE_SECONDS, _FAILING_PROBE_SECONDS = 30.0, 5.0
_SWEEP_DELAY = 300  # seconds by which a sweep can be late


RESOURCES = (
    outputs.RESOURCE,
    exports.RESOURCE,
    changes.RESOURCE,
    groups.RESOURCE,
    monitors.RULES,
    runs.RESOURCE,
    monitors.ALERTS,
    reviews.RESOURCE,
    files.RESOURCE,
    sessions.RESOURCE,
    webhooks.RESOURCE,
    audit.RESOURCE,
    access.RESOURCE,
    system.RESOURCE,
)
"""All resources, in the order of the reference."""


OPERATIONS = tuple(operation for resource in RESOURCES for operation in resource.operations)
"""The operations of the public API."""
ALL_OPERATIONS = (
    *OPERATIONS,
    *(operation for resource in RESOURCES for operation in resource.console_operations),
    system.SERVER_OPTIONS,
)
"""The operations that the service routes."""


def build_app(
    settings: Settings,
    clock: Callable[[], int] = timestamps.now,
    counters: SharedCounters | None = None,
    sweep_clock: Callable[[Engine, Callable[[], int]], SweepClock] = SweepClock,
) -> App:
    """Build the service with these settings.

    ``clock`` returns the time in microseconds. Several workers share ``counters``.
    ``sweep_clock`` makes the clock that decides what has expired.
    """
    vault = create_vault(settings.secret_key, settings.key_file)
    blobs = open_blobs(settings.blobs_location, settings.blobs_public_url)
    database = create_engine(settings, with_replicas=True)
    token_use = TokenUse(database, clock)
    cookie_name = console_sessions.cookie_name(settings.address)
    authenticator = TokenAuthenticator(
        database, settings.token_cache_seconds, clock, token_use, cookie_name
    )
    targets = Targets(settings.webhook_allow)
    computations = FairThread()
    judging = Monitors(computations, clock)
    services = Services(
        settings=settings,
        clock=clock,
        database=database,
        blobs=blobs,
        vault=vault,
        capacity=Capacity.from_settings(settings),
        computations=computations,
        compressions=FairThread(),
        telemetry=telemetry.Telemetry(
            logs.request_log(settings),
            (UNMATCHED, *(operation.name for operation in ALL_OPERATIONS)),
            counters or SharedCounters.private(),
            _folders(settings),
            settings.slow_request_seconds,
            settings.metrics_organizations,
        ),
        readiness=Readiness(database),
        authenticator=authenticator,
        rate_limiter=_create_rate_limiter(settings),
        resources={
            Description: Description(RESOURCES, settings),
            Dispatcher: Dispatcher(database, vault, targets, settings, clock),
            FileLinks: FileLinks(settings.address, vault, blobs, settings.blob_url_seconds),
            LargeBatches: LargeBatches(),
            ReadAuditor: ReadAuditor(),
            Monitors: judging,
            RunWork: RunWork(judging, clock),
            SchemaValidator: SchemaValidator(),
            TableExports: TableExports(settings.data, settings.max_export_bytes),
            Targets: targets,
            TokenAuthenticator: authenticator,
            TokenUse: token_use,
        },
    )
    job_metrics = JobMetrics(database, services.telemetry.jobs, settings.metrics_groups, clock)
    sweep = Sweep(
        database,
        blobs,
        judging,
        vault,
        token_use,
        UsageStore(database, services.telemetry.usage, clock),
        job_metrics,
        settings,
        clock,
        sweep_clock(database, clock),
    )
    return App(services, sweep)


def _create_rate_limiter(settings: Settings) -> RateLimiter | None:
    if settings.rate_limit is None:
        return None
    from gleanery.service.api.rate_limits import RateLimiter  # slow to import, and rarely needed

    return RateLimiter(settings.rate_limit, settings.rate_limit_storage)


def _folders(settings: Settings) -> dict[str, Path]:
    """Return the folders whose free space is a metric."""
    blobs = {} if settings.blobs_folder is None else {"blobs": settings.blobs_folder}
    return {"data": settings.data, **blobs}


def _limits(settings: Settings) -> Limits:
    return Limits(
        idle_seconds=settings.idle_seconds,
        stall_seconds=settings.stall_seconds,
        max_connections=settings.max_connections,
    )


class App:
    """The service with its background tasks, between ``start`` and ``stop``."""

    def __init__(self, services: Services, sweep: Sweep) -> None:
        self._services = services
        settings = services.settings
        self.application = RequestPipeline(services, ALL_OPERATIONS)
        """Handles the requests of the built-in server, or of an ASGI server."""
        self.registry = ConnectionRegistry(self.application, _limits(settings))
        """The connections of the built-in server."""
        self.metrics = services.telemetry.worker
        """Metrics of this worker, where the server registers its own."""
        observe_service(self.metrics, services, self.registry)
        self.metrics.observe(EXPIRED_RECORDS, lambda: sweep.session_records.expired)
        self.metrics.observe(EXPIRING_RECORDS, lambda: sweep.session_records.expiring)
        self.metrics.observe(OPEN_ALERTS, lambda: sweep.job_metrics.open_alerts)
        self.unsent_bytes = services.capacity.unsent_bytes
        """The bytes of responses in memory. The server returns the memory to the system."""
        self._sweep = sweep
        self._tasks: list[asyncio.Task[None]] = []
        self._is_open = False

    async def start(self) -> None:
        """Start without waiting for the database: a worker may be replaced while it is away."""
        try:
            await self._services.readiness.start(self._connect)
        except BaseException:
            await self.stop()
            raise
        if self._services.rate_limiter is not None:
            await self._services.rate_limiter.check()
        self._tasks = [
            asyncio.create_task(self._services.telemetry.publish()),
            asyncio.create_task(self._probe_blobs()),
        ]

    async def _probe_blobs(self) -> None:
        """Probe the store of files, until it is cancelled; more often while it fails."""
        blobs = self._services.blobs
        while True:
            await asyncio.sleep(_FAILING_PROBE_SECONDS if blobs.is_failing else _PROBE_SECONDS)
            try:
                await blobs.probe()
            except Exception:  # such as a variable of the environment that is not valid any more
                _log.exception("the store of files could not be probed")

    async def _connect(self) -> None:
        """Connect to the prepared database; after an error this is called again."""
        database, vault = self._services.database, self._services.vault
        await self._open_database(database)
        await database.check_schema(accept_compatible=True)
        await metadata.reject_pending_restore(database)
        self._read_keys()
        await metadata.check_or_store_key(database, vault)
        await self._record_link_seconds()
        if security_warning := await database.security_warning():
            _log.warning("row-level security is not active", extra={"reason": security_warning})
        await self._sweep.start()
        self._services[Dispatcher].start()

    def _read_keys(self) -> None:
        """Read the secret keys. The error is for everybody, so it does not name the file."""
        try:
            self._services.vault.reload()
        except (SettingsError, OSError) as error:
            raise Unavailable(_NO_KEYS) from error

    async def _open_database(self, database: Engine) -> None:
        """Open the database once. The error is for everybody, so it does not name the location."""
        if not self._is_open:
            try:
                await database.open(create=False)
            except SettingsError as error:
                raise Unavailable from error
            self._is_open = True

    async def _record_link_seconds(self) -> None:
        """Store for how long a link can be valid after the start of a key rotation.

        A worker signs with the old key until its next sweep. A bucket signs links itself.
        """
        settings = self._services.settings
        if settings.blobs_folder is not None:
            seconds = settings.blob_url_seconds + math.ceil(settings.sweep_seconds) + _SWEEP_DELAY
            await metadata.record_link_seconds(self._services.database, seconds)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._services.readiness.stop()
        await self._services[Dispatcher].stop()
        await self._sweep.stop()
        await self._services[RunWork].stop()
        if self._services.rate_limiter is not None:
            await self._services.rate_limiter.close()
        await self._services[SchemaValidator].close()
        await self._services[LargeBatches].close()
        await self._services.database.close()
