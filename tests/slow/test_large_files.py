"""Files as large, and names as many, as the quick suite has no time for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.test_files import (
    assert_harmless,
    bucket,
    bucket_if,
    hostile_names,
    memory_growth,
    settings_with,
    store,
)
from tests.conftest import fresh_settings
from tests.support.process import PROC
from tests.support.s3 import Bucket

__all__ = ["bucket", "bucket_if", "store"]  # fixtures


@PROC
def test_memory_stays_flat_also_for_a_large_file(
    store: str, bucket_if: Bucket | None, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = settings_with(fresh_settings("sqlite", request, tmp_path), store)
    assert memory_growth(settings, store, bucket_if, mebibytes=500) < 60 * 2**20


def test_none_of_ten_thousand_names_becomes_a_path(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert_harmless(hostile_names(10_000), fresh_settings("sqlite", request, tmp_path / "data"))
