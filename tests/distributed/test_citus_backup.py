"""A dump of a database that Citus distributes, as docs/operations/back-up-and-restore.md says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.storage import tenancy
from tests.support.citus import CitusServer, citus_server, execute
from tests.support.outputs import output
from tests.support.process import gleanery_in_process
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.tenants import create_one_of_everything

pytestmark = pytest.mark.extended

COUNT = 30
DISTRIBUTED = "SELECT logicalrelid::text FROM pg_dist_partition"


@pytest.fixture(scope="module")
def citus() -> Iterator[CitusServer]:
    with citus_server(workers=2) as running:
        yield running


def settings_of(url: str, folder: Path) -> Settings:
    return Settings(data=folder, database=url, secret_key=SECRET_KEY, port=0, log_level="warning")


def run(command: str, url: str, *options: str) -> None:
    done = gleanery_in_process(command, "--database", url, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_dump_is_loaded_into_another_coordinator(citus: CitusServer, tmp_path: Path) -> None:
    url = citus.new_database()
    service = Service(settings_of(url, tmp_path))
    tokens = [service.token() for _ in range(4)]
    for token in tokens:
        with service.client(token) as client:
            create_one_of_everything(client)
            client.store("many", *(output(number) for number in range(COUNT)))
    before = [state(service, token) for token in tokens]
    cursor = last_cursor(service, tokens[0])
    service.stop()

    dump = citus.dump(url, "--no-privileges")
    copy = citus.empty_database()
    citus.load(copy, dump)
    run("migrate", copy, "--distribute")
    run("restored", copy, "--yes")

    tables = {row[0] for row in execute(copy, DISTRIBUTED)}
    assert tables == {*tenancy.TENANT_TABLES, *tenancy.SHARED_TABLES}
    service = Service(settings_of(copy, tmp_path))
    assert [state(service, token) for token in tokens] == before
    with service.client(tokens[0]) as client:
        assert client.get("/v1/changes/many", params={"cursor": cursor}).status_code == 410
        newest = max(item["id"] for item in client.items("many"))
        client.store("many", output(COUNT))
        assert max(item["id"] for item in client.items("many")) > newest
    service.stop()


def state(service: Service, token: str) -> list[Any]:
    """What a client sees, without what a restore changes: positions, dates and links."""
    with service.client(token) as client:
        return [
            {item["output_id"]: (item["id"], item["data"]) for item in client.items("many")},
            client.get("/v1/cookies").json(),
            client.get("/v1/local-storage").json(),
            [(group["group_id"], group["outputs"]) for group in groups(client)],
        ]


def groups(client: Client) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = client.get("/v1/groups").json()
    return listed


def last_cursor(service: Service, token: str) -> int:
    with service.client(token) as client:
        return int(client.get("/v1/changes/many").json()["changes"][-1]["cursor"])
