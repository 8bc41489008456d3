"""Versions of outputs over HTTP, on both engines: the history, and an output as it was."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gleanery.service.resources.history import reading, version_pages
from gleanery.service.storage.group_lock import FIRST_SEQ
from tests.support.files import upload
from tests.support.outputs import output, read_changes
from tests.support.process import database_options, run_successfully
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until


def store(client: Client, data: Any, **members: Any) -> dict[str, Any]:
    """Stores a version of one output, and returns the output."""
    [result] = client.store("group", output(1, key="key", data=data, **members))["results"]
    return show(client, result["output_id"])


def show(client: Client, output_id: str, status: int = 200, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/outputs/group/{output_id}", params=query)
    assert answer.status_code == status, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def history(client: Client, output_id: str, **query: Any) -> list[dict[str, Any]]:
    """The versions of all pages."""
    answer = client.get(f"/v1/outputs/group/{output_id}/history", params=query)
    found: list[dict[str, Any]] = []
    while True:
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert page.keys() == {"metadata", "versions"}
        found += page["versions"]
        if page["metadata"]["next_url"] is None:
            assert page["metadata"]["next_cursor"] is None
            return found
        assert page["metadata"]["next_cursor"] == found[-1]["cursor"]
        answer = client.get(page["metadata"]["next_url"])


def review(client: Client, status: str) -> int:
    """Adds a review, and returns the position after it."""
    answer = client.post("/v1/reviews/group", json={"job_id": "job", "status": status})
    assert answer.status_code == 200, answer.text
    return end(client)


def end(client: Client) -> int:
    cursor: int = client.get("/v1/groups/group").json()["cursor"]
    return cursor


def changed(path: str, before: Any, after: Any) -> dict[str, Any]:
    return {"path": path, "kind": "changed", "before": before, "after": after}


def test_a_field_with_a_long_path_is_part_of_the_object_around_it(client: Client) -> None:
    """Otherwise each of its fields would repeat a name that can have megabytes."""
    name = "n" * 2000
    before, after = ({"same": 1, name: [[1], [2], price]} for price in (1, 2))
    first = store(client, {"outer": before, name: [[1]]})
    store(client, {"outer": after, name: [[1]]})
    [second, _] = history(client, first["output_id"])
    assert second["fields"] == [changed("outer", before, after)]
    store(client, {"outer": after, name: [[2]]})
    newest = history(client, first["output_id"])[0]
    assert [field["path"] for field in newest["fields"]] == ["$.data"]


def test_a_page_of_the_history_compares_a_limited_number_of_bytes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_pages, "_MAX_COMPARED_BYTES", 4000)
    monkeypatch.setattr(reading, "_STEP_BYTES", 1000)
    for price in range(10):
        first = store(client, {"price": price, "text": "x" * 1000})
    page = client.get(f"/v1/outputs/group/{first['output_id']}/history").json()
    assert 1 <= len(page["versions"]) < 5
    versions = history(client, first["output_id"])
    assert [version["fields"] for version in versions] == [
        *([changed("price", price - 1, price)] for price in range(9, 0, -1)),
        [],
    ]


def test_the_history_lists_versions_with_their_changed_fields(client: Client) -> None:
    first = store(client, {"price": 1, "offer": {"stock": 5}})
    created = end(client)
    second = store(client, {"price": 2, "offer": {"stock": 5}, "new": None})
    updated = end(client)
    store(client, {"price": 2, "offer": {"stock": 5}, "new": None})
    third = store(
        client, second["data"], tags={"country": "DE"}, source_url="https://other.example"
    )
    versions = history(client, first["output_id"])
    assert [version["change"] for version in versions] == ["update", "update", "create"]
    assert [version["cursor"] for version in versions] == [end(client), updated, created]
    assert versions[1] == {
        "change": "update",
        "cursor": updated,
        "version_date": second["update_date"],
        "replaced_date": third["update_date"],
        "key_hash": second["key_hash"],
        "value_hash": second["value_hash"],
        "is_approved": False,
        "fields": [
            changed("price", 1, 2),
            {"path": "new", "kind": "added", "before": None, "after": None},
        ],
    }
    assert versions[0]["replaced_date"] is None
    assert versions[0]["fields"] == [
        {"path": "$.tags.country", "kind": "added", "before": None, "after": "DE"},
        changed("$.source_url", first["source_url"], "https://other.example"),
    ]
    assert (versions[2]["fields"], versions[2]["value_hash"]) == ([], first["value_hash"])


def effects(service: Service, batches: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Stores the batches in a new organization, and returns everything that a client can see."""
    with service.client() as client:
        client.store("group", output(1, key="a", data={"value": 0}))
        review(client, "approved")
        sent = [client.store("group", *one)["results"] for one in batches]
        results = [result for one in sent for result in one]
        keys = [element["key"] for one in batches for element in one]
        fields = client.get("/v1/groups/group/fields").json()
        for run in fields["runs"]:
            del run["run_id"], run["start_date"], run["last_date"]
        group = client.get("/v1/groups/group").json()
        numbers = {key: result["id"] for key, result in zip(keys, results, strict=True)}
        assert [result["id"] for result in results] == [numbers[key] for key in keys]
        shown = {
            key: history(client, result["output_id"])
            for key, result in zip(keys, results, strict=True)
        }
        return {
            "changes": [result["change"] for result in results],
            "created": sorted(numbers, key=lambda key: numbers[key]),
            "histories": {
                key: [
                    {name: version[name] for name in ("change", "is_approved", "value_hash")}
                    for version in versions
                ]
                for key, versions in shown.items()
            },
            "versions": [
                (key, version["value_hash"])
                for key, version in sorted(
                    ((key, version) for key in shown for version in shown[key]),
                    key=lambda pair: pair[1]["cursor"],
                )
            ],
            "fields": fields,
            "view": [item["data"] for item in client.items("group", approved="true")],
            "order": [change["output"]["data"] for change in read_changes(client)["changes"]],
            "counts": (group["outputs"], group["countries"]),
            "jobs": [(job["outputs"], job["approved"]) for job in group["jobs"]],
        }


@pytest.mark.thorough
@pytest.mark.parametrize("is_large", [False, True])
def test_repetitions_in_a_batch_are_versions_like_those_of_several_requests(
    service: Service, is_large: bool
) -> None:
    """They give the same history, approved view, feed and statistics."""
    text = "x" * 400_000 if is_large else "x"  # a large batch is prepared in another process
    values = [("a", 1), ("b", 5), ("a", "2"), ("a", "2"), ("c", 1), ("a", 3.5), ("b", 4)]
    batch = [output(1, key=key, data={"value": value, key: text}) for key, value in values] * 4
    found = effects(service, [batch])
    assert found == effects(service, [[one] for one in batch])
    assert len(found["histories"]["a"]) > 8
    assert found["fields"]["fields"][-1]["kinds"] == {"integer": 2, "number": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_scattered_repetitions_have_the_effects_of_several_requests(
    service: Service, seed: int
) -> None:
    """Some are identical, some have only other tags, and some have other fields."""
    generator = random.Random(seed)
    batch = [
        output(
            1,
            key=key,
            job_id="other" if key in "gh" else "job",
            data={"value": generator.choice([1, 2.5]), generator.choice("uvw"): None},
            tags={"country": generator.choice(["DE", "FR"])},
        )
        for key in generator.choices("abcdefgh", k=60)
    ]
    for _ in range(20):
        index = generator.randrange(len(batch))
        batch.insert(index, batch[index])
    assert effects(service, [batch]) == effects(service, [[one] for one in batch])


def test_an_identical_repetition_in_a_batch_is_unchanged(client: Client) -> None:
    first, second = (output(1, key="key", data={"number": number}) for number in (1, 2))
    batch = [first, first, second, output(2), second, first]
    send = partial(
        client.post, "/v1/outputs/group", json=batch, headers={"Idempotency-Key": "batch"}
    )
    stored = send().json()
    assert send().json() == stored
    changes = ["created", "unchanged", "updated", "created", "unchanged", "updated"]
    assert [result["change"] for result in stored["results"]] == changes
    assert (stored["created"], stored["updated"], stored["unchanged"]) == (2, 2, 2)
    output_id = stored["results"][0]["output_id"]
    assert len(history(client, output_id)) == 3
    again = client.store("group", *[first] * 500)
    assert again["unchanged"] == 500
    assert len(history(client, output_id)) == 3


@pytest.mark.thorough
@pytest.mark.parametrize("is_first_repeated", [False, True])
def test_a_batch_adds_at_most_100_versions_of_an_output(
    client: Client, is_first_repeated: bool
) -> None:
    """The first and the last 99; all others have results like them."""
    client.put("/v1/groups/group", json={"keep_versions": 1000})
    numbers = [*range(150)]
    if is_first_repeated:
        numbers[-99] = numbers[0]
    batch = [output(1, key="key", data={"number": number}) for number in numbers]
    stored = client.store("group", *batch, output(2))
    changes = [result["change"] for result in stored["results"]]
    assert changes == ["created", *["updated"] * 149, "created"]
    output_id = stored["results"][0]["output_id"]
    versions = history(client, output_id)
    shown = [show(client, output_id, at=version["cursor"]) for version in versions]
    expected = [0, *numbers[-98:]] if is_first_repeated else [0, *numbers[-99:]]
    assert [item["data"]["number"] for item in shown[::-1]] == expected
    assert show(client, output_id)["data"] == {"number": 149}


def test_every_repetition_that_references_an_unknown_file_is_reported(client: Client) -> None:
    """Also if it would leave no version."""
    known, unknown = upload(client)["id"], "0" * 32
    batch = [
        output(1, key="key", data={"number": number}, files=[{"field": "f", "id": file}])
        for number in range(150)
        for file in [known if number % 50 else unknown]
    ]
    answer = client.post("/v1/outputs/group", json=batch)
    assert answer.status_code == 404, answer.text
    assert [detail["loc"][1] for detail in answer.json()["detail"]] == ["0", "50", "100"]
    answer = client.post("/v1/outputs/group?on_error=skip", json=batch)
    assert answer.status_code == 200, answer.text
    stored = answer.json()
    assert (stored["created"], stored["updated"], stored["skipped"]) == (1, 146, 3)
    assert [n for n, result in enumerate(stored["results"]) if result is None] == [0, 50, 100]


def test_a_deletion_is_part_of_the_history(client: Client) -> None:
    first = store(client, {"price": 1})
    output_id = first["output_id"]
    created = end(client)
    assert client.delete(f"/v1/outputs/group/{output_id}").status_code == 200
    deleted = end(client)
    assert [version["change"] for version in history(client, output_id)] == ["delete", "create"]
    second = store(client, {"price": 2})
    store(client, {"price": 3})
    versions = history(client, output_id)
    assert [version["change"] for version in versions] == ["update", "create", "delete", "create"]
    assert versions[2].keys() == {"change", "cursor", "version_date"}
    assert versions[2]["cursor"] == deleted
    assert [version.get("fields") for version in versions[1:]] == [[], None, []]
    assert history(client, output_id, limit=1) == versions
    assert show(client, output_id, at=created) == first
    assert show(client, output_id, at=deleted - 1) == first
    show(client, output_id, 404, at=created - 1)
    show(client, output_id, 404, at=deleted)
    show(client, output_id, 404, at=versions[1]["cursor"] - 1)
    assert show(client, output_id, at=versions[1]["cursor"]) == second


def test_an_output_is_shown_as_it_was(client: Client) -> None:
    shown, cursors = [], []
    for number in range(12):
        text = random.Random(number).randbytes(1000).hex()
        shown.append(store(client, {"number": number, "text": text[: number * 150]}))
        cursors.append(end(client))
    output_id = shown[0]["output_id"]
    for item, cursor in zip(shown, cursors, strict=True):
        assert show(client, output_id, at=cursor) == item
    show(client, output_id, 404, at=cursors[0] - 1)
    show(client, output_id, 404, at=0)
    assert show(client, output_id, at="2100-01-01") == shown[-1]
    assert show(client, output_id, at=shown[-1]["update_date"]) == shown[-1]
    assert show(client, output_id, 404, at="2019-12-31T23:59:59.5Z")["detail"][0]["loc"] == [
        "query",
        "at",
    ]
    versions = history(client, output_id, limit=5)
    assert [version["cursor"] for version in versions] == cursors[::-1]
    for wrong in ("yesterday", 2**63):
        assert show(client, output_id, 422, at=wrong)["detail"][0]["loc"] == ["query", "at"]
    [detail] = show(client, output_id, 422, at="2026-02-30")["detail"]
    assert detail["msg"] == "this date or time does not exist"


@pytest.mark.thorough
def test_a_cursor_of_a_client_that_catches_up_is_a_time(swept: Client, clock: Clock) -> None:
    first = store(swept, {"price": 1})
    clock.move(seconds=1)
    [_, deleted] = swept.store("group", output(2), output(3))["results"]
    swept.delete(f"/v1/outputs/group/{deleted['output_id']}")
    clock.move(seconds=31 * DAY)
    wait_until(lambda: read_changes(swept, limit=1)["cursor"] < FIRST_SEQ)  # a deletion is purged
    cursor = read_changes(swept, limit=1)["cursor"]
    store(swept, {"price": 2})
    assert show(swept, first["output_id"], at=cursor)["data"] == {"price": 1}


def test_approvals_make_no_version_but_are_shown(client: Client) -> None:
    first = store(client, {"price": 1})
    created = end(client)
    approved = review(client, "approved")
    kept = show(client, first["output_id"])
    store(client, {"price": 2})
    present, earlier = history(client, first["output_id"])
    assert (present["is_approved"], earlier["is_approved"]) == (False, True)
    assert show(client, first["output_id"], at=approved) == kept
    assert show(client, first["output_id"], at=created) == first
    review(client, "approved")
    before = show(client, first["output_id"], at=present["cursor"])
    assert (before["is_approved"], before["data"]) == (False, {"price": 2})


@pytest.mark.thorough
def test_only_some_versions_are_kept(timed: Client, clock: Clock) -> None:
    store(timed, {"number": 0})
    created = end(timed)
    items = [store(timed, {"number": number}) for number in range(1, 25)]
    output_id = items[0]["output_id"]
    versions = history(timed, output_id)
    assert len(versions) == 21
    assert (versions[-1]["change"], versions[-1]["fields"]) == ("update", None)
    assert show(timed, output_id, at=versions[-1]["cursor"])["data"] == {"number": 4}
    show(timed, output_id, 410, at=versions[-1]["cursor"] - 1)
    show(timed, output_id, 410, at=created)
    show(timed, output_id, 404, at=created - 1)
    clock.move(seconds=80 * DAY)
    store(timed, {"number": 25})
    clock.move(seconds=20 * DAY)
    store(timed, {"number": 26})
    assert [version["fields"] for version in history(timed, output_id)] == [
        [changed("number", 25, 26)],
        [changed("number", 24, 25)],
        None,
    ]


def test_the_last_approved_version_is_always_kept(client: Client) -> None:
    client.put("/v1/groups/group", json={"keep_versions": 1})
    first = store(client, {"price": 1})
    output_id, created = first["output_id"], end(client)
    approved = review(client, "approved")
    item = show(client, output_id)
    for price in (2, 3, 4):
        store(client, {"price": price})
    versions = history(client, output_id)
    assert [version["fields"] for version in versions] == [[changed("price", 3, 4)], None, []]
    assert versions[-1] == {
        "change": "create",
        "cursor": created,
        "version_date": first["update_date"],
        "replaced_date": None,
        "key_hash": first["key_hash"],
        "value_hash": first["value_hash"],
        "is_approved": True,
        "fields": [],
    }
    assert history(client, output_id, limit=1) == versions
    assert show(client, output_id, at=approved) == item
    assert show(client, output_id, at=created) == first
    show(client, output_id, 410, at=approved + 1)
    show(client, output_id, 404, at=created - 1)


@pytest.mark.thorough
def test_a_large_history_has_pages(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = replace(fresh_settings(engine, request, tmp_path), max_page_bytes=300_000)
    service = Service(settings)
    with service.client() as client:
        texts = [random.Random(number).randbytes(50_000).hex() for number in range(5)]
        items = [store(client, {"text": text}) for text in texts]
        output_id = items[0]["output_id"]
        page = client.get(f"/v1/outputs/group/{output_id}/history").json()
        assert len(page["versions"]) == 1
        versions = history(client, output_id)
        assert [version["value_hash"] for version in versions] == [
            item["value_hash"] for item in items[::-1]
        ]
        for item, version in zip(items[::-1], versions, strict=True):
            assert show(client, output_id, at=version["cursor"]) == item
    service.stop()


def test_changed_files_have_links(client: Client) -> None:
    old, new = upload(client, b"old"), upload(client, b"new")
    first = store(client, {"a": "\x01\x02\x03"}, files=[{"field": "a", "id": old["id"]}])
    created = end(client)
    store(client, {"a": "\x01\x02\x03"}, files=[{"field": "a", "id": new["id"]}])
    present, earlier = history(client, first["output_id"])
    [change] = present["fields"]
    assert change["path"] == "$.files"
    assert earlier["value_hash"] == present["value_hash"] == first["value_hash"]
    for [file], content in ((change["before"], b"old"), (change["after"], b"new")):
        assert client.get(file["blob_url"], headers={"Authorization": ""}).content == content
        assert client.get(file["file_url"]).content == content
    [file] = show(client, first["output_id"], at=created)["files"]
    assert client.get(file["blob_url"]).content == b"old"


@pytest.mark.thorough
def test_a_file_elsewhere_does_not_change_by_its_date(timed: Client, clock: Clock) -> None:
    files = [
        {"field": "a", "file_url": "https://files.example/\x01", "file_metadata": {"b": "\x02"}}
    ]
    first = store(timed, {"a": 1}, files=files)
    clock.move(seconds=60)
    store(timed, {"a": 2}, files=files)
    clock.move(seconds=60)
    store(timed, {"a": 2})
    newest, middle, _ = history(timed, first["output_id"])
    assert [change["path"] for change in middle["fields"]] == ["a"]
    [change] = newest["fields"]
    assert (change["path"], change["before"][0]["file_url"]) == ("$.files", files[0]["file_url"])


@pytest.mark.parametrize("suffix", ["/history", "?at=2100-01-01"])
def test_a_history_is_found_only_in_its_group(
    service: Service, client: Client, suffix: str
) -> None:
    output_id = store(client, {"price": 1})["output_id"]
    store(client, {"price": 2})
    client.store("other", output(1))
    with service.client() as stranger:
        stranger.store("group", output(1))
        for who, group in ((stranger, "group"), (client, "other"), (client, "missing")):
            answer = who.get(f"/v1/outputs/{group}/{output_id}{suffix}")
            assert answer.status_code == 404, answer.text
        assert client.get(f"/v1/outputs/group/{'0' * 32}{suffix}").status_code == 404
        assert client.get(f"/v1/outputs/group/unknown{suffix}").status_code == 404
    client.delete("/v1/groups/group")
    assert client.get(f"/v1/outputs/group/{output_id}{suffix}").status_code == 404


@pytest.mark.thorough
def test_a_restore_does_not_extend_the_last_approved_version(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    service = Service(settings)
    token = service.token()
    with service.client(token) as client:
        output_id = store(client, {"price": 1})["output_id"]
        created = end(client)
        review(client, "approved")
        client.put("/v1/groups/group", json={"keep_versions": 1})
        store(client, {"price": 2})
        expired = end(client)
        store(client, {"price": 3})
        store(client, {"price": 4})
    service.stop()
    run_successfully("restored", "--yes", *database_options(settings))
    service = Service(settings)
    with service.client(token) as client:
        assert show(client, output_id, at=created)["data"] == {"price": 1}
        show(client, output_id, 410, at=expired)
        store(client, {"price": 5})
        show(client, output_id, 410, at=expired)
    service.stop()
