"""One output in the console over HTTP, on both engines: details, whole values and versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2
import pytest

from tests.support.console import ConsoleClient
from tests.support.files import upload
from tests.support.outputs import output
from tests.support.service import Client, Clock, Service

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


@pytest.fixture
def console(service: Service, client: Client) -> Iterator[ConsoleClient]:
    """A session of the client's token."""
    assert client.token is not None
    with closing(ConsoleClient(service.url, client.token)) as signed_in:
        yield signed_in


def store(client: Client, data: Any, **members: Any) -> str:
    """Stores a version of one output, and returns its id."""
    content = json.dumps([output(1, key="key", data=data, **members)])
    answer = client.post(
        "/v1/outputs/group", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 200, answer.text
    output_id: str = answer.json()["results"][0]["output_id"]
    return output_id


def approve(client: Client) -> None:
    review = {"job_id": "job", "status": "approved"}
    assert client.post("/v1/reviews/group", json=review).status_code == 200


def read(console: ConsoleClient, output_id: str, rest: str = "", **query: Any) -> Any:
    answer = console.get(f"/console/api/outputs/group/{output_id}{rest}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def read_value(console: ConsoleClient, output_id: str, path: str, **query: Any) -> httpx2.Response:
    url = f"/console/api/outputs/group/{output_id}/value"
    return console.get(url, params={"path": path, **query})


def test_a_long_name_is_truncated_and_can_be_read_as_a_whole(
    client: Client, console: ConsoleClient
) -> None:
    name = "n" * 3000
    output_id = store(client, {"a": 1, name: {"b/c": "text"}})
    _, [first, second], _ = read(console, output_id)["data"]
    assert first == ["a", ["n", "1"]]
    assert (second[0], second[2]) == (name[:2000], 3000)
    assert read_value(console, output_id, "/data/~#1", part="name").text == name
    assert read_value(console, output_id, "/data/~#1/b~1c").text == "text"
    assert read_value(console, output_id, "/data/~#1/~#0", part="name").text == "b/c"
    for path in ("/data/~#2", "/data/~#x", "/data/~#", "/data/~#" + "9" * 30, "/data/~#0/~#0"):
        assert read_value(console, output_id, path).status_code == 404, path


def test_the_details_have_every_digit_and_what_identifies_the_output(
    client: Client, console: ConsoleClient
) -> None:
    data = {"price": 12345678901234567890123, "ok": True, "none": None, "list": [1, "a"], "o": {}}
    output_id = store(client, data, tags={"country": "DE"})
    found = read(console, output_id)
    assert found["data"] == [
        "o",
        [
            ["price", ["n", "12345678901234567890123"]],
            ["ok", ["b", True]],
            ["none", ["z"]],
            ["list", ["a", [["n", "1"], ["s", "a"]], 2]],
            ["o", ["o", [], 0]],
        ],
        5,
    ]
    item = client.get(f"/v1/outputs/group/{output_id}").json()
    same = ("output_id", "source_url", "create_date", "update_date", "is_approved", "value_hash")
    assert {name: found[name] for name in same} == {name: item[name] for name in same}
    assert found["value_date"] == found["update_date"]
    assert (found["job_id"], found["key_hash"]) == ("job", item["key_hash"])
    assert found["tags"] == ["o", [["country", ["s", "DE"]]], 1]
    assert (found["files"], found["file_count"], found["approved_version"]) == ([], 0, None)


def test_an_approval_is_no_change_of_the_value(timed: Client, clock: Clock) -> None:
    output_id = store(timed, {"price": 12.5})
    clock.move(seconds=60)
    approve(timed)
    assert timed.token is not None
    with closing(ConsoleClient(str(timed.base_url), timed.token)) as console:
        found = read(console, output_id)
    assert found["create_date"] == found["value_date"] < found["update_date"]


def test_the_details_have_the_last_approved_version_if_it_differs(
    client: Client, console: ConsoleClient
) -> None:
    output_id = store(client, {"price": 12.5, "name": "mug", "old": 1})
    approve(client)
    assert read(console, output_id)["approved_version"] is None
    store(client, {"price": 12345678901234567890, "name": "mug", "new": None})
    found = read(console, output_id)
    assert found["is_approved"] is False
    assert found["approved_version"]["data"][1][0] == ["price", ["n", "12.5"]]
    changes = {change.pop("path"): change for change in found["approved_version"]["fields"]}
    assert changes == {
        "price": {
            "kind": "changed",
            "before": ["n", "12.5"],
            "after": ["n", "12345678901234567890"],
        },
        "old": {"kind": "removed", "before": ["n", "1"], "after": None},
        "new": {"kind": "added", "before": None, "after": ["z"]},
    }
    assert read_value(console, output_id, "/data/price", version="approved").text == "12.5"
    approve(client)
    assert read(console, output_id)["approved_version"] is None
    answer = read_value(console, output_id, "/data/price", version="approved")
    assert answer.status_code == 404


def test_the_details_of_a_large_output_are_bounded(client: Client, console: ConsoleClient) -> None:
    data = {f"{number} {'n' * 3000}": "x" * 5000 for number in range(90)}
    output_id = store(client, {"long": "ä" * 300_000, "many": list(range(20_000)), "texts": data})
    answer = console.get(f"/console/api/outputs/group/{output_id}")
    assert len(answer.content) < 1_000_000
    long, many, texts = (member[1] for member in answer.json()["data"][1])
    assert long == ["s", "ä" * 2000, 300_000]
    assert (len(many[1]), many[2]) == (100, 20_000)
    assert texts[2] == 90


def test_a_value_is_read_as_a_whole_and_as_plain_text(
    client: Client, console: ConsoleClient
) -> None:
    text = "<script>alert(1)</script>" * 20_000
    output_id = store(
        client, {"a/b~c": {"": [text]}, "number": 12345678901234567890.0, "object": {"a": [1.5]}}
    )
    answer = read_value(console, output_id, "/data/a~1b~0c//0")
    assert answer.text == text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert read_value(console, output_id, "/data/object").text == '{"a":[1.5]}'
    assert read_value(console, output_id, "/source_url").text == "https://shop.example/1"


@pytest.mark.parametrize(
    "path", ["/data/none", "/data/list/2", "/data/list/-1", "/files", "/data/x/1"]
)
def test_a_path_without_a_value_is_not_found(
    path: str, client: Client, console: ConsoleClient
) -> None:
    output_id = store(client, {"list": [1, 2], "x": "text"})
    answer = read_value(console, output_id, path)
    assert answer.status_code == 404
    assert answer.json()["detail"][0]["loc"] == ["query", "path"]


def test_a_value_of_many_megabytes_is_refused_with_advice(
    client: Client, console: ConsoleClient
) -> None:
    output_id = store(client, {"long": "x" * 6_000_000})
    answer = read_value(console, output_id, "/data/long")
    assert answer.status_code == 422
    [detail] = answer.json()["detail"]
    assert detail["msg"] == "The value has 6.0 MB, too much to show: download the output"


def test_the_history_has_changed_fields_and_pages(client: Client, console: ConsoleClient) -> None:
    for price in range(5):
        output_id = store(client, {"price": 10**20 + price, "text": "t" * 1000 * (price + 1)})
        if price == 2:
            approve(client)
    page = read(console, output_id, "/history", limit=3)
    assert [version["is_approved"] for version in page["versions"]] == [False, False, True]
    price, text = page["versions"][0]["fields"]
    assert price == {
        "path": "price",
        "kind": "changed",
        "before": ["n", "100000000000000000003"],
        "after": ["n", "100000000000000000004"],
    }
    assert text["after"] == ["s", "t" * 300, 5000, 4000 - 40]
    rest = read(console, output_id, "/history", limit=3, cursor=page["next_cursor"])
    assert [version["change"] for version in rest["versions"]] == ["update", "create"]
    assert rest["versions"][-1]["fields"] == []
    assert rest["next_cursor"] is None


def test_a_difference_far_inside_a_long_text_is_visible(
    client: Client, console: ConsoleClient
) -> None:
    start = "The same beginning. " * 500
    store(client, {"text": f"{start}cold{'.' * 1000}"})
    output_id = store(client, {"text": f"{start}warm{'.' * 1000}"})
    [field] = read(console, output_id, "/history")["versions"][0]["fields"]
    for side, word in (("before", "cold"), ("after", "warm")):
        assert field[side][1].startswith(f"{start[-40:]}{word}")
        assert (len(field[side][1]), *field[side][2:]) == (300, 11_004, len(start) - 40)


def test_a_deleted_output_has_only_its_history(client: Client, console: ConsoleClient) -> None:
    output_id = store(client, {"price": 1})
    client.delete(f"/v1/outputs/group/{output_id}")
    assert console.get(f"/console/api/outputs/group/{output_id}").status_code == 404
    deletion, version = read(console, output_id, "/history")["versions"]
    assert (deletion["change"], deletion["is_approved"], deletion["fields"]) == (
        "delete",
        None,
        None,
    )
    assert version["change"] == "create"


def test_files_are_described_and_never_linked_to_a_signature(
    client: Client, console: ConsoleClient
) -> None:
    stored = upload(client, PNG, filename="mug.png")
    external = {
        "field": "doc",
        "source_url": "https://shop.example/a.pdf",
        "file_type": "text/html",
    }
    output_id = store(client, {"a": 1}, files=[{"field": "image", "id": stored["id"]}, external])
    approve(client)
    store(client, {"a": 2}, files=[external])
    found = read(console, output_id)
    assert [file["is_stored"] for file in found["files"]] == [False]
    [_, change] = found["approved_version"]["fields"]
    assert change["path"] == "$.files"
    checksum = stored["file_checksum"][:8]
    assert change["before"][1][0] == ["s", f"mug.png ({checksum})"]
    assert found["files"][0]["file_url"] == "https://shop.example/a.pdf"
    store(client, {"a": 1}, files=[{"field": "image", "id": stored["id"]}])
    [file] = read(console, output_id)["files"]
    assert (file["name"], file["media_type"], file["size"]) == ("mug.png", "image/png", len(PNG))
    assert (file["id"], file["file_url"]) == (stored["id"], None)
    text = console.get(f"/console/api/outputs/group/{output_id}/history").text
    assert "signature=" not in text
    assert "\\u0001" not in text


def test_another_organization_and_another_scope_see_nothing(
    service: Service, client: Client, console: ConsoleClient
) -> None:
    output_id = store(client, {"price": 1})
    paths = [
        f"/console/api/outputs/group/{output_id}{rest}"
        for rest in ("", "/history", "/value?path=/data")
    ]
    other = service.client()
    store(other, {"price": 2}, source_url="https://other.example/")
    assert other.token is not None
    with closing(ConsoleClient(service.url, other.token)) as stranger:
        own = store(other, {"price": 3})
        assert read(stranger, own)["data"][1] == [["price", ["n", "3"]]]
        assert read(console, output_id)["data"][1] == [["price", ["n", "1"]]]
    token = service.token(scopes=frozenset({"reviews:read"}))
    with closing(ConsoleClient(service.url, token)) as reader:
        assert [reader.get(path).status_code for path in paths] == [403, 403, 403]
    with service.client() as nobody:
        assert nobody.token is not None
        with closing(ConsoleClient(service.url, nobody.token)) as stranger:
            assert [stranger.get(path).status_code for path in paths] == [404, 404, 404]
    assert [client.get(path).status_code for path in paths] == [401, 401, 401]
