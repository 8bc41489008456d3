"""Runs the service: migrations first, then one process or several on one socket."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import uvicorn
from uvicorn.supervisors import Multiprocess

from gleanery.api.app import App, build_app, has_key, vault_of
from gleanery.blobs import open_blobs
from gleanery.errors import SettingsError
from gleanery.http import Connection, ServerState
from gleanery.observability import logs
from gleanery.settings import Settings
from gleanery.storage import metadata
from gleanery.storage.engines import database_of, opened

_log = logging.getLogger("gleanery")
_BACKLOG = 2048
_HUNG_SECONDS = 30  # a worker that gives no sign of life for so long is replaced
_OTHER_FILES = 500  # that a worker has open beside its clients' connections
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h has them


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what is in flight."""
    _check_tls(settings)
    asyncio.run(prepare(settings))
    serve_on(*bound(settings))


def bound(settings: Settings) -> tuple[socket.socket, Settings]:
    """A socket on the address of the settings, and the settings with the port it has."""
    listener = _listen(settings)
    return listener, replace(settings, port=listener.getsockname()[1])


def serve_on(listener: socket.socket, settings: Settings) -> None:
    """The same on a socket that is already bound, over a database that is prepared."""
    logs.configure(settings)
    for number in (signal.SIGINT, signal.SIGTERM):  # before and after the server has its own
        signal.signal(number, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    _log.info(
        "serving",
        extra={
            "address": settings.address,
            "listening": f"{settings.host} port {settings.port}",
            "engine": database_of(settings).engine,
            "data": str(settings.data.absolute()),
            "workers": settings.workers,
        },
    )
    if settings.workers == 1:
        uvicorn.Server(config(settings, partial(_worker, settings))).run(sockets=[listener])
        return
    # Where the workers keep their counts, so that /metrics of any one tells of all.
    with tempfile.TemporaryDirectory(prefix="gleanery-metrics-") as folder:
        make_app = partial(_worker, settings, Path(folder))
        Multiprocess(config(settings, make_app), sockets=[listener]).run()


async def prepare(settings: Settings) -> None:
    """The schema in its newest form, under the right key, and a place for files."""
    open_blobs(settings.blobs_place)
    async with opened(settings) as database:
        await database.migrate()
        await metadata.refuse_half_restored(database)
        if await metadata.knows_key(database) and not has_key(settings):
            raise SettingsError(
                f"The secret key {settings.key_file} is missing: put it back; if it is lost, "
                "gleanery keys forget removes what only it could open"
            )
        await metadata.claim_key(database, vault_of(settings))


def _check_tls(settings: Settings) -> None:
    if settings.tls_cert is not None:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
        except ssl.SSLError:
            raise SettingsError(
                "--tls-cert and --tls-key must be a certificate and its own key, both PEM"
            ) from None


def _worker(settings: Settings, counts_folder: Path | None = None) -> App:
    """What each worker process makes for itself; nothing is shared but the database."""
    _keep_freed_memory()
    logs.configure(settings)
    _allow_files(settings.max_connections + _OTHER_FILES)
    return build_app(settings, counts_folder=counts_folder)


def _keep_freed_memory() -> None:
    """Lets the C library use the memory of a large page again for the next one.

    By default it gives each block above 128 KiB back to the system at once, and the system has to
    clear every page of the next: that takes longer than to fill it.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library that knows no such options
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 8 * 1024 * 1024)
        library.mallopt(_M_TRIM_THRESHOLD, 32 * 1024 * 1024)


def _allow_files(count: int) -> None:
    """A connection is an open file, of which the system allows a process few unless it asks."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < count:
        _log.warning(
            "fewer open files are allowed than --max-connections needs", extra={"allowed": most}
        )
        count = most
    if allowed != resource.RLIM_INFINITY and allowed < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, most))


def _connection(config: uvicorn.Config, server_state: ServerState, **_: object) -> Connection:
    """What the server makes for each client."""
    return Connection(cast(App, config.loaded_app).registry, server_state)


def config(settings: Settings, make_app: Callable[[], App]) -> uvicorn.Config:
    """How the application is served, in every process the same."""
    return uvicorn.Config(
        make_app,
        factory=True,
        workers=settings.workers,
        loop="uvloop",
        http=cast(type[asyncio.Protocol], _connection),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_worker_healthcheck=_HUNG_SECONDS,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"Can't listen on {settings.host} port {settings.port}: "
            f"{os.strerror(error.errno or 0)}; end the program that has it, or choose another "
            "with --port"
        ) from None
