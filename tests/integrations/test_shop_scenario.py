"""The shop is scraped with three tools on two days, and synced into tables with three others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from examples.shop import CHANGED_EVERY, PRODUCTS, product
from tests.support.connectors import NEEDS_CONNECTORS
from tests.support.service import Service
from tests.support.shop_scenario import DELETED_SKU, Scenario, Table
from tests.support.shop_scrapers import DATA_MEMBERS, SCRAPERS
from tests.support.warehouse import isolate_dlt

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.parametrize("engine", ["sqlite"], indirect=True),
]
CHANGED = PRODUCTS // CHANGED_EVERY


@pytest.fixture(scope="module")
def scenario(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    folder = tmp_path_factory.mktemp("scenario")
    with pytest.MonkeyPatch.context() as monkeypatch:
        isolate_dlt(monkeypatch, folder)
        yield Scenario(service, folder)


def by_sku(table: Table) -> dict[str, dict[str, Any]]:
    found = {output["data"]["sku"]: output for output in table.values()}
    assert len(found) == len(table)
    return found


@pytest.mark.parametrize("group", SCRAPERS)
def test_a_scraper_stores_the_products_and_updates_what_has_changed(
    scenario: Scenario, group: str
) -> None:
    first = by_sku(scenario.moments["day 1"].outputs[group])
    before = by_sku(scenario.moments["deletion"].outputs[group])
    second = by_sku(scenario.moments["day 2"].outputs[group])
    for day, outputs in ((1, first), (2, second)):
        products = [product(number, day) for number in range(1, PRODUCTS + 1)]
        shown = {made.sku: made._asdict() for made in products}
        assert outputs.keys() == shown.keys()
        for sku, output in outputs.items():
            data = output["data"]
            assert sorted(data) == sorted(DATA_MEMBERS)
            assert {name: data[name] for name in shown[sku]} == shown[sku]
            assert data["url"] == output["source_url"]
            [file] = output["files"]
            assert (file["id"], file["field"]) == (data["data_sheet"], "data_sheet")
    ids = {sku: output["data"]["data_sheet"] for sku, output in first.items()}
    assert ids == {sku: output["data"]["data_sheet"] for sku, output in second.items()}
    assert len(set(ids.values())) == PRODUCTS
    changed = sorted(sku for sku in before if second[sku] != before[sku])
    assert changed == [f"SKU-{n:04}" for n in range(CHANGED_EVERY, PRODUCTS + 1, CHANGED_EVERY)]
    assert second.keys() - before.keys() == {DELETED_SKU}


def test_no_data_sheet_is_downloaded_on_the_second_day(scenario: Scenario) -> None:
    downloads = [moment.downloads.get("pdf", 0) for moment in scenario.moments.values()]
    assert len(set(downloads)) == 1


@pytest.mark.parametrize(
    "tool",
    [
        "dlt",
        pytest.param("Airbyte", marks=NEEDS_CONNECTORS),
        pytest.param("Singer", marks=NEEDS_CONNECTORS),
    ],
)
def test_a_synced_table_equals_the_outputs(scenario: Scenario, tool: str) -> None:
    groups = len(SCRAPERS)
    for moment in scenario.moments.values():
        assert moment.tables[tool] == moment.outputs
    rows = {name: moment.synced_rows[tool] for name, moment in scenario.moments.items()}
    assert rows == {
        "day 1": groups * PRODUCTS,
        "review": groups * PRODUCTS,
        "deletion": groups,
        "day 2": groups * (CHANGED + 1),
    }
