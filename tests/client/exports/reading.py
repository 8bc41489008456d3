"""Reading of exported files with pyarrow, DuckDB, polars and pandas, and back to JSON values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

READERS = (
    "pyarrow",
    *(pytest.param(name, marks=pytest.mark.extended) for name in ("duckdb", "polars", "pandas")),
)
Columns = Mapping[str, list[Any]]

_ARROW = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.string(),
    "json": pa.string(),
}
_DUCKDB = {
    "null": "VARCHAR",
    "bool": "BOOLEAN",
    "int64": "BIGINT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "timestamp": "VARCHAR",
    "json": "VARCHAR",
}
_POLARS = {"bool": "Boolean", "int64": "Int64", "double": "Float64"}


def read_parquet(path: Path, reader: str) -> Columns:
    if reader == "pyarrow":
        return pyarrow.parquet.read_table(path).to_pydict()
    if reader == "polars":
        import polars  # takes half a second

        return polars.read_parquet(path).to_dict(as_series=False)
    if reader == "pandas":
        import pandas as pd

        frame = pd.read_parquet(path, dtype_backend="pyarrow")
        return pa.Table.from_pandas(frame, preserve_index=False).to_pydict()
    return _fetch(f"SELECT * FROM read_parquet('{path}')")


def read_csv(path: Path, reader: str, types: Mapping[str, str]) -> Columns:
    """Reads a CSV file with the options of the how-to guide."""
    if reader in ("pyarrow", "pandas"):
        table = pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: _ARROW[type_] for name, type_ in types.items()},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        if reader == "pandas":
            import pandas as pd

            frame = table.to_pandas(types_mapper=pd.ArrowDtype)
            table = pa.Table.from_pandas(frame, preserve_index=False)
        return table.to_pydict()
    if reader == "polars":
        import polars

        schema = {
            name: getattr(polars, _POLARS.get(type_, "String")) for name, type_ in types.items()
        }
        return polars.read_csv(path, schema=schema).to_dict(as_series=False)
    columns = ", ".join(f"'{_DUCKDB[type_]}'" for type_ in types.values())
    return _fetch(
        f"SELECT * FROM read_csv('{path}', types=[{columns}], header=true, delim=',', "
        "quote='\"', escape='\"', new_line='\\r\\n', nullstr='', allow_quoted_nulls=false)"
    )


def _fetch(query: str) -> Columns:
    import duckdb

    result = duckdb.sql(query)
    rows = result.fetchall()
    return {name: [row[at] for row in rows] for at, name in enumerate(result.columns)}


def as_json_value(value: Any, type_: str) -> Any:
    """What a value of a column means, by the rules of the how-to guide."""
    if value is None:
        return None
    match type_:
        case "bool":
            return ("bool", value)
        case "int64":
            return ("number", Decimal(value))
        case "double":
            return ("number", Decimal(repr(value)))
        case "string":
            return ("string", value)
        case "json":
            return parse(value)
    raise AssertionError(f"a value in a column of type {type_}")


def without_escape(text: Any) -> Any:
    """Removes the apostrophe before a formula."""
    if isinstance(text, str) and re.match("'+[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]", text):
        return text[1:]
    return text


def parse(text: str | bytes) -> Any:
    """Parses JSON text so that equal values have equal results, and others have not."""
    value = json.loads(text, parse_int=Decimal, parse_float=Decimal)
    return _tagged(value)


def _tagged(value: Any) -> Any:
    match value:
        case None:
            return None
        case bool():
            return ("bool", value)
        case Decimal():
            return ("number", value)
        case str():
            return ("string", value)
        case list():
            return ("array", [_tagged(element) for element in value])
        case dict():
            return ("object", {key: _tagged(member) for key, member in value.items()})
    raise AssertionError
