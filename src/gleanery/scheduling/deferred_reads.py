"""Works done in a row that requests would each do in their midst.

A request leads through the interpreter, the server, the system and the database, and each of these
drives the others out of the processor's nearest caches. Requests that come together are therefore
taken to where they need the database, then what they need is read in one go, and then all go on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class DeferredRead(Generic[T]):
    """A work that is put off. Who does it in the end also calls ``go_on``."""

    __slots__ = ("_error", "_result", "_work", "go_on")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._error: Exception | None = None
        self._result: T
        self.go_on: Callable[[], None]
        """Goes on with what waits for it, which is no task; set by who was running that."""

    def do(self) -> None:
        """What goes wrong is told to who waits for it, and to nobody else."""
        try:
            self._result = self._work()
        except Exception as error:
            self._error = error

    def __await__(self) -> Generator[DeferredRead[T], None, T]:
        yield self
        if self._error is not None:
            raise self._error
        return self._result
