"""The state of the primary over time, with which the states of its replicas are compared."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import NamedTuple

_MAX_SAMPLES = 1800  # an hour; a lag that is longer is reported as an hour
SAMPLE_SECONDS = 2.0
"""The time between two samples."""
_STALE_SECONDS = 3 * SAMPLE_SECONDS

_POSITION = "{} - '0/0'::pg_lsn"  # in the write-ahead log, in bytes
_RESTORE_TIME = "(SELECT value FROM metadata WHERE name = 'restore_time')"
PRIMARY_STATE = f"""
SELECT {_POSITION.format("pg_current_wal_lsn()")}, system_identifier,
    substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), {_RESTORE_TIME}
FROM pg_control_system()
"""
# Only pg_read_all_stats may see the timeline that is received. The other one is of the last
# restartpoint: after a failover it is too old for some minutes, never too new.
REPLICA_STATE = f"""
SELECT pg_is_in_recovery(), {_POSITION.format("pg_last_wal_replay_lsn()")}, system_identifier,
    coalesce((SELECT received_tli FROM pg_stat_wal_receiver), timeline_id), {_RESTORE_TIME},
    EXISTS (SELECT FROM migrations
        HAVING max(number) >= $1 AND max(coalesce(compatible_from, number)) <= $1),
    date_part('epoch', now() - pg_last_xact_replay_timestamp())
FROM pg_control_system(), pg_control_checkpoint()
"""


class NotUsable(Exception):
    """The server cannot be used as a replica; the text says why."""


class History(NamedTuple):
    """Which changes a server has had. A server with another history has other data."""

    system_identifier: int
    timeline: int
    """A promotion begins a new one."""
    restore_time: str | None

    def check_replica(self, replica: History) -> None:
        """Raise NotUsable unless the replica follows the primary with this history."""
        if replica.system_identifier != self.system_identifier:
            raise NotUsable("it is not a copy of the primary: create it with pg_basebackup")
        if replica.timeline != self.timeline:
            raise NotUsable(
                f"it is on timeline {replica.timeline}, and the primary on {self.timeline}: let it "
                "follow this primary. If it does, run CHECKPOINT on the primary and then on it"
            )
        if replica.restore_time != self.restore_time:
            raise NotUsable("it does not have the last gleanery restored yet")


class PrimaryStates:
    """The history of the primary, and where it was at which time, for the lag of replicas.

    A replica knows the time of the last change that it has, but not if the primary has newer ones.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=_MAX_SAMPLES)
        self._history: History | None = None

    @property
    def history(self) -> History:
        if self._history is None:
            raise NotUsable("the state of the primary is not known")
        return self._history

    def add(
        self, position: int, system_identifier: int, timeline: str, restored: str | None
    ) -> None:
        """Add a row of ``PRIMARY_STATE``."""
        history = History(system_identifier, int(timeline, 16), restored)
        if history != self._history:  # positions of different timelines cannot be compared
            self._history = history
            self._samples.clear()
        self._samples.append((int(position), time.monotonic()))

    def seconds_behind(self, position: int, seconds_since_change: float | None) -> float:
        """Return for how long the primary has been after this position.

        If that was before the first sample, the replica's last change tells it.
        ``seconds_since_change`` is None if the replica has had no change since its start.
        """
        now, passed_at = time.monotonic(), None
        for sample, sampled_at in reversed(self._samples):
            if sample <= position:
                return self._since_sample(now) if passed_at is None else now - passed_at
            passed_at = sampled_at
        if passed_at is None or seconds_since_change is None:
            return math.inf
        return max(now - passed_at, seconds_since_change)

    def _since_sample(self, now: float) -> float:
        """Return 0, or for how long the primary has not been asked successfully."""
        seconds = now - self._samples[-1][1]
        return seconds if seconds > _STALE_SECONDS else 0.0
