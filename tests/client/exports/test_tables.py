"""Columns of CSV and Parquet: names, order, choice of fields, many keys, memory."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from gleanery.tables import ExportFailed, ExportReport, destinations, open_export, parquet, table
from gleanery.tables.destinations import TemporaryFile
from tests.client.exports.outputs import output
from tests.client.exports.reading import READERS, read_csv, read_parquet

TABLES = ("csv", "parquet")


def _export(path: Path, format_: str, *pages: list[bytes], **options: Any) -> ExportReport:
    with open_export(str(path), format_, **options) as export:
        for page in pages:
            export.write(page)
        return export.finish()


def _read(path: Path, format_: str, report: ExportReport) -> dict[str, list[Any]]:
    if format_ == "csv":
        return dict(read_csv(path, "pyarrow", report.columns))
    return dict(read_parquet(path, "pyarrow"))


@pytest.mark.parametrize("format_", TABLES)
def test_members_come_first_and_dates_are_timestamps(tmp_path: Path, format_: str) -> None:
    report = _export(tmp_path / "a", format_, [output(7, {"b": 1, "a": "x"})])
    found = _read(tmp_path / "a", format_, report)
    date = datetime(2026, 11, 1, 10, tzinfo=UTC)
    dates = [f"{date:%Y-%m-%dT%H:%M:%SZ}" if format_ == "csv" else date]
    assert found == {
        "source_url": ["https://shop.example/7"],
        "id": [7],
        "output_id": ["output-7"],
        "root_job_id": ["job"],
        "create_date": dates,
        "update_date": dates,
        "last_scraped_date": dates,
        "key_hash": ["k"],
        "value_hash": ["v"],
        "is_approved": [False],
        "tags": ['{"country":"Germany"}'],
        "files": ["[]"],
        "data_b": [1],
        "data_a": ["x"],
    }
    assert [*found] == [*report.columns]


@pytest.mark.parametrize("null_rows", [(), (1, 3), (0, 1, 2, 3)])
def test_parquet_has_exact_dates_and_nulls(tmp_path: Path, null_rows: tuple[int, ...]) -> None:
    texts = ["1969-12-31T23:59:59.999999Z", "2026-11-01T12:00:00+02:00", "9999-12-31T23:59:59Z"]
    texts += texts[:1]
    expected = [None if at in null_rows else text for at, text in enumerate(texts)]
    outputs = [json.loads(output(id_, {})) for id_ in range(len(texts))]
    page = [
        json.dumps({**found, "create_date": date}).encode()
        for found, date in zip(outputs, expected, strict=True)
    ]
    _export(tmp_path / "a", "parquet", page)
    assert read_parquet(tmp_path / "a", "pyarrow")["create_date"] == [
        None if text is None else datetime.fromisoformat(text) for text in expected
    ]


def test_json_text_beyond_ascii_is_kept_and_checked(tmp_path: Path) -> None:
    texts = ['{"a":"Z\u00fcrich"}', '{"a":1}', '{"\u65e5\u672c":null}', '{"a":"\U0001f50d"}']
    page = [output(id_, text.encode()) for id_, text in enumerate(texts)]
    _export(tmp_path / "a", "parquet", page, data="json")
    assert read_parquet(tmp_path / "a", "pyarrow")["data"] == texts
    with pytest.raises(UnicodeDecodeError):
        _export(tmp_path / "b", "parquet", [output(1, b'{"a":"\xff"}')], data="json")


@pytest.mark.parametrize("format_", TABLES)
def test_data_can_be_one_column(tmp_path: Path, format_: str) -> None:
    text = b'{"a": [1.10],"b":1e400}'
    report = _export(tmp_path / "a", format_, [output(1, text)], data="json")
    assert _read(tmp_path / "a", format_, report)["data"] == [text.decode()]


@pytest.mark.parametrize("format_", TABLES)
def test_fields_are_chosen_in_their_order(tmp_path: Path, format_: str) -> None:
    pages = [[output(1, {"a": 1, "b": "x", "c": 3})], [output(2, {"d": 4})]]
    options: dict[str, Any] = {"fields": ["data.b", "id", "no", "a", "source_url"]}
    report = _export(tmp_path / "a", format_, *pages, **options)
    assert _read(tmp_path / "a", format_, report) == {
        "data_b": ["x", None],
        "id": [1, 2],
        "data_no": [None, None],
        "data_a": [1, None],
        "source_url": ["https://shop.example/1", "https://shop.example/2"],
    }
    assert report.missing_fields == ("no",)
    report = _export(tmp_path / "b", format_, *pages, data="json", **options)
    assert _read(tmp_path / "b", format_, report)["data"] == ['{"a":1,"b":"x"}', "{}"]
    report = _export(tmp_path / "c", format_, *pages, fields=["id"])
    assert _read(tmp_path / "c", format_, report) == {"id": [1, 2]}
    report = _export(tmp_path / "d", format_, *pages, fields=["data", "id"])
    assert {*report.columns} == {"id", "data_a", "data_b", "data_c", "data_d"}


@pytest.mark.parametrize("format_", TABLES)
def test_an_export_without_outputs_has_columns(tmp_path: Path, format_: str) -> None:
    report = _export(tmp_path / "a", format_, [])
    found = _read(tmp_path / "a", format_, report)
    assert len(found) == 12
    assert found["id"] == []


@pytest.mark.parametrize("format_", TABLES)
def test_an_output_that_comes_again_is_left_out(tmp_path: Path, format_: str) -> None:
    first, second = output(1, {"a": 1}), output(2, {"a": 2})
    report = _export(tmp_path / "a", format_, [first, second], [second, first], [first, first])
    assert _read(tmp_path / "a", format_, report)["data_a"] == [1, 2]
    assert (report.rows, report.duplicates) == (2, 4)


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("format_", TABLES)
def test_no_two_keys_share_a_column(tmp_path: Path, format_: str, reader: str) -> None:
    keys = ["", "a", "A", "data_a", "id", "data", "a,b", " a", "a b", "ü", "_a", "a\nb", "a.b"]
    if (format_, reader) != ("csv", "polars"):  # polars keeps both quotes in a name
        keys.append('a"b')
    report = _export(tmp_path / "a", format_, [output(1, dict(zip(keys, keys, strict=True)))])
    assert [*report.columns][12:] == [f"data_{key}" for key in keys]
    if format_ == "csv":
        found = read_csv(tmp_path / "a", reader, report.columns)
    else:
        found = read_parquet(tmp_path / "a", reader)
    # DuckDB ignores the case of names, and gives the second one a number.
    assert [value for (value,) in found.values()][12:] == keys


@pytest.mark.parametrize("format_", TABLES)
def test_keys_beyond_the_limit_share_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    monkeypatch.setattr(table, "MAX_KEYS", 2)
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1)
    pages = [
        [output(1, {"a": 1}), output(2, {"b": 2})],
        [output(3, b'{"c":1.10,"a":3,"d":[1]}'), output(4, {})],
        [output(5, {"c": None})],
    ]
    report = _export(tmp_path / "a", format_, *pages)
    found = _read(tmp_path / "a", format_, report)
    assert [*found][12:] == ["data_a", "data_b", "data"]
    assert found["data_a"] == [1, None, 3, None, None]
    assert found["data"] == [None, None, '{"c":1.10,"d":[1]}', None, '{"c":null}']


def test_csv_escapes_formulas_in_text_only(tmp_path: Path) -> None:
    formulas = ["=1+1", "+1", "-1", "@a", "\tx", "\rx", "\nx", "\uff1d1", "'=1", "a=1", "'a", ""]
    page = [output(at, {"text": text, "number": -5}) for at, text in enumerate(formulas)]
    _export(tmp_path / "a.csv", "csv", page)
    with (tmp_path / "a.csv").open(newline="") as stream:
        rows = [*csv.DictReader(stream)]
    assert [row["data_text"] for row in rows] == [
        "'=1+1", "'+1", "'-1", "'@a", "'\tx", "'\rx", "'\nx", "'\uff1d1", "''=1", "a=1", "'a", "",
    ]  # fmt: skip
    assert {row["data_number"] for row in rows} == {"-5"}
    _export(tmp_path / "b.csv", "csv", page, escape_formulas=False)
    with (tmp_path / "b.csv").open(newline="") as stream:
        assert [row["data_text"] for row in csv.DictReader(stream)] == formulas


def test_csv_has_the_form_of_rfc_4180(tmp_path: Path) -> None:
    page = [output(1, b'{"a":"x\\"y\\r\\nz","b":true,"c":"","d":1.10,"e":null}')]
    _export(tmp_path / "a.csv", "csv", page, fields=["a", "b", "c", "d", "e"])
    assert (tmp_path / "a.csv").read_bytes() == (
        b'data_a,data_b,data_c,data_d,data_e\r\n"x""y\r\nz",true,"",1.10,\r\n'
    )


@pytest.mark.parametrize("format_", TABLES)
def test_something_else_than_an_output_fails_the_export(tmp_path: Path, format_: str) -> None:
    for item in (b'{"id":1}', b"[]", output(1, b"[]"), output(1, b"{}").replace(b'"k"', b"5")):
        with pytest.raises(ExportFailed, match="not an output"):
            _export(tmp_path / "a", format_, [output(0, {})], [item])
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
@pytest.mark.parametrize("format_", TABLES)
def test_a_full_disk_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    """Also if it is the temporary file that does not fit."""
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1)
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    monkeypatch.setattr(
        destinations, "create_file", lambda folder, name, mode: TemporaryFile(full, lock=None)
    )
    with pytest.raises(ExportFailed, match="No space left"):
        _export(Path("/dev/null"), format_, [output(1, {"text": "x" * 2_000_000})])


def test_a_failure_while_parts_are_merged_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1)
    with open_export(str(tmp_path / "a"), "parquet") as export:
        export.write([output(1, {"a": 1})])
        export.write([output(2, {"a": "x"})])
        parts = [path for path in tmp_path.iterdir() if path.stat().st_size]
        assert len(parts) == 2
        for path in parts:
            path.write_bytes(b"PAR1")
        with pytest.raises(Exception, match="Parquet"):
            export.finish()
    assert not [*tmp_path.iterdir()]


def test_row_groups_have_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 100_000)
    pages = [[output(at * 100 + row, {"a": "x" * 300}) for row in range(100)] for at in range(20)]
    _export(tmp_path / "a", "parquet", *pages)
    metadata = pyarrow.parquet.read_metadata(tmp_path / "a")
    sizes = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    assert sum(sizes) == 2000
    assert max(sizes) <= 300


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "extra", "call"),
    [
        ("pyarrow", "parquet", "open_export(path, 'parquet')"),
        ("obstore", "s3", "open_export('s3://bucket/key', 'jsonl')"),
        ("pyarrow", "pandas", "Client('http://127.0.0.1', 'x').outputs('g').to_pandas()"),
        ("polars", "polars", "Client('http://127.0.0.1', 'x').outputs('g').to_polars()"),
    ],
)
def test_a_missing_library_is_named(tmp_path: Path, module: str, extra: str, call: str) -> None:
    program = f"""
import sys
sys.modules[{module!r}] = None
from gleanery import Client
from gleanery.tables import InvalidExport, open_export
path = sys.argv[1]
try:
    {call}
except InvalidExport as error:
    print(error)
with open_export(path, 'csv') as export:
    export.finish()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a")], capture_output=True, text=True
    )
    assert f"pip install 'gleanery[{extra}]'" in done.stdout, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.extended
@pytest.mark.parametrize("case", ["wide", "large", "drift"])
def test_memory_is_bounded(tmp_path: Path, case: str) -> None:
    """Thousands of keys, an output of 30 MB, and a type that changes, each in its own process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.client.exports.memory", case, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["megabytes"] < (400 if case == "large" else 256)
