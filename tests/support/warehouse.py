"""A DuckDB file that dlt fills from a service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.service import Client, Service


class Warehouse:
    """A dlt pipeline into a DuckDB file, with the source of the integration."""

    def __init__(self, folder: Path) -> None:
        import dlt

        self._file = folder / "warehouse.duckdb"
        destination = dlt.destinations.duckdb(str(self._file))
        self.pipeline = dlt.pipeline("sync", destination=destination, dataset_name="copy")

    def load(self, source: Any, **options: Any) -> dict[str, int]:
        """Runs the pipeline, and returns the number of loaded rows of each table."""
        self.pipeline.run(source, **options)
        trace: Any = self.pipeline.last_trace
        loaded = trace.last_normalize_info.row_counts
        return {table: count for table, count in loaded.items() if not table.startswith("_dlt")}

    def execute(self, statement: str) -> None:
        with duckdb.connect(str(self._file)) as connection:
            connection.execute(statement)

    def rows(self, table: str) -> list[dict[str, Any]]:
        with duckdb.connect(str(self._file)) as connection:
            found = connection.execute(f'SELECT * FROM copy."{table}"')
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def isolate_dlt(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Lets dlt keep its files in the folder, and send nothing."""
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("DLT_DATA_DIR", str(folder / "dlt"))
    monkeypatch.chdir(folder)


def source(service: Service, client: Client, *groups: str, **options: Any) -> Any:
    """Source of the groups of a service."""
    from gleanery.integrations.dlt import gleanery_source

    return gleanery_source(list(groups) or ["group"], service.url, client.token or "", **options)


def copied(warehouse: Warehouse, table: str = "outputs_group") -> dict[int, tuple[int, bool]]:
    """Number and approval of each output in a table."""
    rows = warehouse.rows(table)
    assert len({row["output_id"] for row in rows}) == len(rows)
    assert not any(row["deleted"] for row in rows)
    return {row["id"]: (row["data__number"], row["is_approved"]) for row in rows}


def stored(client: Client, group: str = "group", **query: Any) -> dict[int, tuple[int, bool]]:
    """Number and approval of each output in the service."""
    items = client.items(group, limit=1000, **query)
    return {item["id"]: (item["data"]["number"], item["is_approved"]) for item in items}
