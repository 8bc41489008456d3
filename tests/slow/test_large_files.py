"""Very large files, and many file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.files import assert_harmless, hostile_names, memory_growth, with_blob_store
from tests.support.process import PROC
from tests.support.s3 import Bucket
from tests.support.settings import fresh_settings


@PROC
def test_memory_does_not_grow_with_a_large_file(
    blob_store: str, bucket_or_none: Bucket | None, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = with_blob_store(fresh_settings("sqlite", request, tmp_path), blob_store)
    assert memory_growth(settings, blob_store, bucket_or_none, mebibytes=500) < 60 * 2**20


def test_none_of_ten_thousand_names_becomes_a_path(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert_harmless(hostile_names(10_000), fresh_settings("sqlite", request, tmp_path / "data"))
