"""The console's groups and jobs over HTTP, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.storage import group_lock
from tests.support.console import ConsoleClient
from tests.support.outputs import output
from tests.support.service import DAY, Client, Clock, Service


@pytest.fixture
def console(service: Service, client: Client) -> Iterator[ConsoleClient]:
    """A session of the client's token."""
    assert client.token is not None
    with closing(ConsoleClient(service.url, client.token)) as signed_in:
        yield signed_in


def read(console: ConsoleClient, path: str, **query: Any) -> dict[str, Any]:
    answer = console.get(f"/console/api/{path}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_group_is_listed_with_its_numbers(client: Client, console: ConsoleClient) -> None:
    client.store("group", *(output(number) for number in range(3)), output(9, job_id="other"))
    client.post("/v1/reviews/group", json={"job_id": "other", "status": "approved"})
    found = read(console, "groups")
    assert found["next"] is None
    [group] = found["groups"]
    assert group.pop("last_change") > 0
    assert group.pop("changes") == [0] * 29 + [4]
    assert group == {
        "group_id": "group",
        "display_name": None,
        "outputs": 4,
        "approved": 1,
        "jobs": {"count": 2, "has_more": False},
        "fill_rate": {"mean": 1.0, "lowest": 1.0, "lowest_path": "number"},
    }


def test_the_least_filled_field_is_named(client: Client, console: ConsoleClient) -> None:
    data = [{"a": 1, "b": {"c": 1}}, {"a": 2, "b": {"c": None}}]
    client.store("group", *(output(number, data=one) for number, one in enumerate(data)))
    [group] = read(console, "groups")["groups"]
    assert group["fill_rate"]["lowest_path"] == "b.c"
    assert group["fill_rate"]["lowest"] == 0.5


def test_groups_are_paged_by_name(client: Client, console: ConsoleClient) -> None:
    names = [f"group-{number:02}" for number in range(30)]
    for name in reversed(names):
        client.store(name, output(1))
    client.delete(f"/v1/groups/{names[3]}")
    del names[3]
    first = read(console, "groups")
    second = read(console, "groups", after=first["next"])
    found = [group["group_id"] for page in (first, second) for group in page["groups"]]
    assert found == names
    assert second["next"] is None


def test_approved_counts_follow_reviews_and_deletions(
    client: Client, console: ConsoleClient
) -> None:
    stored = client.store("group", *(output(number) for number in range(4)))
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    client.delete(f"/v1/outputs/group/{stored['results'][0]['output_id']}")
    client.store("group", output(1, data={"number": -1}))
    [group] = read(console, "groups")["groups"]
    assert (group["outputs"], group["approved"]) == (3, 2)
    assert group["changes"][-1] == 6  # an approval is not a change of a value


def test_changes_are_counted_by_day(settings: Settings, clock: Clock) -> None:
    running = Service(settings, clock)
    token = running.token()
    with running.client(token=token) as client:
        client.store("group", output(1), output(2))
        clock.move(seconds=3 * DAY)
        client.store("group", output(1, data={"number": 5}))
        clock.move(seconds=DAY)
        with closing(ConsoleClient(running.url, token)) as console:
            changes = read(console, "groups")["groups"][0]["changes"]
            assert changes[-6:] == [0, 2, 0, 0, 1, 0]
        clock.move(seconds=40 * DAY)  # also ends the session
        with closing(ConsoleClient(running.url, token)) as console:
            assert read(console, "groups/group/jobs")["group"]["changes"] == [0] * 30
    running.stop()


def test_daily_changes_are_bounded() -> None:
    stored = None
    for day in range(100, 200):
        stored = group_lock.add_daily_changes(stored, day, day)
    assert group_lock.read_daily_changes(stored, 199) == list(range(170, 200))
    assert group_lock.read_daily_changes(stored, 201) == [*range(172, 200), 0, 0]
    assert len((stored or "").split()) == 31
    later = group_lock.add_daily_changes(stored, 150, 1)  # a clock that went back
    assert group_lock.read_daily_changes(later, 199)[-1] == 200
    assert group_lock.read_daily_changes(group_lock.add_daily_changes(stored, 10**6, 7), 10**6) == [
        0
    ] * 29 + [7]


def test_the_jobs_of_a_group(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1), output(2), output(1, job_id="other"))
    review = {"job_id": "other", "status": "approved", "comment": "x" * 1000}
    client.post("/v1/reviews/group", json=review)
    found = read(console, "groups/group/jobs")
    assert (found["group"]["outputs"], found["group"]["approved"]) == (3, 1)
    first, second = found["jobs"]
    assert (first["job_id"], first["outputs"], first["approved"]) == ("job", 2, 0)
    assert first["review"] is None
    assert first["waits_since"] > 0
    assert first["last_run_at"] >= first["waits_since"]
    assert second["waits_since"] is None
    assert second["review"]["comment"] == "x" * 300


def test_jobs_are_paged(client: Client, console: ConsoleClient) -> None:
    client.store("group", *(output(1, job_id=f"job {number}") for number in range(120)))
    after, found = 0, []
    while after is not None:
        page = read(console, "groups/group/jobs", after=after)
        found += [job["job_id"] for job in page["jobs"]]
        after = page["next"]
    assert len(found) == len(set(found)) == 120


def test_an_unknown_group_is_404(console: ConsoleClient) -> None:
    assert console.get("/console/api/groups/nobody/jobs").status_code == 404


def test_groups_need_their_scope(service: Service) -> None:
    token = service.token(scopes=frozenset({"session:read"}))
    with closing(ConsoleClient(service.url, token)) as console:
        assert console.get("/console/api/groups").status_code == 403
        assert console.get("/console/api/groups/group/jobs").status_code == 403
