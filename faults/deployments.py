"""Deployments of the service with several servers: what runs, and which parts are killed."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from faults.citus import start_citus
from faults.environment import Environment
from faults.pgbouncer import start_pgbouncer
from faults.processes import wait_until
from faults.replication import ReplicatedServers
from faults.service import Service, create_token

_NODE_OPTIONS = ("--workers", "2", "--pool-size", "5")
_MAX_SECONDS_DOWN = 0.5


class Part(Protocol):
    """A process that can be killed and started again."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


class Storage(Protocol):
    """A database whose files can be checked."""

    def integrity_errors(self) -> str: ...


@dataclass
class Deployment:
    """Nodes and what they depend on."""

    title: str
    database: str | None
    """URL for the commands of an operator; None for the SQLite file of the only node."""
    nodes: Sequence[Service]
    kills: dict[str, Callable[[], None]]
    """What is killed, by its name; each of them leaves everything running."""
    servers: Callable[[], Sequence[Storage]]
    check: Callable[[], object] = lambda: None
    """Raises an exception if the load does not use every part."""

    def create_token(self, organization: str) -> str:
        if self.database is None:
            return self.nodes[0].create_token(organization)
        return create_token(("--database", self.database), organization)

    def integrity_errors(self) -> str:
        """Stop all servers. Return what is wrong with their files; empty if nothing is."""
        return "; ".join(filter(None, (server.integrity_errors() for server in self.servers())))


def _restart(part: Part) -> None:
    part.kill()
    time.sleep(random.uniform(0, _MAX_SECONDS_DOWN))
    part.start()


def _restarts(parts: Sequence[Part]) -> Callable[[], None]:
    """Return a function that kills the parts in turn."""
    turns = itertools.cycle(parts)
    return lambda: _restart(next(turns))


def _start_nodes(environment: Environment, database: str, *options: str) -> list[Service]:
    return [environment.start_service(database, *_NODE_OPTIONS, *options) for _ in range(2)]


def one_node(environment: Environment, engine: str) -> Deployment:
    server = environment.start_server() if engine == "PostgreSQL" else None
    database = server.url() if server else None
    service = environment.start_service(database, "--workers", "2")
    kills = {"a worker": lambda: _kill_worker(service), "the service": _restarts([service])}
    if server:
        kills["PostgreSQL"] = _restarts([server])
    title = f"one node with two workers on {engine}"
    return Deployment(title, database, [service], kills, lambda: [server or service])


def _kill_worker(service: Service) -> None:
    """Kill one of the workers. The supervisor starts another one."""
    wait_until(lambda: len(service.workers()) == 2)
    os.kill(random.choice(service.workers()), signal.SIGKILL)


def nodes(environment: Environment) -> Deployment:
    server = environment.start_server()
    services = _start_nodes(environment, server.url())
    kills = {"a node": _restarts(services), "PostgreSQL": _restarts([server])}
    return Deployment("two nodes on PostgreSQL", server.url(), services, kills, lambda: [server])


def pooler(environment: Environment) -> Deployment:
    server = environment.start_server()
    bouncer = start_pgbouncer(environment, server)
    options = ("--pooling", "transaction", "--listen-database", server.url())
    services = _start_nodes(environment, bouncer.url(), *options)
    kills = {
        "PgBouncer": _restarts([bouncer]),
        "a node": _restarts(services),
        "PostgreSQL": _restarts([server]),
    }
    title = "two nodes behind PgBouncer in transaction mode"
    return Deployment(title, server.url(), services, kills, lambda: [server])


def replicas(environment: Environment) -> Deployment:
    servers = ReplicatedServers(environment)
    options = [part for url in servers.urls() for part in ("--replica", url)]
    services = _start_nodes(environment, servers.url(), *options)
    kills = {
        "a replica": lambda: _restart(servers.next_replica()),
        "a node": _restarts(services),
        "the primary, restarted": lambda: _restart(servers.primary),
        "the primary, a replica promoted": servers.fail_over,
    }

    title = f"two nodes with two replicas, one of them {servers.delay} behind"
    return Deployment(
        title, servers.url(), services, kills, lambda: servers.all, servers.wait_for_reads
    )


def citus(environment: Environment) -> Deployment:
    cluster = start_citus(environment, workers=2)
    url = cluster.coordinator.url()
    services = _start_nodes(environment, url)
    kills = {
        "a worker of Citus": _restarts(cluster.workers),
        "a node": _restarts(services),
        "the coordinator": _restarts([cluster.coordinator]),
    }
    title = "two nodes on Citus with two workers"
    return Deployment(title, url, services, kills, lambda: cluster.servers, cluster.check_workers)


ALL = {"nodes": nodes, "pooler": pooler, "replicas": replicas, "citus": citus}
OF_WEBHOOKS: dict[str, Callable[[Environment], Deployment]] = {
    "webhooks-sqlite": partial(one_node, engine="SQLite"),
    "webhooks-postgres": partial(one_node, engine="PostgreSQL"),
    "webhooks-nodes": nodes,
    "webhooks-pooler": pooler,
}
