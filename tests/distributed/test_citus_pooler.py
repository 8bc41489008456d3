"""Citus behind PgBouncer in transaction mode."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gleanery.common.settings import Settings
from gleanery.service.storage.database import Subscription
from tests.support.calls import note_calls
from tests.support.citus import citus_server
from tests.support.outputs import output, read_changes
from tests.support.pgbouncer import pgbouncer
from tests.support.service import SECRET_KEY, Service
from tests.support.tenants import create_one_of_everything
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

ROUNDS = 10


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose two organizations share two connections of the coordinator."""
    with (
        citus_server(workers=2) as citus,
        pgbouncer(citus.coordinator, "transaction", pool_size=2) as pooler,
    ):
        through = pooler.settings(citus.new_database())
        running = Service(
            Settings(
                data=tmp_path_factory.mktemp("data"),
                **through,
                secret_key=SECRET_KEY,
                port=0,
                log_level="warning",
                max_wait_seconds=60,
            )
        )
        yield running
        running.stop()


def test_two_organizations_store_and_read_at_once(service: Service) -> None:
    def use(name: str) -> None:
        with service.client() as client:
            for number in range(ROUNDS):
                client.store("group", *(output(n, data={"of": name, "n": number}) for n in (1, 2)))
                assert len(client.items("group", limit=1)) == 2
                changes = read_changes(client)["changes"]
                for found in (*client.items("group"), *(one["output"] for one in changes)):
                    assert found["data"] == {"of": name, "n": number}

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(use, name) for name in ("one", "two")]:
            done.result()


def test_every_kind_of_thing_can_be_created(service: Service) -> None:
    with service.client() as one, service.client() as two:
        names = create_one_of_everything(one)
        assert one.get(f"/v1/outputs/{names['group']}").json()["items"]
        assert two.get(f"/v1/outputs/{names['group']}").status_code == 404


def test_a_notification_ends_a_long_poll(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = note_calls(monkeypatch, Subscription, "wait")
    with service.client() as client, ThreadPoolExecutor(1) as threads:
        client.store("group", output(1))
        cursor = read_changes(client)["cursor"]
        poll = threads.submit(read_changes, client, cursor, wait=60)
        wait_until(lambda: waits)
        client.store("group", output(2))
        [change] = poll.result()["changes"]
        assert change["output"]["source_url"] == output(2)["source_url"]


def test_the_service_is_ready(service: Service) -> None:
    with service.stranger() as nobody:
        assert nobody.get("/readyz").status_code == 200
