"""A service with a real streaming replica: delayed, disconnected, promoted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faults.environment import open_environment
from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.storage import migrations
from tests.api.test_many_clients import Reader, without_scrape_date
from tests.support.databases import pretend_newer_schema, run_script
from tests.support.outputs import output, stored_outputs
from tests.support.process import join_readers_after_writers
from tests.support.replicas import Standby, metric, settings_of, wait_for_usable
from tests.support.service import Client, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

NEWEST = migrations.newest("postgres")


@pytest.fixture
def standby() -> Iterator[Standby]:
    with open_environment() as environment:  # it ends the servers
        primary, server = environment.start_server(), environment.new_server()
        server.start_as_standby_of(primary)
        yield Standby(primary, server)


@pytest.fixture
def service(standby: Standby, tmp_path: Path) -> Iterator[Service]:
    settings = settings_of(
        tmp_path, standby.primary, standby.server.url(), max_replica_lag_seconds=600
    )
    running = Service(settings)
    running.token()
    standby.catch_up()
    yield running
    running.stop()


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with service.client() as made:
        yield made


def first_number(client: Client) -> int:
    """The output on the first page, which has a next page."""
    page = client.get("/v1/outputs/group", params={"limit": 1}).json()
    assert page["metadata"]["next_cursor"] is not None
    return int(page["items"][0]["data"]["number"])


def change_first(client: Client, standby: Standby) -> None:
    """Stores three outputs, and changes the first one, so that the replica lacks the change."""
    client.store("group", *(output(n) for n in (1, 2, 3)))
    standby.pause()
    wait_until(lambda: first_number(client) == 1)
    client.store("group", output(1, data={"number": 11}))
    wait_until(lambda: first_number(client) == 1)  # the replica may need to be found first


def test_full_pages_come_from_the_replica_and_the_end_from_the_primary(
    client: Client, standby: Standby
) -> None:
    change_first(client, standby)
    # Output 1 is met again where it is now.
    numbers = [item["data"]["number"] for item in client.items("group", limit=1)]
    assert numbers == [1, 2, 3, 11]
    first = client.get("/v1/changes/group", params={"limit": 1}).json()
    assert first["changes"][0]["output"]["data"] == {"number": 2}  # the start is the primary's
    before = first["cursor"] - 2
    changes = client.get("/v1/changes/group", params={"limit": 1, "cursor": before}).json()
    assert changes["changes"][0]["output"]["data"] == {"number": 1}
    last = client.get("/v1/changes/group", params={"cursor": changes["cursor"]}).json()
    assert [each["output"]["data"]["number"] for each in last["changes"]] == [2, 3, 11]
    again = client.get("/v1/changes/group", params={"cursor": last["cursor"]}).json()
    assert again["changes"] == []


def test_the_metrics_have_the_lag(client: Client, standby: Standby) -> None:
    def lag() -> float | None:
        return metric(client, "gleanery_replica_lag_seconds")

    change_first(client, standby)
    assert metric(client, "gleanery_replicas_usable") == 1
    wait_until(lambda: (lag() or 0) > 1)
    standby.resume()
    wait_until(lambda: lag() == 0)
    standby.server.kill()
    wait_for_usable(client, 0)
    assert lag() is None


def test_a_new_worker_knows_the_lag(service: Service, client: Client, standby: Standby) -> None:
    change_first(client, standby)
    wait_until(lambda: (metric(client, "gleanery_replica_lag_seconds") or 0) > 3)
    other = Service(replace(service.settings, port=0), is_prepared=True)
    try:
        with other.client() as of_other:
            wait_for_usable(of_other, 1)
            assert (metric(of_other, "gleanery_replica_lag_seconds") or 0) > 3
    finally:
        other.stop()


def test_a_replica_is_used_while_this_program_can_serve_its_schema(
    client: Client, service: Service, standby: Standby
) -> None:
    client.store("group", output(1))
    pretend_newer_schema(service.settings, NEWEST)
    standby.pause()
    client.store("group", output(2))  # the lag shows that the replica is checked
    wait_until(lambda: (metric(client, "gleanery_replica_lag_seconds") or 0) > 1)
    wait_for_usable(client, 1)
    standby.resume()
    run_script(service.settings, "UPDATE migrations SET compatible_from = number")
    wait_for_usable(client, 0)


def test_what_the_replica_does_not_know_yet_is_found(client: Client, standby: Standby) -> None:
    standby.pause()
    client.store("group", *(output(n) for n in range(5)))
    assert len(client.items("group", limit=2)) == 5
    assert client.get("/v1/outputs/none").status_code == 404
    assert client.get("/v1/changes/none").status_code == 404
    client.put("/v1/groups/group", json={"display_name": "New"})
    assert client.get("/v1/groups/group").json()["display_name"] == "New"
    client.delete("/v1/groups/group")
    assert client.get("/v1/outputs/group").status_code == 404


def test_a_disconnected_replica_is_left_out_and_used_again(
    client: Client, standby: Standby
) -> None:
    client.store("group", *(output(n) for n in (1, 2, 3)))
    standby.catch_up()
    standby.server.kill()
    for _ in range(5):
        assert first_number(client) == 1
    client.store("group", output(1, data={"number": 11}))
    assert first_number(client) == 2
    standby.server.start()
    standby.pause()
    client.store("group", output(2, data={"number": 12}))
    wait_until(lambda: first_number(client) == 2)


def test_a_replica_that_does_not_respond_delays_a_page_only_once(
    client: Client, standby: Standby
) -> None:
    change_first(client, standby)
    standby.server.freeze()
    try:
        for _ in range(5):
            assert first_number(client) == 2
    finally:
        standby.server.resume()


def test_a_promoted_replica_is_not_read_any_more(client: Client, standby: Standby) -> None:
    change_first(client, standby)
    standby.resume()  # a paused server cannot be promoted
    standby.server.promote()
    standby.server.run("UPDATE outputs SET item = item || ' '", "gleanery")
    client.store("group", output(2, data={"number": 12}))
    wait_until(lambda: first_number(client) == 3)
    assert len(client.items("group", limit=1)) == 3


def test_readers_are_exact_beside_writers_while_the_replica_is_behind(
    service: Service, standby: Standby
) -> None:
    standby.server.run("ALTER SYSTEM SET recovery_min_apply_delay = '1s'")
    standby.server.run("SELECT pg_reload_conf()")
    token = service.token()
    writing = threading.Event()
    readers = [Reader(service.url, token, writing) for _ in range(3)]
    with Client(service.url, token) as client:
        client.store("group", output(0))
        join_readers_after_writers(
            [threading.Thread(target=write, args=(service.url, token, standby))], readers, writing
        )
        expected = without_scrape_date(stored_outputs(client))
    assert len(expected) > 50
    for reader in readers:
        assert without_scrape_date(reader.copy) == expected


def write(url: str, token: str, standby: Standby) -> None:
    """Stores, changes and deletes outputs. The replica is killed and restarted meanwhile."""
    with Client(url, token) as client:
        for turn in range(30):
            numbers = range(turn % 7, 60, 3)
            client.store("group", *(output(n, data={"turn": turn}) for n in numbers))
            if turn % 5 == 4:
                items = client.get("/v1/outputs/group", params={"limit": 1}).json()["items"]
                client.delete(f"/v1/outputs/group/{items[0]['output_id']}")
            if turn % 10 == 9:
                standby.server.kill()
                standby.server.start()


@pytest.mark.parametrize(
    "url",
    ["http://a", "postgresql://a/b", "postgresql://u:p@a,b/c", "postgresql:///c?host=a%2Cb"],
)
def test_settings_that_cannot_work_are_rejected(tmp_path: Path, url: str) -> None:
    settings = replace(Settings(data=tmp_path), replica=(url,))
    with pytest.raises(SettingsError, match=r"--replica (must|needs)"):
        settings.check()
