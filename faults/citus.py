"""PostgreSQL with Citus on loopback: a coordinator, and workers that hold the shards."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from faults import programs
from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.service import command_line, environment_variables

_SETTINGS = {
    "shared_preload_libraries": "citus",
    "citus.node_conninfo": "sslmode=prefer",
    "citus.shard_count": "8",
    "max_prepared_transactions": "100",
    "citus.enable_statistics_collection": "off",
}
_WORKERS_IN_USE = """
SELECT count(DISTINCT nodeport) FROM organizations, pg_dist_shard_placement
WHERE shardid = get_shard_id_for_distribution_column('outputs', organizations.id)
"""


@dataclass(frozen=True)
class CitusCluster:
    """A coordinator and its workers with one distributed database."""

    coordinator: PostgresServer
    workers: Sequence[PostgresServer]

    @property
    def servers(self) -> list[PostgresServer]:
        return [self.coordinator, *self.workers]

    def create(self) -> None:
        for server in self.servers:
            server.create()
            server.run("CREATE EXTENSION citus", "gleanery")
        run = self.coordinator.run
        run(f"SELECT citus_set_coordinator_host('127.0.0.1', {self.coordinator.port})", "gleanery")
        for worker in self.workers:
            run(f"SELECT citus_add_node('127.0.0.1', {worker.port})", "gleanery")
        command = command_line("migrate", "--distribute", "--database", self.coordinator.url())
        subprocess.run(command, env=environment_variables(), check=True, capture_output=True)

    def check_workers(self) -> None:
        """Raise an exception if a worker holds no rows of an organization."""
        if int(self.coordinator.run(_WORKERS_IN_USE, "gleanery")) < len(self.workers):
            raise RuntimeError("a worker of Citus has no organization: create more of them")


def start_citus(environment: Environment, workers: int) -> CitusCluster:
    folder = programs.citus()
    if folder is None:
        raise programs.MissingProgram(programs.NEEDS_CITUS)
    coordinator, *others = (
        environment.new_server(programs=folder, settings=_SETTINGS) for _ in range(workers + 1)
    )
    cluster = CitusCluster(coordinator, others)
    cluster.create()
    return cluster
