"""Work beside that of the caller, in a thread. The twin in ``_async`` is written by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Repetition:
    """Calls a function again and again, until it returns None instead of the seconds to wait."""

    def __init__(self, step: Callable[[], float | None]) -> None:
        self._step = step
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, delay: float) -> None:
        """Make the first call after this delay. The thread does not keep the program alive."""
        self._thread = threading.Thread(target=self._run, args=(delay,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the calls. Wait for one that runs."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, delay: float | None) -> None:
        while delay is not None and not self._stopped.wait(delay):
            delay = self._step()
