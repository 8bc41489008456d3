"""What every fault is tried on: a folder, PostgreSQL servers, and services as real processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from faults.postgres_server import PostgresServer
from faults.service import Service

ROOT = Path(__file__).parent.parent


class Environment:
    """Gives out what is asked for, and clears it away at the end."""

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        self._root, self._closing = folder, closing
        self._made = 0

    def folder(self, name: str) -> Path:
        """The place for one; it is not made yet."""
        self._made += 1
        return self._root / f"{self._made}-{name}"

    def server(self, folder: Path | None = None) -> PostgresServer:
        """Not made yet, either."""
        server = PostgresServer(folder or self.folder("postgres"), self.folder("log"))
        self._closing.callback(server.kill)
        return server

    def made_server(self) -> PostgresServer:
        server = self.server()
        server.make()
        return server

    def service(self, database: str | None, *options: str, folder: Path | None = None) -> Service:
        """Serving, on PostgreSQL if a URL is given."""
        if folder is None:
            folder = self.folder("data")
            folder.mkdir()
        service = Service(folder, database, self.folder("log"), *options)
        self._closing.callback(service.kill)
        service.start()
        return service

    def enter(self, context: Any) -> Any:
        """Enters a context that is left when all is cleared away."""
        return self._closing.enter_context(context)


@contextmanager
def open_environment() -> Iterator[Environment]:
    with tempfile.TemporaryDirectory(prefix="gleanery-faults-") as made, ExitStack() as closing:
        folder = Path(made)
        folder.chmod(0o755)  # PostgreSQL reaches through it under another name
        yield Environment(folder, closing)
