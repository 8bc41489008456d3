"""Start of the service: checks, socket, migrations, then one or several worker processes."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import sys
from dataclasses import replace

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.blobs import open_blobs
from gleanery.service.foundation.observability import logs
from gleanery.service.foundation.security.vault import KeyFile, open_vault
from gleanery.service.maintenance import key_rotation
from gleanery.service.processes.certificates import open_certificates
from gleanery.service.processes.signals import exit_in_order
from gleanery.service.processes.supervisor import Supervisor
from gleanery.service.processes.worker import (
    BACKLOG,
    check_open_files,
    create_worker,
    run_in_event_loop,
)
from gleanery.service.storage import metadata
from gleanery.service.storage.engines import create_engine, open_engine

_log = logging.getLogger("gleanery")


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in progress.

    The socket is first, so that nothing is created if the port is in use. Clients that connect
    during the migration wait.
    """
    exit_in_order()
    logs.configure(settings)
    open_certificates(settings)
    check_open_files()
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
    """Serve on a bound socket and a prepared database. Exits with 1 after a failure."""
    logs.configure(settings)
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
        worker = create_worker(settings, listener)
        run_in_event_loop(worker, worker.run())
    elif not asyncio.run(Supervisor(settings, listener).run()):
        sys.exit(1)


async def prepare(settings: Settings) -> None:
    """Check the store of files and the secret key, and migrate the database."""
    if settings.has_secret_key:  # an unreadable key is reported even if the database is down
        open_vault(settings.secret_key, settings.key_file)
    await open_blobs(settings.blobs_location).check()
    is_new = settings.database is None and not settings.sqlite_file.exists()
    async with open_engine(settings) as database:
        await database.migrate(accept_compatible=True)  # it may restart during an upgrade
        if is_new:  # perhaps the data folder is a mistake
            _log.info("created a new database", extra={"data": str(settings.data.absolute())})
        await database.check_notifications()
        database.check_replicas(settings.replica)
        await metadata.reject_pending_restore(database)
        await metadata.check_or_store_identity(database, settings.same_data)
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


def _listen(settings: Settings, advice: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        place = f"{settings.host} port {settings.port}"
        raise SettingsError(f"Cannot listen on {place}: {_reason(error, advice)}") from None


def _reason(error: OSError, advice: str) -> str:
    """Say why the service cannot listen, and what to do."""
    number = error.errno or 0
    if number < 0:  # of the resolver of names
        return "there is no such host. Give an address of this machine with --host"
    reason = os.strerror(number)
    if number == errno.EADDRINUSE:
        return f"{reason}. Stop the program that uses the port, or {advice}"
    if number == errno.EACCES:
        return f"{reason}. Choose a port above 1023 with --port, or allow lower ones"
    return f"{reason}. Give an address of this machine with --host"
