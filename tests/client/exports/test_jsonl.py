"""JSON lines: exact bytes, each output once, and the choice of fields."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from gleanery.tables import ExportFailed, InvalidExport, open_export
from tests.client.exports.outputs import output


def test_the_bytes_of_outputs_are_copied(tmp_path: Path) -> None:
    first = output(1, b'{"price": 1.10,"big":123456789012345678901,"b":1e400}')
    second = output(2, b'{"text":"\\u00e9"}')
    with open_export(str(tmp_path / "a.jsonl"), "jsonl") as export:
        export.write([first, msgspec.Raw(second)])
        report = export.finish()
    assert (tmp_path / "a.jsonl").read_bytes() == first + b"\n" + second + b"\n"
    assert (report.rows, report.bytes) == (2, len(first) + len(second) + 2)


def test_an_output_that_comes_again_is_left_out(tmp_path: Path) -> None:
    with open_export(str(tmp_path / "a.jsonl"), "jsonl") as export:
        export.write([output(id_, {"page": 1}) for id_ in (5, 6, 7)])
        export.write([output(id_, {"page": 2}) for id_ in (8, 6, 1, 8)])
        export.write([])
        assert (export.rows, export.duplicates) == (5, 2)
        report = export.finish()
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    assert [line["id"] for line in lines] == [5, 6, 7, 8, 1]
    assert report.duplicates == 2


def test_outputs_that_were_written_unread_are_left_out_later(tmp_path: Path) -> None:
    with open_export(str(tmp_path / "a.jsonl"), "jsonl") as export:
        export.write([output(id_, {"page": 1}) for id_ in (5, 6)], are_new=True)
        export.write([output(id_, {"page": 2}) for id_ in (7, 6)])
        export.write([output(id_, {"page": 3}) for id_ in (8, 9)], are_new=True)
        export.write([output(id_, {"page": 4}) for id_ in (9, 5, 7, 1)])
        report = export.finish()
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    assert [line["id"] for line in lines] == [5, 6, 7, 8, 9, 1]
    assert (report.rows, report.duplicates) == (6, 4)


def test_chosen_fields_keep_their_exact_text(tmp_path: Path) -> None:
    with open_export(
        str(tmp_path / "a.jsonl"), "jsonl", fields=["id", "price", "data.id", "data_x", "no"]
    ) as export:
        export.write([output(1, b'{"price":1.10,"id":2,"x":[1, 2],"y":3}')])
        report = export.finish()
    assert (tmp_path / "a.jsonl").read_bytes() == (
        b'{"id":1,"data":{"price":1.10,"id":2,"x":[1, 2]}}\n'
    )
    assert report.missing_fields == ("no",)


def test_an_item_without_data_has_no_key(tmp_path: Path) -> None:
    with open_export(str(tmp_path / "a.jsonl"), "jsonl", fields=["id", "price"]) as export:
        export.write([b'{"id":1}'])
        export.finish()
    assert (tmp_path / "a.jsonl").read_bytes() == b'{"id":1,"data":{}}\n'


def test_all_of_data_can_be_chosen(tmp_path: Path) -> None:
    with open_export(str(tmp_path / "a.jsonl"), "jsonl", fields=["data", "price"]) as export:
        export.write([output(1, {"price": 1, "b": 2})])
        export.finish()
    assert (tmp_path / "a.jsonl").read_bytes() == b'{"data":{"price":1,"b":2}}\n'


@pytest.mark.parametrize("item", [b"{}", b"[1]", b'{"id":"a"}', b'{"id":1', b"<html>"])
def test_something_else_than_an_output_fails_the_export(tmp_path: Path, item: bytes) -> None:
    with (
        pytest.raises(ExportFailed, match="not an output"),
        open_export(str(tmp_path / "a.jsonl"), "jsonl") as export,
    ):
        export.write([output(1, {}), item])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("format_", ["jsonl", "csv"])
def test_an_output_on_several_lines_fails_the_export(tmp_path: Path, format_: str) -> None:
    with (
        pytest.raises(ExportFailed, match="line breaks"),
        open_export(str(tmp_path / "a"), format_) as export,
    ):
        export.write([output(1, b'{\n"a":1}')], are_new=True)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("format_", "options"),
    [("xml", {}), ("csv", {"data": "tree"}), ("jsonl", {"fields": []}), ("csv", {"fields": [""]})],
)
def test_a_wrong_choice_is_reported(
    tmp_path: Path, format_: str, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidExport):
        open_export(str(tmp_path / "a"), format_, **options)  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]
