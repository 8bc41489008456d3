"""Environment of a fault: a folder, PostgreSQL servers and services as real processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from faults.postgres_server import PostgresServer
from faults.service import Service

ROOT = Path(__file__).parent.parent


class Environment:
    """Creates servers and services, and ends them at the end of the context."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._root, self._stack = folder, stack
        self._paths = 0

    def new_path(self, name: str) -> Path:
        """Return an unused path. Nothing exists there yet."""
        self._paths += 1
        return self._root / f"{self._paths}-{name}"

    def new_server(
        self,
        folder: Path | None = None,
        programs: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> PostgresServer:
        """Return a server whose data folder does not exist yet."""
        folder = folder or self.new_path("postgres")
        server = PostgresServer(folder, self.new_path("log"), programs, settings)
        self._stack.callback(server.kill)
        return server

    def start_server(
        self,
        folder: Path | None = None,
        programs: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> PostgresServer:
        """Return a running server with an empty database."""
        server = self.new_server(folder, programs, settings)
        server.create()
        return server

    def start_service(
        self,
        database: str | None,
        *options: str,
        folder: Path | None = None,
        log: Path | None = None,
    ) -> Service:
        """Return a running service: on PostgreSQL if there is a URL, otherwise on SQLite."""
        if folder is None:
            folder = self.new_path("data")
            folder.mkdir()
        service = Service(folder, database, log or self.new_path("log"), *options)
        self._stack.callback(service.kill)
        service.start()
        return service

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call the callback when the environment ends."""
        self._stack.callback(callback)

    def enter(self, context: Any) -> Any:
        """Enter a context that ends with the environment."""
        return self._stack.enter_context(context)


@contextmanager
def open_environment() -> Iterator[Environment]:
    with tempfile.TemporaryDirectory(prefix="gleanery-faults-") as path, ExitStack() as stack:
        folder = Path(path)
        folder.chmod(0o755)  # PostgreSQL reads it as another user
        yield Environment(folder, stack)
