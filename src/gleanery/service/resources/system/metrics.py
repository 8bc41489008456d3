"""The metrics of one worker: connections, requests, webhooks, database pool, rate limiter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gleanery.service.api.services import Services
from gleanery.service.foundation.observability.metrics import WorkerMetrics
from gleanery.service.http import ConnectionRegistry
from gleanery.service.resources.webhooks.dispatcher import Dispatcher
from gleanery.service.storage.database import Engine, PoolState, ReplicaState

if TYPE_CHECKING:
    from gleanery.service.api.rate_limits import RateLimiter


def observe_service(
    metrics: WorkerMetrics,
    services: Services,
    registry: ConnectionRegistry,
) -> None:
    """Register the metrics of the parts that this service has."""
    metrics.observe("gleanery_connections_open", lambda: registry.open_connections)
    metrics.observe("gleanery_connections_evicted_total", lambda: registry.evicted_connections)
    metrics.observe("gleanery_connections_refused_total", lambda: registry.refused_connections)
    metrics.observe("gleanery_requests_in_progress", lambda: services.capacity.requests.held)
    metrics.observe("gleanery_long_polls_in_progress", lambda: services.capacity.long_polls.held)
    metrics.observe("gleanery_transfers_in_progress", lambda: services.capacity.transfers.held)
    metrics.observe("gleanery_unsent_bytes", lambda: services.capacity.unsent_bytes.held)
    metrics.observe("gleanery_ready", lambda: services.readiness.is_ready)
    metrics.observe("gleanery_blob_store_failing", lambda: services.blobs.is_failing)
    metrics.observe("gleanery_blob_store_errors_total", lambda: services.blobs.errors)
    dispatcher = services[Dispatcher]
    counts = dispatcher.counts
    metrics.observe("gleanery_webhook_deliveries_waiting", lambda: counts.waiting)
    metrics.observe("gleanery_webhook_oldest_due_seconds", lambda: dispatcher.oldest_due_seconds)
    metrics.observe("gleanery_webhook_attempts_succeeded_total", lambda: counts.succeeded)
    metrics.observe("gleanery_webhook_attempts_failed_total", lambda: counts.failed)
    if services.database.pool_state is not None:
        _observe_pool(metrics, services.database)
    if services.settings.replica:
        _observe_replicas(metrics, services.database)
    rate_limiter = services.rate_limiter
    if rate_limiter is not None and rate_limiter.is_shared:
        _observe_redis(metrics, rate_limiter)


def _observe_pool(metrics: WorkerMetrics, database: Engine) -> None:
    def state() -> PoolState:
        assert database.pool_state is not None
        return database.pool_state

    metrics.observe("gleanery_postgres_pool_connections_max", lambda: state().size)
    metrics.observe("gleanery_postgres_pool_connections_in_use", lambda: state().in_use)
    metrics.observe("gleanery_postgres_pool_requests_waiting", lambda: state().waiting)


def _observe_replicas(metrics: WorkerMetrics, database: Engine) -> None:
    def usable() -> list[ReplicaState]:
        return [state for state in database.replica_states if state.is_usable]

    metrics.observe("gleanery_replicas_configured", lambda: len(database.replica_states))
    metrics.observe("gleanery_replicas_usable", lambda: len(usable()))
    metrics.observe(
        "gleanery_replica_lag_seconds",
        lambda: max((state.lag_seconds for state in usable()), default=math.nan),
    )


def _observe_redis(metrics: WorkerMetrics, rate_limiter: RateLimiter) -> None:
    metrics.observe("gleanery_redis_fallback_active", lambda: rate_limiter.is_fallback_active)
    metrics.observe("gleanery_redis_fallbacks_total", lambda: rate_limiter.fallbacks)
