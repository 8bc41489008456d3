"""What a model test of runs needs: a clock that stands still, kills between steps, and a feed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.group_lock import LockedGroup
from tests.support.outputs import read_changes
from tests.support.service import Client, Clock


class StoppedClock(Clock):
    """A clock that only the test moves: also several requests at the same time are exact."""

    def __init__(self) -> None:
        super().__init__()
        self._start = timestamps.now()

    def __call__(self) -> int:
        return self._start + self.passed + self.node_jump


class Killed(Exception):
    """The process ends in the middle of a step, which has no effect."""


class Killer:
    """Kills the service after a number of steps."""

    def __init__(self) -> None:
        self.steps: int | None = None
        """Steps that are left; None if the service is not killed."""

    def after(
        self, step: Callable[[LockedGroup, int], Awaitable[int | None]]
    ) -> Callable[[LockedGroup, int], Awaitable[int | None]]:
        """Return the function that begins each step, with this behaviour."""

        async def begin_step(locked: LockedGroup, job_id: int) -> int | None:
            result = await step(locked, job_id)
            if self.steps == 0:
                raise Killed
            if self.steps is not None:
                self.steps -= 1
            return result

        return begin_step


class Feed:
    """A client that follows a feed: the present values, and why the others are gone."""

    def __init__(self, client: Client, **query: str) -> None:
        self._client, self._query = client, query
        self._cursor = 0
        self.values: dict[str, int] = {}
        self.gone: dict[str, str | None] = {}

    def follow(self) -> None:
        page = read_changes(self._client, self._cursor, limit=1000, **self._query)
        self._cursor = page["cursor"]
        for change in page["changes"]:
            output_id = change["output_id"]
            if change["change"] == "delete":
                self.values.pop(output_id, None)
                self.gone[output_id] = change.get("reason")
            else:
                self.values[output_id] = change["output"]["data"]["v"]
                self.gone.pop(output_id, None)
