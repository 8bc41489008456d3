"""Versions of the program as processes: commands, and services of several nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gleanery.common.settings import Settings
from tests.support.process import Running, database_options, gleanery
from tests.support.service import EVERY_SCOPE, SECRET_KEY


class Version:
    """One version of the program on the database of these settings."""

    def __init__(self, source: Path, settings: Settings) -> None:
        path = os.pathsep.join((str(source), os.environ.get("PYTHONPATH", "")))
        self._variables = {"GLEANERY_SECRET_KEY": SECRET_KEY, "PYTHONPATH": path}
        self._options = database_options(settings)

    def run(self, *command: str) -> str:
        done = gleanery(*command, *self._options, **self._variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def new_token(self) -> str:
        scopes = ",".join(sorted(EVERY_SCOPE))
        return self.run("token", "create", "--organization", "a", "--scopes", scopes)

    def start(self, port: int, workers: int = 2) -> Running:
        """Starts the service, and returns when it is ready."""
        serve = ("serve", "--port", str(port), "--workers", str(workers), "--log-level", "warning")
        running = Running(*serve, *self._options, **self._variables)
        try:
            running.wait_ready(f"http://127.0.0.1:{port}")
        except BaseException:
            running.stop()  # a supervisor that is killed would leave its workers behind
            raise
        return running

    @contextmanager
    def serve(self, port: int) -> Iterator[Running]:
        running = self.start(port)
        try:
            yield running
        finally:
            status = running.stop()
        assert status == 0, "".join(running.log)
