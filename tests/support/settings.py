"""Settings of a service over an empty database."""

from __future__ import annotations

from pathlib import Path

import pytest

from gleanery.common.settings import Settings
from tests.support.service import SECRET_KEY


def fresh_settings(engine: str, request: pytest.FixtureRequest, folder: Path) -> Settings:
    """Settings for this engine, with a new folder or a new PostgreSQL database."""
    if engine == "sqlite":
        return Settings(
            data=folder, port=0, log_level="warning", max_wait_seconds=2, slow_request_seconds=0
        )
    server = request.getfixturevalue("postgres")
    return Settings(
        slow_request_seconds=0,
        data=folder,
        **server.settings(server.new_database()),
        secret_key=SECRET_KEY,
        port=0,
        log_level="warning",
        max_wait_seconds=2,
    )
