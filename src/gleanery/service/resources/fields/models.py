"""Responses about the statistics of fields."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.foundation.models import DateTimeOut
from gleanery.service.resources.run_records.rows import Status

_Rate = Annotated[float, Field(ge=0, le=1)]


class CountedField(TypedDict):
    """Field, and how often outputs have it."""

    path: Annotated[
        str,
        Field(
            description="Member of `data`, or a member of an object in it: `price`, `offer.price`. "
            'An unusual name is quoted: `["a.b"]`.'
        ),
    ]
    filled: Annotated[int, Field(description="Outputs in which it is not missing, null or empty.")]
    fill_rate: Annotated[_Rate, Field(description="`filled` as a share of the counted outputs.")]
    kinds: Annotated[
        dict[str, int],
        Field(
            description="Number of outputs by the kind of the value: `null`, `boolean`, `integer`, "
            "`number`, `string`, `array`, `object`, `empty_string`, `empty_array` or "
            "`empty_object`."
        ),
    ]


class ValueRange(TypedDict):
    """Smallest and largest number."""

    min: float
    max: float


class LengthRange(TypedDict):
    """Lengths of strings in characters, and of arrays in elements."""

    min: int
    median: Annotated[int, Field(description="An estimate.")]
    max: int


class FieldOut(CountedField):
    """Field with the ranges of its values."""

    range: Annotated[
        ValueRange | None,
        Field(
            description="Range of all numbers that were stored while any output has the field, "
            "including those that were replaced or deleted later. Integers are exact, up to the "
            "range of a double. null if there was none."
        ),
    ]
    length: Annotated[
        LengthRange | None,
        Field(description="Of all strings and arrays that were stored, without empty ones."),
    ]


class RunFieldsOut(TypedDict):
    """Run of a job, and the fields of the outputs that it has sent.

    `last_date` is the time of its last outputs or, without outputs, of its start.
    """

    run_id: str
    job_id: str
    status: Status
    start_date: DateTimeOut
    last_date: DateTimeOut
    outputs: Annotated[int, Field(description="Outputs that were sent, each counted once.")]
    fields: list[CountedField]


class Drift(TypedDict):
    """Field that the newest run of a job fills more or less often than earlier ones."""

    job_id: str
    path: str
    before: Annotated[_Rate, Field(description="Median of the fill rates of earlier runs.")]
    now: Annotated[_Rate, Field(description="Fill rate of the newest run.")]


class FieldsOut(TypedDict):
    """Statistics of the fields of a group, or of one job."""

    group_id: str
    job_id: str | None
    outputs: int
    counted_outputs: Annotated[
        int,
        Field(
            description="Outputs whose fields are counted. Not counted are outputs that an older "
            "version of the service has stored, until they are stored again, and jobs after the "
            "first ones with millions of fields."
        ),
    ]
    fields: Annotated[
        list[FieldOut], Field(description="By path; at most the 256 most frequent fields.")
    ]
    runs: Annotated[list[RunFieldsOut], Field(description="The newest 10, newest first.")]
    drift: Annotated[list[Drift], Field(description="The largest difference first; at most 100.")]
    schema: Annotated[
        dict[str, Any],
        Field(
            description="Suggested JSON Schema (2020-12) of `data`, which every stored output "
            "meets."
        ),
    ]
