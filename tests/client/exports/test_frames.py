"""Record batches and data frames of outputs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gleanery.tables.arrow import BatchReader, FrameBuilder
from tests.client.exports.outputs import output

_PAGES = [
    [output(1, {"a": 1, "n": 9007199254740993}), output(2, {"a": None})],
    [],
    [output(3, {"a": "x", "b": [1]})],
]


def test_a_later_batch_can_have_wider_types() -> None:
    reader = BatchReader()
    first, nothing, second = (reader.read(page) for page in _PAGES)
    assert nothing.num_rows == 0
    assert first.schema.field("data_a").type == pa.int64()
    assert second.schema.field("data_a").type == pa.string()
    assert first.num_columns == 14
    assert second.column("data_a").to_pylist() == ['"x"']
    assert second.column("data_n").to_pylist() == [None]


@pytest.fixture
def builder() -> FrameBuilder:
    made = FrameBuilder(fields=["n", "a", "b", "id"])
    for page in _PAGES:
        made.add(page)
    return made


_EXPECTED = {
    "data_n": [9007199254740993, None, None],
    "data_a": ["1", None, '"x"'],
    "data_b": [None, None, "[1]"],
    "id": [1, 2, 3],
}


def test_a_table_has_types_for_all_values(builder: FrameBuilder) -> None:
    assert builder.to_arrow().to_pydict() == _EXPECTED


def test_a_table_has_the_last_row_of_an_output_that_has_changed() -> None:
    builder = FrameBuilder(fields=["a"])
    for page in ([output(1, {"a": 1}), output(2, {"a": 2})], [output(3, {"a": 3})]):
        builder.add(page)
    builder.add([output(1, {"a": 4})])
    assert builder.to_arrow().to_pydict() == {"data_a": [2, 3, 4]}


@pytest.mark.extended
def test_polars_gets_the_same_values(builder: FrameBuilder) -> None:
    import polars

    frame = builder.to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame.to_dict(as_series=False) == _EXPECTED


@pytest.mark.extended
def test_pandas_does_not_turn_integers_into_floats(builder: FrameBuilder) -> None:
    import pandas

    frame = builder.to_pandas()
    assert frame["data_n"].dtype == pandas.ArrowDtype(pa.int64())
    assert frame["data_n"].tolist()[0] == 9007199254740993
    assert frame["data_a"].isna().tolist() == [False, True, False]


def test_no_page_is_an_empty_table() -> None:
    assert FrameBuilder().to_arrow().num_rows == 0
