"""Programs that read an export with DuckDB, Polars and pandas, each in a process of its own."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from urllib.request import urlopen

_MAX_LINE_BYTES = 64 * 1024 * 1024


def _read_duckdb(source: str) -> int:
    import duckdb

    columns = {"output_id": "VARCHAR", "source_url": "VARCHAR", "data": "JSON"}
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE outputs AS SELECT * FROM read_json($source, columns = $columns, "
        "format = 'newline_delimited', maximum_object_size = $size)",
        {"source": source, "columns": columns, "size": _MAX_LINE_BYTES},
    )
    rows = connection.execute("SELECT count(*) FROM outputs").fetchall()
    return int(rows[0][0])


def _read_polars(source: str) -> int:
    import polars as pl

    columns = {"output_id": pl.String, "source_url": pl.String, "data": pl.String}
    with urlopen(source) as export:
        return len(pl.read_ndjson(export, schema=columns))


def _read_pandas(source: str) -> int:
    import pandas as pd

    with urlopen(source) as export:
        return len(pd.DataFrame(map(json.loads, export)))


READERS: dict[str, Callable[[str], int]] = {
    "DuckDB": _read_duckdb,
    "Polars": _read_polars,
    "pandas": _read_pandas,
}


def main(reader: str, source: str) -> None:
    """Read the export, and print the number of outputs, the seconds, and the memory in MiB."""
    start = time.perf_counter()
    count = READERS[reader](source)
    seconds = time.perf_counter() - start
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(count, seconds, mebibytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
