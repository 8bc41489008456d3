"""Every pair of types in one column: no value is lost or changed, whoever reads the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gleanery.tables import ExportReport, open_export, parquet
from tests.client.exports.outputs import output, raw_object
from tests.client.exports.reading import (
    READERS,
    as_json_value,
    parse,
    read_csv,
    read_parquet,
    without_escape,
)

# Texts of each kind. An absent key has no text.
KINDS: dict[str, Sequence[bytes | None]] = {
    "absent": (None,),
    "null": (b"null",),
    "bool": (b"true", b"false"),
    "short integer": (b"0", b"-5", b"9007199254740992", b"-9007199254740992"),
    "long integer": (b"9007199254740993", b"-9223372036854775808", b"9223372036854775807"),
    "huge integer": (b"9223372036854775808", b"123456789012345678901234567890"),
    "double": (b"1.5", b"1.10", b"-0.0", b"1e22", b"5E-324", b"0.30000000000000004"),
    "other number": (b"0.1234567890123456789", b"1e400", b"9007199254740993.0", b"1e-400"),
    "string": (b'"a"', b'""', b'"1"', b'"null"', b'"true"', b'"-1"', b'"=1"', b'"\'=1"', b'" "'),
    "unusual string": (b'"a\\r\\n\\"b\\",c"', b'"\\t"', b'"\\r"', '"ü😀"'.encode(), b'"\\n"'),
    "string with NUL": (b'"a\\u0000b"', b'"\\\\u0000"'),
    "object": (b"{}", b'{"a": [1, {"b": 1.10}]}', b'{"n":123456789012345678901}'),
    "array": (b"[]", b"[null]", b'["x","\\n"]'),
}
_TYPES = {
    "bool": "bool",
    "short integer": "int64",
    "long integer": "int64",
    "double": "double",
    "string": "string",
    "unusual string": "string",
    "string with NUL": "string",
}
_ROWS = 40
_CHANGES = (1, 20, 36)


def _matrix() -> dict[str, list[bytes | None]]:
    """For every pair of kinds and every row of change the texts of a column."""
    return {
        f"{before}, {after} from {change}": [
            texts[row % len(texts)]
            for row in range(_ROWS)
            for texts in [KINDS[before if row < change else after]]
        ]
        for before in KINDS
        for after in KINDS
        for change in _CHANGES
    }


def _expected_type(kinds: set[str], for_csv: bool) -> str:
    """The rules of the how-to guide, written down once more."""
    kinds = kinds - {"absent", "null"}
    if for_csv and "string with NUL" in kinds:
        return "json"
    types = {_TYPES.get(kind, "json") for kind in kinds}
    if types == {"int64", "double"} and "long integer" not in kinds:
        return "double"
    return types.pop() if len(types) == 1 else "json" if types else "null"


@pytest.fixture(scope="module")
def matrix() -> dict[str, list[bytes | None]]:
    return _matrix()


@pytest.fixture(scope="module", params=["one part", "many parts"])
def parquet_file(
    request: pytest.FixtureRequest,
    matrix: dict[str, list[bytes | None]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, ExportReport]]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many parts":
            patch.setattr(parquet, "_GROUP_BYTES", 1)
        path = tmp_path_factory.mktemp("parquet") / "matrix.parquet"
        yield path, _export(path, "parquet", matrix)


@pytest.fixture(scope="module")
def csv_file(
    matrix: dict[str, list[bytes | None]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, ExportReport]:
    path = tmp_path_factory.mktemp("csv") / "matrix.csv"
    return path, _export(path, "csv", matrix)


def _export(path: Path, format_: str, columns: dict[str, list[bytes | None]]) -> ExportReport:
    with open_export(str(path), format_, overwrite=True) as export:
        for page in _pages(columns):
            export.write(page)
        report = export.finish()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    return report


def _pages(columns: dict[str, list[bytes | None]], size: int = 4) -> Iterator[list[bytes]]:
    rows = [
        output(
            number, raw_object({key: text for key, text in zip(columns, row, strict=True) if text})
        )
        for number, row in enumerate(zip(*columns.values(), strict=True))
    ]
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
def test_parquet_loses_and_changes_no_value(
    matrix: dict[str, list[bytes | None]], parquet_file: tuple[Path, ExportReport], reader: str
) -> None:
    path, report = parquet_file
    _compare(matrix, read_parquet(path, reader), report)


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
def test_csv_loses_and_changes_no_value(
    matrix: dict[str, list[bytes | None]], csv_file: tuple[Path, ExportReport], reader: str
) -> None:
    path, report = csv_file
    found = read_csv(path, reader, report.columns)
    _compare(
        matrix, {n: [without_escape(v) for v in column] for n, column in found.items()}, report
    )


def _compare(
    expected: dict[str, list[bytes | None]], found: dict[str, list[object]], report: ExportReport
) -> None:
    assert [*found] == [*report.columns]
    assert {*found} >= {f"data_{key}" for key, texts in expected.items() if any(texts)}
    assert found["id"] == [*range(len(found["id"]))]
    for key, texts in expected.items():
        if any(texts):
            name = f"data_{key}"
            values = [as_json_value(value, report.columns[name]) for value in found[name]]
            assert values == [parse(text) if text else None for text in texts], name


@pytest.mark.thorough
@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_types_do_not_depend_on_the_order_of_values(
    matrix: dict[str, list[bytes | None]], tmp_path: Path, format_: str
) -> None:
    report = _export(tmp_path / "a", format_, matrix)
    for key in matrix:
        kinds = {*key.partition(" from ")[0].split(", ")}
        if kinds != {"absent"}:
            assert report.columns[f"data_{key}"] == _expected_type(kinds, format_ == "csv"), key


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=2), values),
    max_leaves=3,
)
_texts = st.one_of(
    st.sampled_from([text for texts in KINDS.values() for text in texts]),
    _values.map(lambda value: json.dumps(value).encode()),
    _values.map(
        lambda value: json.dumps(value, ensure_ascii=False, separators=(" ,", ": ")).encode()
    ),
)


@pytest.mark.thorough
@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abAB"), _texts), min_size=1, max_size=30),
    size=st.integers(1, 7),
    group_bytes=st.sampled_from([1, 10_000_000]),
)
def test_no_value_is_lost_in_random_rows(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, bytes | None]],
    size: int,
    group_bytes: int,
) -> None:
    columns = {key: [row.get(key) for row in rows] for key in "abAB"}
    folder = tmp_path_factory.mktemp("random")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_GROUP_BYTES", group_bytes)
        for format_ in ("parquet", "csv"):
            path = folder / format_ / "file"
            path.parent.mkdir()
            with open_export(str(path), format_) as export:
                for page in _pages(columns, size):
                    export.write(page)
                report = export.finish()
            if format_ == "parquet":
                found = read_parquet(path, "pyarrow")
            else:
                read = read_csv(path, "pyarrow", report.columns)
                found = {name: [*map(without_escape, column)] for name, column in read.items()}
            _compare(columns, found, report)


def test_a_string_column_becomes_json_text_in_a_later_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both types are strings in Parquet, so only our mark tells them apart."""
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1)
    columns = {"a": [b'"1"', b"1"]}
    with open_export(str(tmp_path / "a"), "parquet") as export:
        for page in _pages(columns, 1):
            export.write(page)
        report = export.finish()
    _compare(columns, read_parquet(tmp_path / "a", "pyarrow"), report)


def test_a_widening_is_reported_with_its_row_and_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1)
    columns = {
        "a": [b"null", b"1", b"2", b"1.5", b"3", b"2.5", b'"x"', b"4"],
        "b": [b"[]", b"1", b"null", b'"x"', b"1", b"1", b"1", b"1"],
        "c": [None, None, None, b"true", None, b"false", b"0", None],
    }
    report = ExportReport()
    for format_ in ("csv", "parquet"):
        with open_export(str(tmp_path / format_), format_) as export:
            for page in _pages(columns, 2):
                export.write(page)
            export.metadata["group"] = "shop"
            report = export.finish()
        found = [
            (one.field, one.row, one.count, one.old_type, one.new_type) for one in report.widenings
        ]
        assert found == [
            ("data_a", 4, 3, "int64", "double"),
            ("data_a", 7, 1, "double", "json"),
            ("data_c", 7, 1, "bool", "json"),
        ]
    metadata = pyarrow.parquet.read_metadata(tmp_path / "parquet").metadata
    facts = json.loads(metadata[b"gleanery"])
    assert facts["group"] == "shop"
    assert facts["columns"] == report.columns
    assert facts["widenings"][0] == {
        "field": "data_a",
        "row": 4,
        "count": 3,
        "old_type": "int64",
        "new_type": "double",
    }
