"""The suggested schema accepts every stored value, whatever the values are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.fields.job_fields import JobFields, SlotCounts
from gleanery.service.resources.fields.reading import Summary
from gleanery.service.resources.fields.reports import suggest_schema
from gleanery.service.resources.fields.shapes import FieldTable

pytestmark = pytest.mark.thorough

NAMES = st.sampled_from(["a", "b", "a.b", "", "$ref", "é"])
SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([10**30, -(10**400), 1.0, 0])
    | st.text(max_size=2)
    | st.lists(st.integers(), max_size=2)
)
OBJECTS = st.dictionaries(NAMES, SIMPLE | st.dictionaries(NAMES, SIMPLE, max_size=3), max_size=4)


Validate = Callable[[str, list[Any]], list[Any]]


@pytest.fixture(scope="module")
def validate() -> Iterator[Validate]:
    """The service's own validator, with one process for all examples."""
    with asyncio.Runner() as runner:
        validator = SchemaValidator()
        yield lambda schema, values: runner.run(validator.violations(1, schema, values))
        runner.run(validator.close())


def summarize(values: list[dict[str, Any]]) -> Summary:
    """Counts the fields as a job does."""
    fields, table = JobFields(), FieldTable()
    for value in values:
        slots = [fields.find_slot(table[number]) for number in table.classify(value).numbers]
        bits = sum(1 << slot for slot in slots if slot is not None)
        fields.change_counts(SlotCounts.of({bits.to_bytes(100, "little"): 1}))
    summary = Summary()
    summary.add_job(fields)
    return summary


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values=st.lists(OBJECTS, min_size=1, max_size=6))
def test_every_stored_value_meets_the_suggestion(
    validate: Validate, values: list[dict[str, Any]]
) -> None:
    schema = json_text.encode(suggest_schema(summarize(values))).decode()
    assert validate(schema, values) == []
