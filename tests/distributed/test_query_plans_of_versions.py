"""The plan tests on every supported version of PostgreSQL that is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.test_query_plans import *  # noqa: F403
from tests.support.postgres_versions import SUPPORTED, InstalledServer, server_of_version

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module", params=SUPPORTED)
def postgres(request: pytest.FixtureRequest) -> Iterator[InstalledServer]:
    with server_of_version(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, postgres: InstalledServer) -> str:
    if getattr(request, "param", "postgres") != "postgres":
        pytest.skip("only the versions of PostgreSQL are tested here")
    return "postgres"
