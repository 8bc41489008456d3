"""Who waits for news of a line, and how they are woken: the part that both engines share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Watch:
    """Hears of what is committed after the watch began."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._is_over = False

    async def wait(self, seconds: float) -> bool:
        """True as soon as something may have been announced; False if nothing will be heard."""
        if not self._is_over:
            try:
                await asyncio.wait_for(self._news.wait(), seconds)
            except TimeoutError:
                return False
            self._news.clear()
        return not self._is_over

    def wake(self) -> None:
        self._news.set()

    def stop(self) -> None:
        """Ends the wait: the one who waits is wanted elsewhere."""
        self._is_over = True
        self._news.set()


class Watches:
    """All watches of a process, by the line they watch."""

    def __init__(self) -> None:
        self._of_line: dict[str, set[Watch]] = {}
        self._is_over = False

    def __bool__(self) -> bool:
        return bool(self._of_line)

    @contextmanager
    def adding(self, line: str, watch: Watch) -> Iterator[Watch]:
        """The watch is one of these for as long as the context lasts."""
        self._of_line.setdefault(line, set()).add(watch)
        if self._is_over:
            watch.stop()
        try:
            yield watch
        finally:
            self._of_line[line].discard(watch)
            if not self._of_line[line]:
                del self._of_line[line]

    def lines(self) -> list[str]:
        return list(self._of_line)

    def wake(self, line: str) -> None:
        for watch in self._of_line.get(line, ()):
            watch.wake()

    def wake_all(self) -> None:
        for line in self._of_line:
            self.wake(line)

    def stop(self) -> None:
        """Ends every wait, also those that would begin after this."""
        if self._is_over:
            return
        self._is_over = True
        for watches in self._of_line.values():
            for watch in watches:
                watch.stop()
