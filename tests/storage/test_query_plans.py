"""No statement scans a group or sorts: on both engines, in a database without statistics."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from gleanery.storage import audit, tenancy
from gleanery.storage.database import Engine
from gleanery.storage.engines import open_engine
from gleanery.storage.outputs import apply, pages, rows
from gleanery.storage.postgres.array_statements import over_arrays
from gleanery.storage.sqlite.statements import for_key_array
from tests.support.outputs import output
from tests.support.service import Service
from tests.support.settings import fresh_settings

FILTERS = ("job_id", "url_hash", "country", "region")
PAGES = [
    combination
    for size in range(len(FILTERS) + 1)
    for combination in itertools.combinations(FILTERS, size)
]
VALUES = {"job_id": "job", "url_hash": b"x" * 16, "country": "DE", "region": "DE-BY"}


@pytest.fixture(scope="module")
def filled(service: Service) -> Service:
    with service.client() as client:
        tags = {"country": "Germany", "region": "DE-BY"}
        client.store("group", *(output(number, tags=tags) for number in range(3000)))
    return service


@pytest.fixture(scope="module", params=["empty", "filled"])
def either(
    request: pytest.FixtureRequest,
    engine: str,
    filled: Service,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """A plan made over an empty table is kept while the table fills, so it must be right too."""
    if request.param == "filled":
        yield filled
        return
    empty = Service(fresh_settings(engine, request, tmp_path_factory.mktemp("empty")))
    yield empty
    empty.stop()


def plan(service: Service, sql: str, *values: Any) -> str:
    """How the engine would run the statement, in its own words."""

    async def explain(database: Engine) -> str:
        if database.engine == "sqlite":
            rows = await database.for_tenant(1).read("EXPLAIN QUERY PLAN " + sql, *values)
            return "\n".join(row[3] for row in rows)
        [[found]] = await database.for_tenant(1).read("EXPLAIN (FORMAT JSON) " + sql, *values)
        return json.dumps(json.loads(found), indent=1)

    async def run() -> str:
        async with open_engine(service.settings) as database:
            return await explain(database)

    return asyncio.run(run())


def assert_seeks(found: str) -> None:
    scanned = set(re.findall("SCAN (.*)", found)) - {"CONSTANT ROW", "skip_scan"}
    assert not scanned
    assert "TEMP B-TREE" not in found
    assert "Seq Scan" not in found
    assert '"Sort"' not in found


@pytest.mark.parametrize("filters", PAGES, ids="+".join)
def test_a_page_is_a_seek(either: Service, filters: tuple[str, ...]) -> None:
    asked = [VALUES[name] for name in filters]
    found = plan(either, f"{pages._statement(filters)} LIMIT 11", 1, "group", 0, *asked)
    assert_seeks(found)
    for name in filters:  # each in its own index, whatever else is asked for
        of_filter = found.partition(f"outputs_by_{name.removesuffix('_id').removesuffix('_hash')}")[
            2
        ]
        assert f"{name}=" in of_filter or f"({name} =" in of_filter
        assert "seq>" in of_filter or "seq >" in of_filter
    if not filters:
        assert "seq>" in found or "seq >" in found
    if len(filters) > 1:  # and the item by its place
        of_item = found.rpartition("outputs_in_order")[2]
        assert "seq=?" in of_item or "(seq = skip_scan.low)" in of_item


def test_a_page_of_the_audit_log_is_a_seek(either: Service) -> None:
    found = plan(either, audit._PAGE, 1, 0, 11)
    assert_seeks(found)
    assert "id>" in found or "(id >" in found


def test_an_output_is_found_by_its_identity(either: Service) -> None:
    found = plan(either, apply.FETCH_ROWS, 1, b"x" * 16)
    assert_seeks(found)
    assert "identity=" in found or "(identity =" in found.split('"Index Cond"')[1].split("\n")[0]


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        (rows.UPDATE_SEQ, {"$3": "1", "$4": "approved", "$5": "1", "$6": "item"}),
        (rows.UPDATE_LAST_SCRAPED, {"$2": "1", "$3": "item", "$4": "$2"}),
    ],
    ids=["moved", "touched"],
)
def test_an_output_is_changed_by_its_identity(
    either: Service, sql: str, values: dict[str, str]
) -> None:
    for place, value in values.items():
        sql = sql.replace(place, value)
    found = plan(either, sql, 1, b"x" * 16)
    assert_seeks(found)
    assert "identity=" in found or "(identity =" in found.split('"Index Cond"')[1].split("\n")[0]


MANY = [
    (apply.FETCH_ROWS, ["int8", "bytea"]),
    (rows.UPDATE_LAST_SCRAPED, ["int8", "int8", "bytea", "bytea"]),
    (rows.UPDATE_SEQ, ["int8", "bytea", "int8", "bool", "int8", "bytea"]),
]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize(("sql", "types"), MANY, ids=["known", "touched", "moved"])
def test_many_outputs_are_found_each_by_its_identity(
    either: Service, sql: str, types: list[str]
) -> None:
    whole = over_arrays(sql, types)
    assert whole is not None
    found = plan(either, whole, *([] for _ in types))
    assert_seeks(found)
    assert "(identity =" in found.split('"Index Cond"')[1].split("\n")[0]
    assert sql is apply.FETCH_ROWS or "Tid Scan" in found


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("sql", "types"), MANY[:2], ids=["known", "touched"])
def test_an_array_of_keys_is_looked_up_key_by_key(
    either: Service, sql: str, types: list[str]
) -> None:
    whole = for_key_array(sql, len(types), tenancy.ANY_TENANT).replace("?", "$")
    keys = apsw.carray((b"x" * 16, b"y" * 16))
    found = plan(either, whole, *([1] * (len(types) - 1)), keys)
    assert re.match(r"SEARCH outputs USING .*\(identity=\? AND organization_id=\?\)", found)
    assert found.count("outputs USING") == 1
