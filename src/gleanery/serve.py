"""Start of the service: socket, migrations, then one or several worker processes."""

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
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from gleanery.api.app import App, build_app
from gleanery.api.asgi import AsgiApp
from gleanery.blobs import open_blobs
from gleanery.errors import SettingsError
from gleanery.http import Connection, ServerState
from gleanery.observability import logs
from gleanery.security.key_files import KeyFile
from gleanery.security.vault import open_vault
from gleanery.settings import Settings
from gleanery.storage import metadata
from gleanery.storage.engines import create_engine, open_engine
from gleanery.storage.maintenance import key_rotation

_log = logging.getLogger("gleanery")
_BACKLOG = 2048
_WORKER_TIMEOUT_SECONDS = 30  # a worker that does not respond for this time is replaced
_OTHER_FILES = 500  # open files of a worker beside its client connections
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # from glibc's malloc.h
# How long the event loop waits for each busy thread. With the default of 5 ms the median of a
# small response was 3.1 ms beside the writer of large batches; with 0.5 ms it was 1.2 ms.
_SWITCH_SECONDS = 0.0005


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in progress.

    The socket is first, so that nothing is created if the port is in use. Clients that connect
    during the migration wait.
    """
    _check_tls(settings)
    logs.configure(settings)
    listener, settings = bound(settings)
    asyncio.run(prepare(settings))
    serve_on(listener, settings)


def bound(
    settings: Settings, advice: str = "choose another with --port"
) -> tuple[socket.socket, Settings]:
    """Return a listening socket, and the settings with its actual port.

    ``advice`` completes the message about a port that is in use.
    """
    listener = _listen(settings, advice)
    return listener, replace(settings, port=listener.getsockname()[1])


def serve_on(listener: socket.socket, settings: Settings) -> None:
    """Serve on a bound socket and a prepared database."""
    logs.configure(settings)
    for number in (signal.SIGINT, signal.SIGTERM):  # while the server has no handler
        signal.signal(number, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    _log.info(
        "serving",
        extra={
            "address": settings.address,
            "listening": f"{settings.host} port {settings.port}",
            "engine": create_engine(settings).engine,
            "data": str(settings.data.absolute()),
            "workers": settings.workers,
        },
    )
    if settings.workers == 1:
        uvicorn.Server(config(settings, partial(_worker, settings))).run(sockets=[listener])
        return
    # The workers share this folder of metrics, so /metrics of each shows the sum.
    with tempfile.TemporaryDirectory(prefix="gleanery-metrics-") as folder:
        make_app = partial(_worker, settings, Path(folder))
        Multiprocess(config(settings, make_app), sockets=[listener]).run()


async def prepare(settings: Settings) -> None:
    """Check the store of files and the secret key, and migrate the database."""
    if settings.has_secret_key:  # an unreadable key is reported even if the database is down
        open_vault(settings.secret_key, settings.key_file)
    await open_blobs(settings.blobs_location).check()
    is_new = settings.database is None and not settings.sqlite_file.exists()
    async with open_engine(settings) as database:
        await database.migrate()
        if is_new:  # perhaps the data folder is a mistake
            _log.info("created a new database", extra={"data": str(settings.data.absolute())})
        await metadata.reject_pending_restore(database)
        needed = await key_rotation.needed_keys(database)
        if not settings.has_secret_key:
            _create_key_file(settings, needed)
        vault = open_vault(settings.secret_key, settings.key_file)
        if not all(map(vault.knows, needed)):
            raise SettingsError(metadata.WRONG_KEY)
        await metadata.check_or_store_key(database, vault)


def _create_key_file(settings: Settings, needed: set[str]) -> None:
    """Create the key file of a new database. Raises SettingsError if the database needs a key."""
    if needed:
        raise SettingsError(
            f"The secret key {settings.key_file} is missing: put it back; if it is lost, "
            "gleanery keys forget removes the values that need it"
        )
    KeyFile(settings.key_file).create()


def _check_tls(settings: Settings) -> None:
    if settings.tls_cert is not None:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
        except ssl.SSLError:
            raise SettingsError(
                "--tls-cert and --tls-key must be a certificate and its private key, both PEM"
            ) from None


def _worker(settings: Settings, metrics_folder: Path | None = None) -> App:
    """Create the application of a worker process. Workers share only the database."""
    _keep_freed_memory()
    sys.setswitchinterval(_SWITCH_SECONDS)
    logs.configure(settings)
    _raise_open_files_limit(settings.max_connections + _OTHER_FILES)
    return build_app(settings, metrics_folder=metrics_folder)


def _keep_freed_memory() -> None:
    """Let the C library reuse the memory of a large response.

    By default it returns each block above 128 KiB to the system. The system then clears every
    page of the next block, which takes longer than to fill it.
    """
    with contextlib.suppress(OSError, AttributeError):  # C libraries other than glibc
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 8 * 1024 * 1024)
        library.mallopt(_M_TRIM_THRESHOLD, 32 * 1024 * 1024)
        library.mallopt(_M_ARENA_MAX, 2)  # else each thread keeps the most that it ever needed


def _raise_open_files_limit(count: int) -> None:
    """Raise the limit on open files: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        _log.warning(
            "the limit on open files is too low for --max-connections", extra={"allowed": hard}
        )
        count = hard
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _connection(config: uvicorn.Config, server_state: ServerState, **_: object) -> Connection:
    """Create the protocol object of a client connection."""
    return Connection(cast(AsgiApp, config.loaded_app).app.registry, server_state)


class _AsgiConnection(H11Protocol):
    """Connection of uvicorn's own server, which ends waiting requests when the server stops.

    uvicorn's faster parser, httptools, drops the body of a request that offers an upgrade.
    """

    def shutdown(self) -> None:
        cast(AsgiApp, self.config.loaded_app).app.application.shutdown()
        super().shutdown()


_CONNECTIONS = {"builtin": _connection, "asgi": _AsgiConnection}


def _asgi_app(make_app: Callable[[], App]) -> AsgiApp:
    return AsgiApp(make_app())


def config(settings: Settings, make_app: Callable[[], App]) -> uvicorn.Config:
    """Return the server configuration, which is the same in every process."""
    return uvicorn.Config(
        partial(_asgi_app, make_app),
        factory=True,
        workers=settings.workers,
        loop="uvloop",
        http=cast(type[asyncio.Protocol], _CONNECTIONS[settings.server]),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=settings.idle_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_worker_healthcheck=_WORKER_TIMEOUT_SECONDS,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


def _listen(settings: Settings, advice: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"Cannot listen on {settings.host} port {settings.port}: "
            f"{os.strerror(error.errno or 0)}. Stop the program that uses the port, or {advice}"
        ) from None
