"""The scenario of the shop: two days of scraping, with a review and a deletion between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from examples.shop import Shop, running_shop
from gleanery.client import Client
from tests.support import service as support
from tests.support.connectors import ARE_INSTALLED, Airbyte, Connector, Singer
from tests.support.service import Service
from tests.support.shop_scrapers import JOB, SCRAPERS
from tests.support.warehouse import Warehouse

Table = dict[str, dict[str, Any]]
"""Outputs by their output_id, with the members that ``/v1/outputs`` has."""

DELETED_SKU = "SKU-0007"
# A sync does not get an output again if only its last scrape moves. Links differ in each response.
_NOT_SYNCED = ("last_scraped_date",)
_NOT_SYNCED_OF_FILES = ("blob_url",)


class Moment(NamedTuple):
    """The groups at a moment of the scenario, and the tables that were synced then."""

    outputs: dict[str, Table]
    """By group."""
    tables: dict[str, dict[str, Table]]
    """By the name of a tool, and by group."""
    synced_rows: dict[str, int]
    """Number of rows that the sync has transferred, by the name of a tool."""
    downloads: dict[str, int]
    """Number of responses of the shop until then, by kind of page."""


class Sync(ABC):
    """A tool that copies the groups into tables."""

    @abstractmethod
    def run(self) -> int:
        """Syncs all groups, and returns the number of transferred rows."""

    @abstractmethod
    def table(self, group: str) -> Table:
        """The table of a group."""


class DltSync(Sync):
    def __init__(self, folder: Path, service: Service, token: str) -> None:
        self._warehouse = Warehouse(folder)
        self._options = (list(SCRAPERS), service.url, token)

    def run(self) -> int:
        from gleanery.integrations.dlt import gleanery_source

        loaded = self._warehouse.load(gleanery_source(*self._options))
        return sum(count for table, count in loaded.items() if "__" not in table)

    def table(self, group: str) -> Table:
        name = f"outputs_{group.replace('-', '_')}"
        files: dict[str, list[dict[str, Any]]] = {}
        for row in self._warehouse.rows(f"{name}__files"):
            files.setdefault(row["_dlt_parent_id"], []).append(_as_json(row))
        rows = self._warehouse.rows(name)
        outputs = [_as_json(row) | {"files": files[row["_dlt_id"]]} for row in rows]
        assert not any(output.pop("deleted") for output in outputs)
        assert all(output.pop("cursor") for output in outputs)
        return to_table(outputs)


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """The members of an output or a file: columns such as ``data__price`` are members again."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if not name.startswith("_dlt"):
            *outer, last = name.split("__")
            inner = made
            for step in outer:
                inner = inner.setdefault(step, {})
            inner[last] = _render(value) if isinstance(value, datetime) else value
    return made


def _render(date: datetime) -> str:
    return f"{date.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


class ConnectorSync(Sync):
    """Tables that a destination makes of the records of a connector."""

    _MEMBERS = ("change", "cursor", "change_date", "group_id")

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._tables: dict[str, dict[str, dict[str, Any]]] = {}

    def run(self) -> int:
        records = self._connector.read()
        for record in records:
            table = self._tables.setdefault(record["group_id"], {})
            if self._connector.is_deleted(record):
                table.pop(record["output_id"], None)
            else:
                table[record["output_id"]] = record
        return len(records)

    def table(self, group: str) -> Table:
        return to_table(
            {
                name: value
                for name, value in record.items()
                if name not in self._MEMBERS and not name.endswith("_deleted_at")
            }
            for record in self._tables[group].values()
        )


def to_table(outputs: Any) -> Table:
    """The outputs without what a sync does not transfer."""
    table = {}
    for output in outputs:
        kept = {name: value for name, value in output.items() if name not in _NOT_SYNCED}
        kept["files"] = [_without_links(file) for file in output["files"]]
        kept.setdefault("tags", {})  # an empty object has no column
        table[output["output_id"]] = kept
    return table


def _without_links(file: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in file.items() if name not in _NOT_SYNCED_OF_FILES}
    return {"file_metadata": {}, **kept}


class Scenario:
    """Runs the scenario. ``moments`` has the groups after each part of it."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._token = service.token()
        self._http = support.Client(service.url, self._token)
        self._syncs = self._create_syncs(service, folder)
        self.moments: dict[str, Moment] = {}
        with running_shop() as shop, Client(service.url, self._token) as client:
            for name, work in self._parts(shop, client).items():
                work()
                self.moments[name] = self._sync(shop)

    def _parts(self, shop: Shop, client: Client) -> Mapping[str, Callable[[], None]]:
        return {
            "day 1": lambda: self._scrape(shop, client, 1),
            "review": lambda: self._review(client),
            "deletion": lambda: self._delete(client),
            "day 2": lambda: self._scrape(shop, client, 2),
        }

    def _create_syncs(self, service: Service, folder: Path) -> dict[str, Sync]:
        syncs: dict[str, Sync] = {"dlt": DltSync(folder, service, self._token)}
        if ARE_INSTALLED:
            for tool in (Airbyte, Singer):
                place = folder / tool.__name__
                place.mkdir()
                connector = tool(place, service, self._token, *SCRAPERS)
                syncs[tool.__name__] = ConnectorSync(connector)
        return syncs

    def _scrape(self, shop: Shop, client: Client, day: int) -> None:
        shop.day = day
        for group, scrape in SCRAPERS.items():
            scrape(group, shop, client, self._token)

    def _review(self, client: Client) -> None:
        for group in SCRAPERS:
            client.review(group, JOB, "approved")

    def _delete(self, client: Client) -> None:
        for group in SCRAPERS:
            [output_id] = [
                output.output_id
                for output in client.outputs(group)
                if output.data["sku"] == DELETED_SKU
            ]
            client.delete_output(group, output_id)

    def _sync(self, shop: Shop) -> Moment:
        rows = {name: sync.run() for name, sync in self._syncs.items()}
        tables = {
            name: {group: sync.table(group) for group in SCRAPERS}
            for name, sync in self._syncs.items()
        }
        outputs = {group: to_table(self._http.items(group, limit=1000)) for group in SCRAPERS}
        return Moment(outputs, tables, rows, dict(shop.counts))
