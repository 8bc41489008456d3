"""Bare items over HTTP, on both engines: each element is the data of an output."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.targets import check_items
from tests.support.outputs import output
from tests.support.service import Client

MEDIA_TYPES = {"array": "application/json", "lines": "application/x-ndjson"}
BOTH = pytest.mark.parametrize("form", MEDIA_TYPES)
ITEMS = "job_id=shop&url_field=url"
KEYED = f"{ITEMS}&key_field=sku"


def item(number: int, **members: Any) -> dict[str, Any]:
    return {"url": f"https://shop.example/{number}", "sku": number, "price": 1.5, **members}


def send(
    client: Client, form: str, query: str, *items: Any, group: str = "group", **headers: str
) -> httpx2.Response:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in items]
    text = f"[{','.join(texts)}]" if form == "array" else "\n".join(texts)
    kind = {"Content-Type": MEDIA_TYPES[form]}
    return client.post(f"/v1/outputs/{group}?{query}", content=text, headers=kind | headers)


def counts(answer: httpx2.Response) -> tuple[int, int, int]:
    assert answer.status_code == 200, answer.text
    stored = answer.json()
    return stored["created"], stored["updated"], stored["unchanged"]


def problems(answer: httpx2.Response) -> list[tuple[list[str], str]]:
    assert answer.status_code == 422, answer.text
    return [(detail["loc"], detail["type"]) for detail in answer.json()["detail"]]


@BOTH
@pytest.mark.parametrize(("query", "key"), [(ITEMS, None), (KEYED, "1")])
def test_an_item_is_the_data_of_an_output(
    client: Client, form: str, query: str, key: str | None
) -> None:
    sent = item(1, nested={"b": [1.0, None], "a": "ü"})
    assert counts(send(client, form, query, sent)) == (1, 0, 0)
    usual = {"job_id": "shop", "source_url": sent["url"], "data": sent, "key": key}
    assert client.store("group", usual)["unchanged"] == 1
    [stored] = client.items("group")
    assert (stored["data"], stored["source_url"]) == (sent, sent["url"])
    assert (stored["root_job_id"], stored["tags"], stored["files"]) == ("shop", {}, [])


def test_an_integer_and_its_digits_are_the_same_key(client: Client) -> None:
    for sku in (7, "7"):
        send(client, "array", KEYED, item(1, sku=sku))
    [stored] = client.items("group")
    assert stored["data"]["sku"] == "7"
    assert counts(send(client, "array", KEYED, item(1, sku=10**30))) == (1, 0, 0)
    assert counts(send(client, "array", KEYED, item(1, sku=str(10**30)))) == (0, 1, 0)


INVALID: list[tuple[Any, list[str], str]] = [
    ({"sku": 1}, ["url"], "missing"),
    *((item(1, url=url), ["url"], "item_url") for url in (None, "", "a\0", ["https://a"])),
    ({"url": "https://a"}, ["sku"], "missing"),
    *((item(1, sku=sku), ["sku"], "item_key") for sku in (None, "", 1.5, 2.0, True, [1], {})),
    ("[1]", [], "dict_type"),
    ("1", [], "dict_type"),
    ('{"url": "https://a", "sku": 1, "x": "\\ud800"}', [], "json"),
]


@BOTH
def test_an_error_names_the_item_and_the_member(client: Client, form: str) -> None:
    for invalid, loc, type_ in INVALID:
        first, *_ = problems(send(client, form, KEYED, item(0), invalid, item(2)))
        assert first == (["body", "1", *loc], type_)
    assert client.get("/v1/outputs/group").status_code == 404


def test_all_errors_of_an_array_are_listed(client: Client) -> None:
    items = [item(0), {}, item(2, sku=None), item(3, url=5), []]
    assert [loc for loc, _ in problems(send(client, "array", KEYED, *items))] == [
        ["body", "1", "url"],
        ["body", "2", "sku"],
        ["body", "3", "url"],
        ["body", "4"],
    ]
    many = [{}] * 500
    assert len(problems(send(client, "array", KEYED, *many))) == 100


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("job_id=shop", ["url_field"]),
        ("url_field=url", ["job_id"]),
        ("key_field=sku", ["job_id", "url_field"]),
        ("job_id=shop&key_field=sku", ["url_field"]),
        ("url_field=url&on_error=skip", ["job_id"]),
    ],
)
def test_the_parameters_of_items_belong_together(
    client: Client, query: str, missing: list[str]
) -> None:
    answer = send(client, "array", query, item(1))
    assert [loc for loc, _ in problems(answer)] == [["query", name] for name in missing]
    assert "bare items need job_id and url_field" in answer.json()["detail"][0]["msg"]


@BOTH
def test_an_item_without_the_parameters_gets_advice(client: Client, form: str) -> None:
    answer = send(client, form, "", item(1))
    assert problems(answer)[0] == (["body", "0"], "bare_item")
    assert "add the parameters job_id and url_field" in answer.json()["detail"][0]["msg"]


@BOTH
def test_a_compressed_body_without_its_header_gets_advice(client: Client, form: str) -> None:
    kind = {"Content-Type": MEDIA_TYPES[form]}
    body = gzip.compress(json.dumps(item(1)).encode())
    answer = client.post(f"/v1/outputs/group?{ITEMS}", content=body, headers=kind)
    assert "Content-Encoding: gzip" in answer.json()["detail"][0]["msg"]


@pytest.mark.parametrize(
    "query", ["job_id=&url_field=url", "job_id=shop&url_field=", f"{ITEMS}&key_field="]
)
def test_a_parameter_of_items_is_not_empty(client: Client, query: str) -> None:
    assert len(problems(send(client, "array", query, item(1)))) == 1


def test_the_rules_of_the_group_apply(client: Client) -> None:
    schema = {"properties": {"price": {"type": "number"}}}
    client.put("/v1/groups/group", json={"key_fields": ["sku"], "schema": schema})
    send(client, "array", ITEMS, item(1), item(2, sku=1))
    assert [stored["source_url"] for stored in client.items("group")] == ["https://shop.example/2"]
    assert counts(send(client, "array", f"{ITEMS}&key_field=url", item(1), item(2))) == (2, 0, 0)
    answer = send(client, "lines", ITEMS, item(3), item(4, price="free"))
    assert problems(answer)[0] == (["body", "1", "data", "price"], "schema")


# --- resends --------------------------------------------------------------------------------------


@pytest.mark.thorough
@BOTH
@pytest.mark.parametrize("query", [ITEMS, KEYED, f"{KEYED}&on_error=skip"])
def test_the_same_file_twice_is_unchanged(client: Client, form: str, query: str) -> None:
    items = [item(number) for number in range(1200)]
    assert counts(send(client, form, query, *items)) == (1200, 0, 0)
    assert counts(send(client, form, query, *items)) == (0, 0, 1200)
    items[700]["price"] = 2.5
    assert counts(send(client, form, query, *items)) == (0, 1, 1199)


def test_the_same_bytes_under_another_mapping_are_other_outputs(client: Client) -> None:
    """The same text as an output and as an item: the same identity, and another value."""
    texts = [output(number) for number in range(20)]
    assert counts(send(client, "array", "", *texts)) == (20, 0, 0)
    as_items = "job_id=job&url_field=source_url"
    assert counts(send(client, "array", as_items, *texts)) == (0, 20, 0)
    assert client.items("group")[0]["data"] == texts[0]
    assert counts(send(client, "array", as_items, *texts)) == (0, 0, 20)
    assert counts(send(client, "array", "", *texts)) == (0, 20, 0)


def test_a_repeated_request_gets_the_first_response(client: Client) -> None:
    key = {"Idempotency-Key": "k"}
    first = send(client, "lines", KEYED, item(1), item(2), **key)
    again = send(client, "lines", KEYED, item(1), item(2), **key)
    assert (again.status_code, again.content) == (200, first.content)
    assert send(client, "lines", ITEMS, item(1), item(2), **key).status_code == 409


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.thorough
@BOTH
def test_large_items_are_stored_like_small_ones(client: Client, form: str) -> None:
    large = item(9, text="x" * 5_000_000)
    assert counts(send(client, form, KEYED, item(1), large)) == (2, 0, 0)
    assert counts(send(client, form, KEYED, item(1), large)) == (0, 0, 2)
    assert counts(send(client, form, KEYED, item(1))) == (0, 0, 1)
    first, *_ = problems(send(client, form, KEYED, large, item(2, sku=None)))
    assert first == (["body", "1", "sku"], "item_key")
    assert client.items("group", job_id="shop")[1]["data"] == large


@pytest.mark.parametrize(("form", "depth"), [("array", 97), ("lines", 98)])
def test_an_item_is_nested_as_deep_as_the_data_of_an_output(
    client: Client, form: str, depth: int
) -> None:
    deepest = item(1, x=json.loads("[" * depth + "]" * depth))
    assert counts(send(client, form, ITEMS, deepest)) == (1, 0, 0)
    usual = {"job_id": "shop", "source_url": deepest["url"], "data": deepest}
    assert counts(send(client, form, "", usual)) == (0, 0, 1)
    deeper = json.dumps(item(1, x="@")).replace('"@"', "[" * (depth + 1) + "]" * (depth + 1))
    assert problems(send(client, form, ITEMS, deeper))[0] == (["body", "0"], "json")


# --- curl -----------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_uploads_the_file_of_a_scraper(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text("".join(json.dumps(item(number)) + "\n" for number in range(3)))
    url = f"{client.base_url}/v1/outputs/group?{KEYED}"

    def curl(*options: str) -> Any:
        token = f"Authorization: Bearer {client.token}"
        command = ["curl", "--silent", "-T", str(file), "-H", token, *options, url]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    ndjson = ("-H", "Content-Type: application/x-ndjson")
    expected = {"created": 3, "updated": 0, "unchanged": 0, "lines": 3}
    assert curl("-X", "POST", *ndjson) == expected
    assert curl("-X", "POST", *ndjson)["unchanged"] == 3
    [untyped] = curl("-X", "POST")["detail"]
    assert untyped["loc"] == ["header", "content-type"]
    assert "-H 'Content-Type: application/x-ndjson'" in untyped["msg"]
    [put] = curl(*ndjson)["detail"]
    assert "add -X POST" in put["msg"]


# --- both ways of reading -------------------------------------------------------------------------

names = st.sampled_from(["u", "k", "x"])
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | numbers | st.text(max_size=5)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)
good = st.fixed_dictionaries({"u": st.text(min_size=1, max_size=4)}, optional={"k": values})


@pytest.mark.thorough
@settings(deadline=None)
@given(st.lists(good | st.dictionaries(names, values) | values, max_size=4), st.booleans())
def test_both_parsers_of_items_agree(items: list[Any], is_ascii: bool) -> None:
    check_items(json.dumps(items, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass"))
