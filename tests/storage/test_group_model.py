"""Model-based test of versions, reviews and both views: the service agrees with the model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.group_model import (
    DAY,
    SECOND,
    Change,
    Model,
    Output,
    Sent,
    Settings,
    Version,
    View,
    date_time_of,
    text_of,
)
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

# make model sets it, for a long run with other examples each time.
EXAMPLES = int(os.environ.get("GLEANERY_MODEL_EXAMPLES", "0"))
STEPS = 40 if EXAMPLES else 20
JOBS, KEYS = st.sampled_from("ab"), st.sampled_from("xy")
SENT = st.builds(Sent, JOBS, KEYS, st.integers(0, 4), st.integers(0, 1))
KEEP_VERSIONS = st.sampled_from([None, 0, 1, 2])
# A batch has each output once: the feed, from which positions come, shows only its last value.
BATCH = st.lists(SENT, min_size=1, max_size=5, unique_by=lambda sent: (sent.job, sent.key))
STATUSES = st.sampled_from(["approved", "approved", "changes_requested", "rejected", "pending"])
STEPS_AGO = st.none() | st.integers(0, 2)
APPROVAL = {"approved": True, "changes_requested": False, "rejected": False}
# The marker is always approved, and its tags change: so it is the last change of both feeds.
MARKER = Sent("marker", "marker", 0)
TOMBSTONE_DAYS = 10
EVER = 1_000_000  # the triggers of the audit log use the real clock, which the test does not move
VIEWS: tuple[View, ...] = ("full", "approved")


@pytest.fixture
def service(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[Service]:
    settings = fresh_settings(engine, request, tmp_path)
    settings = replace(settings, tombstone_days=TOMBSTONE_DAYS, audit_days=EVER)
    settings = replace(settings, sweep_seconds=EVER)  # the model must know when a sweep runs
    running = Service(settings, clock)
    yield running
    running.stop()


class Reader:
    """A client that follows a feed in small pages, and starts again after a 410."""

    def __init__(self, client: Client, view: View) -> None:
        self._client, self._view = client, view
        self._cursor = 0
        self.replica: dict[str, str] = {}

    def catch_up(self, limit: int, applied: int) -> None:
        """Reads all changes. Of the first page it applies only some, and continues from there."""
        while True:
            page = read_feed(self._client, self._view, self._cursor, limit)
            if page is None:
                self._cursor, self.replica = 0, {}
                continue
            changes = [as_change(change) for change in page["changes"]][:applied]
            apply(self.replica, changes)
            if len(changes) < len(page["changes"]):
                self._cursor, applied = changes[-1].cursor, limit + 1000
                continue
            self._cursor = page["cursor"]
            if page["metadata"]["next_cursor"] is None:
                return

    def state(self) -> list[str]:
        return sorted(map(without_scrape, self.replica.values()))


def without_scrape(item: str) -> str:
    """Leaves out the date of the last scrape: a scrape without a change is not in the feed."""
    return text_of({**json.loads(item), "last_scraped_date": None})


def read_feed(client: Client, view: View, cursor: int, limit: int = 1000, **more: str) -> Any:
    """Returns a page of the feed; None if the cursor has expired."""
    query: dict[str, Any] = {"cursor": cursor, "limit": limit, **in_view(view), **more}
    answer = client.get("/v1/changes/group", params=query)
    assert answer.status_code in (200, 410), answer.text
    return answer.json() if answer.status_code == 200 else None


def in_view(view: View) -> dict[str, str]:
    return {} if view == "full" else {"view": view}


def as_change(element: dict[str, Any]) -> Change:
    text = text_of(element["output"])
    return Change(element["change"], element["cursor"], element["output_id"], text)


def apply(replica: dict[str, str], changes: list[Change]) -> None:
    for change in changes:
        if change.kind == "delete":
            replica.pop(change.output_id, None)
        else:
            replica[change.output_id] = change.output


def sorted_fields(element: dict[str, Any]) -> dict[str, Any]:
    if element.get("fields"):
        element["fields"].sort(key=lambda change: change["path"])
    return element


def machine(service: Service, clock: Clock) -> type[RuleBasedStateMachine]:
    class Agreement(RuleBasedStateMachine):
        @initialize(keep_versions=KEEP_VERSIONS)
        def begin(self, keep_versions: int | None) -> None:
            self.model = Model()
            self.client = service.client()
            self.readers = {view: Reader(self.client, view) for view in VIEWS}
            self.cursors: list[int] = []
            self.changed: list[Output] = []
            self.marked = self.step = self.chosen = 0
            self.fill()
            self.change_settings([], keep_versions=keep_versions)

        def fill(self) -> None:
            self.store([MARKER, Sent("a", "x", 0), Sent("b", "x", 0)])
            self.send_review(job_id="marker", status="approved")
            marker = self.model.in_order("marker")
            self.model.review(marker, True, self.new_numbers("full"), {}, None)
            self.step_ends()

        def send(self, method: str, path: str, **options: Any) -> Any:
            answer = self.client.request(method, path, **options)
            assert answer.status_code == 200, answer.text
            return answer.json()

        # --- rules ------------------------------------------------------------------------------

        @rule(batch=BATCH)
        def store(self, batch: list[Sent]) -> None:
            body = [sent.body() for sent in batch]
            results = self.send("POST", "/v1/outputs/group", json=body)["results"]
            self.model.store(batch, results, self.new_numbers("full"), clock())
            self.step_ends()

        @rule(job=JOBS, keys=st.none() | st.sets(KEYS), status=STATUSES, steps_ago=STEPS_AGO)
        def review(
            self, job: str, keys: set[str] | None, status: str, steps_ago: int | None
        ) -> None:
            """Reviews the whole job, or some of its outputs."""
            outputs = self.find(job, keys)
            if not outputs:
                return
            review: dict[str, Any] = {"job_id": job, "status": status}
            review["as_of"] = as_of = self.position(steps_ago)
            if keys is not None:
                review["output_ids"] = [output.output_id for output in outputs]
            answer = self.send_review(**review)
            skipped = self.end_review(outputs, APPROVAL.get(status), as_of)
            assert answer.get("skipped_output_ids") == (None if keys is None else skipped)

        @rule(batch=BATCH, job=JOBS, keys=st.none() | st.sets(KEYS), steps_ago=STEPS_AGO)
        def store_and_approve(
            self, batch: list[Sent], job: str, keys: set[str] | None, steps_ago: int | None
        ) -> None:
            """Makes versions in the view, and newer ones beside it, more frequent."""
            self.store(batch)
            self.check_all()
            self.review(job, keys, "approved", steps_ago)

        def find(self, job: str, keys: set[str] | None) -> list[Output]:
            if keys is None:
                return self.model.in_order(job)
            found = [self.model.find(job, key) for key in sorted(keys)]
            return [output for output in found if output is not None]

        def send_review(self, **review: Any) -> Any:
            return self.send("POST", "/v1/reviews/group", json=review)

        def position(self, steps_ago: int | None) -> int | None:
            if steps_ago is None:
                return None
            return [*self.cursors, self.model.last_seq][-1 - steps_ago]

        @rule(job=JOBS, key=st.none() | KEYS)
        def delete(self, job: str, key: str | None) -> None:
            """Deletes an output, or a whole job."""
            outputs = self.find(job, None if key is None else {key})
            if outputs:
                is_job = key is None
                path = (
                    f"groups/group/jobs/{job}"
                    if is_job
                    else f"outputs/group/{outputs[0].output_id}"
                )
                self.send("DELETE", f"/v1/{path}")
                self.end_deletion(outputs)

        @precondition(lambda self: self.step > 8)
        @rule()
        def delete_group(self) -> None:
            """Deletes the group, and stores outputs again: the feeds go on."""
            self.send("DELETE", "/v1/groups/group")
            self.model.delete(self.model.in_order(), self.new_numbers("full"))
            self.model.delete_history()
            self.model.settings = Settings()
            self.model.last_seq = self.end_cursor
            self.fill()

        @rule(days=st.integers(1, 12))
        def time_passes(self, days: int) -> None:
            clock.move(seconds=days * DAY // SECOND)
            now = clock()
            service.sweep(clock)
            self.model.purge(now - TOMBSTONE_DAYS * DAY)
            self.end_deletion(self.model.expired(now))

        @rule(
            batch=BATCH,
            keep_versions=KEEP_VERSIONS,
            keep_days=st.sampled_from([None, None, 2, 10]),
            retain_days=st.sampled_from([None, None, None, 5, 15]),
        )
        def change_settings(self, batch: list[Sent], **values: int | None) -> None:
            """Changes the settings, and stores outputs under them."""
            self.model.settings = Settings(**values)
            self.send("PUT", "/v1/groups/group", json=values)
            self.step_ends()
            if batch:
                self.store(batch)

        # --- the end of a step ------------------------------------------------------------------

        def new_numbers(self, view: View, kind: str = "") -> dict[str, int]:
            """Returns the positions of the changes since the last step, by output."""
            page = read_feed(self.client, view, self.model.last_seq)
            changes = [as_change(change) for change in page["changes"]]
            numbers = {c.output_id: c.cursor for c in changes if not kind or c.kind == kind}
            if not kind:
                assert len(numbers) == len(changes)
                self.unused, self.end_cursor = numbers, page["cursor"]
            return numbers

        def end_review(
            self, outputs: list[Output], approved: bool | None, as_of: int | None
        ) -> list[str]:
            """Stores the marker, so that the feeds show the exact positions of other changes."""
            self.marked = 1 - self.marked
            marker = MARKER._replace(tags=self.marked)
            stored = self.send("POST", "/v1/outputs/group", json=[marker.body()])
            numbers = self.new_numbers("full")
            removals = self.new_numbers("approved", "delete")
            skipped = self.model.review(outputs, approved, numbers, removals, as_of)
            self.model.store([marker], stored["results"], numbers, clock())
            self.step_ends()
            return skipped

        def end_deletion(self, outputs: list[Output]) -> None:
            self.model.delete(outputs, self.new_numbers("full"))
            self.step_ends()

        def step_ends(self) -> None:
            assert not self.unused, "the feed has changes that the model has not"
            assert self.end_cursor >= self.model.last_seq
            before, self.model.last_seq = self.model.last_seq, self.end_cursor
            self.cursors = [*self.cursors, before][-4:]
            self.model.apply_limits(clock())
            self.changed = [o for o in self.model.outputs.values() if o.last_seq() > before]
            self.model.learn(self.client.items("group", limit=4))

        # --- invariants -------------------------------------------------------------------------

        @invariant()
        def check_all(self) -> None:
            for view in VIEWS:
                for cursor in self.cursors:
                    self.check_feed(view, cursor)
                self.check_pages(view)
                self.check_pages(view, **self.next_filters())
                self.check_export(view)
            self.check_fields(self.cursors[0])
            for output in self.changed:
                self.check_history(output)

        @invariant()
        def followers_have_the_model(self) -> None:
            """Each second step, because a follower also needs to miss some changes."""
            self.step += 1
            for view, reader in self.readers.items():
                if self.step % 2:
                    reader.catch_up(limit=1 + self.step % 5, applied=1 + self.step % 3)
                    assert reader.state() == sorted(map(without_scrape, self.model.page(view)))

        def next_filters(self) -> dict[str, str]:
            """Returns another combination of filters each time."""
            self.chosen = (self.chosen + 1) % 8
            filters = {"job_id": "a", "url": "https://shop.example/x", "country": "Germany"}
            return {name: filters[name] for n, name in enumerate(filters) if self.chosen >> n & 1}

        def check_pages(self, view: View, **filters: Any) -> None:
            items = self.client.items("group", limit=3, **filters, **in_view(view))
            assert [text_of(item) for item in items] == self.model.page(view, **filters)

        def check_fields(self, cursor: int) -> None:
            page = read_feed(self.client, "full", cursor, diff="true")
            for change in page["changes"] if page is not None else ():
                assert ("fields" in change) == (change["change"] == "update")
                if "fields" in change:
                    self.check_update(change, cursor)

        def check_update(self, change: dict[str, Any], cursor: int) -> None:
            output = self.model.outputs[change["output_id"]]
            older, fields = self.model.fields_since(output, cursor)
            certain, _ = self.model.certain_and_possible(output, clock())
            if change["fields"] is None:
                assert older not in [output.current, *output.earlier[:certain]]
            else:
                assert sorted_fields(change)["fields"] == fields

        def check_export(self, view: View) -> None:
            answer = self.client.get("/v1/exports/group", params=in_view(view))
            items = [json.loads(line) for line in answer.text.splitlines()]
            assert [text_of(item) for item in items] == self.model.page(view)
            assert int(answer.headers["Gleanery-Cursor"]) == self.model.last_seq

        def check_feed(self, view: View, cursor: int) -> None:
            page = read_feed(self.client, view, cursor)
            if self.model.is_expired(view, cursor):
                assert page is None
                return
            assert page is not None
            changes = [as_change(change) for change in page["changes"]]
            if cursor > 0 or not self.model.purged[view]:
                assert changes == self.model.feed(view, cursor)
            assert page["cursor"] == self.model.last_seq
            if cursor == 0:
                replica: dict[str, str] = {}
                apply(replica, changes)
                assert list(replica.values()) == self.model.page(view)

        @rule()
        def read_all_versions(self) -> None:
            for output in self.model.outputs.values():
                shown = self.check_history(output)
                for position in self.positions(output):
                    self.check_version(output, position, shown)

        def check_history(self, output: Output) -> list[Version]:
            """Returns the versions that are kept."""
            certain, possible = self.model.certain_and_possible(output, clock())
            answer = self.client.get(f"/v1/outputs/group/{output.output_id}/history")
            if answer.status_code == 404:
                assert output.current is None
                assert not certain
                return []
            assert answer.status_code == 200, answer.text
            elements = map(sorted_fields, answer.json()["versions"])
            found = [self.model.without_guess(output, element) for element in elements]
            counts = range(certain, possible + 1)
            expected = [self.model.history(output, count) for count in counts]
            assert found in expected
            return output.versions()[: counts[expected.index(found)] + (output.current is not None)]

        def positions(self, output: Output) -> set[int]:
            """Returns the known cursors, and positions around each change of the output."""
            positions = {*self.cursors, self.model.last_seq}
            for version in output.versions():
                for seq in (version.seq, version.last_seq, version.replaced_seq):
                    positions |= {seq, seq - 1} if seq else set()
            return positions

        def check_version(self, output: Output, position: int, shown: list[Version]) -> None:
            version, text = self.model.item_at(output, position)
            path = f"/v1/outputs/group/{output.output_id}"
            time = position if position % 2 or not position else date_time_of(position)
            answer = self.client.get(path, params={"at": time})
            if version in shown:
                assert answer.status_code == 200, answer.text
                assert text_of(answer.json()) == text
            elif version is None:
                assert answer.status_code == 404 or len(shown) < len(output.versions())
            elif answer.status_code not in (404, 410):
                assert text_of(answer.json()) == text

        def teardown(self) -> None:
            self.client.close()

    return Agreement


def test_the_service_agrees_with_the_model(service: Service, clock: Clock) -> None:
    run_state_machine_as_test(
        machine(service, clock),
        settings=settings(
            max_examples=EXAMPLES or 4,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not EXAMPLES,
            # A smaller example is worth minutes only in the long run.
            phases=(Phase.generate, *([Phase.shrink] if EXAMPLES else [])),
            suppress_health_check=list(HealthCheck),
        ),
    )
