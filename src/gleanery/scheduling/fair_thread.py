"""Computations that run one at a time in a thread, for the tenants in rotation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gleanery.scheduling.fair_lock import FairLock

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class FairThread:
    """Runs one computation at a time.

    Python threads do not compute at the same time. The event loop waits for its turn among them,
    5 ms for each, so several of them would only delay all other requests.
    """

    def __init__(self) -> None:
        self._lock = FairLock()

    async def run(
        self,
        organization_id: int,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        async with self._lock.held_for(organization_id):
            return await asyncio.to_thread(function, *args, **kwargs)
