"""A primary PostgreSQL server with two replicas, which change their roles in a failover."""

from __future__ import annotations

import itertools

from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.processes import wait_until

_RECEIVED = "SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn"
_SCANS = "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_tables WHERE relname = 'outputs'"
_STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"


class ReplicatedServers:
    """Three servers. Each commit waits until one replica has received it.

    So the replica that has received most has every acknowledged write.
    """

    delay = "1 s"

    def __init__(self, environment: Environment) -> None:
        delayed = {"recovery_min_apply_delay": self.delay.replace(" ", "")}
        self.primary = environment.start_server()
        self.replicas = [environment.new_server(settings=delayed), environment.new_server()]
        self.all = [self.primary, *self.replicas]
        self._turns = itertools.count()
        self._replicate()

    def url(self) -> str:
        """Return a URL that finds the primary."""
        hosts = ",".join(server.address for server in self.all)
        return f"postgresql://postgres@{hosts}/gleanery?target_session_attrs=read-write"

    def urls(self) -> list[str]:
        """Return the URLs of the servers. The service finds out which of them are replicas."""
        return [server.url() for server in self.all]

    def next_replica(self) -> PostgresServer:
        return self.replicas[next(self._turns) % len(self.replicas)]

    def wait_for_reads(self) -> None:
        """Wait until the service has read outputs from each replica since its last start."""
        for replica in self.replicas:
            wait_until(lambda of=replica: int(of.run(_SCANS, "gleanery")) > 0)  # type: ignore[misc]

    def fail_over(self) -> None:
        """Kill the primary and promote a replica; the others become its replicas."""
        self.primary.kill()
        chosen = max(self.replicas, key=lambda server: int(server.run(_RECEIVED)))
        chosen.promote()
        self.replicas = [server for server in self.all if server is not chosen]
        self.primary = chosen
        self._replicate()

    def _replicate(self) -> None:
        for replica in self.replicas:
            replica.kill()
            replica.start_as_standby_of(self.primary)
        self.primary.run("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
        self.primary.run("SELECT pg_reload_conf()")
        wait_until(lambda: self.primary.run(_STREAMING) == "2")
