"""Streaming replicas for tests: a primary with a standby, and what a service says about them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from faults.postgres_server import PostgresServer
from gleanery.common.settings import Settings
from tests.support.metrics import fresh_metrics
from tests.support.service import SECRET_KEY, Client
from tests.support.waiting import wait_until


class Standby:
    """A replica, whose replay a test can stop."""

    def __init__(self, primary: PostgresServer, server: PostgresServer) -> None:
        self.primary, self.server = primary, server

    def catch_up(self) -> None:
        position = self.primary.run("SELECT pg_current_wal_lsn()")
        sql = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
        wait_until(lambda: self.server.run(sql) == "t")

    def pause(self) -> None:
        """Stops the replay after what the primary has now."""
        self.catch_up()
        self.server.run("SELECT pg_wal_replay_pause()")
        wait_until(lambda: self.server.run("SELECT pg_get_wal_replay_pause_state()") == "paused")

    def resume(self) -> None:
        self.server.run("SELECT pg_wal_replay_resume()")


def settings_of(folder: Path, primary: PostgresServer, *replicas: str, **more: Any) -> Settings:
    return Settings(
        data=folder,
        database=primary.url(),
        replica=replicas,
        secret_key=SECRET_KEY,
        port=0,
        log_level="warning",
        max_wait_seconds=2,
        **more,
    )


def metric(client: Client, name: str) -> float | None:
    """The value of a metric of the only worker; None if it has none."""
    values = re.findall(rf"^{name}(?:\{{.*\}})? (.*)$", fresh_metrics(client), re.MULTILINE)
    return float(values[0]) if values else None


def wait_for_usable(client: Client, count: int) -> None:
    wait_until(lambda: metric(client, "gleanery_replicas_usable") == count)
