"""Batches of cases, for tests with thousands of cases that take less time than their start."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest


def batches(names: Iterable[str], size: int = 100) -> list[Any]:
    """Returns parameters: a list of names each. The id is the first name of the list."""
    rest = iter(names)
    lists = iter(lambda: list(islice(rest, size)), [])
    return [pytest.param(each, id=each[0]) for each in lists]
