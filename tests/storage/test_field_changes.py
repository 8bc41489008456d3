"""Changed fields between two versions of an output: properties and examples."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gleanery.service.foundation.values import json_text
from gleanery.service.resources.history.field_changes import MAX_FIELDS, compare
from tests.support.fields import apply, same

NAMES = st.sampled_from(
    ["a", "b", "price", "a.b", "a[0]", '"', "", "$", "$.tags", "x y", "ü", "\\"]
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**23)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=3) | st.sampled_from([1, 1.0, "1"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)


def item(data: Any, tags: Any = None, **members: Any) -> dict[str, Any]:
    made = {"source_url": "https://shop.example/1", "data": data, "tags": tags or {}, "files": []}
    return made | members


@pytest.mark.thorough
@given(OBJECTS, OBJECTS)
@settings(max_examples=100, deadline=None)
def test_the_changes_lead_from_one_version_to_the_other(data: Any, new_data: Any) -> None:
    before, after = item(data, new_data), item(new_data, data, source_url="https://shop.example/2")
    changes = compare(before, after)
    assert same(apply(changes, before), after)
    assert len({change["path"] for change in changes}) == len(changes)
    for change in changes:
        assert not same(change["before"], change["after"]) or change["kind"] != "changed"


@pytest.mark.thorough
@given(OBJECTS)
@settings(max_examples=50, deadline=None)
def test_equal_versions_have_no_changes(data: Any) -> None:
    assert compare(item(data), item(json.loads(json_text.canonical(data)))) == []


@pytest.mark.parametrize(
    ("before", "after", "path", "kind"),
    [
        ({"price": 1}, {"price": 2}, "price", "changed"),
        ({"price": 1}, {"price": True}, "price", "changed"),
        ({"price": 1}, {"price": "1"}, "price", "changed"),
        ({"price": 1}, {"price": None}, "price", "changed"),
        ({"price": 1}, {}, "price", "removed"),
        ({}, {"price": None}, "price", "added"),
        ({"offer": {"price": 1}}, {"offer": {"price": 2}}, "offer.price", "changed"),
        ({"images": [1, 2]}, {"images": [3, 2]}, "images[0]", "changed"),
        ({"images": [1, 2]}, {"images": [1]}, "images", "changed"),
        ({"a.b": 1}, {"a.b": 2}, '["a.b"]', "changed"),
        ({"a": {"b c": 1}}, {"a": {"b c": 2}}, 'a["b c"]', "changed"),
        ({"$": {"tags": 1}}, {"$": {"tags": 2}}, '["$"].tags', "changed"),
    ],
)
def test_a_field_has_a_path_and_a_kind(before: Any, after: Any, path: str, kind: str) -> None:
    [change] = compare(item(before), item(after))
    assert (change["path"], change["kind"]) == (path, kind)


def test_numbers_with_the_same_value_are_equal() -> None:
    assert compare(item({"a": 1, "b": 10**23}), item({"a": 1.0, "b": 1e23})) == []


def test_many_changed_fields_are_reported_as_the_object_around_them() -> None:
    many, other = ({str(n): n + add for n in range(MAX_FIELDS + 1)} for add in (0, 1))
    few = dict.fromkeys(map(str, range(MAX_FIELDS)), None)
    assert [change["path"] for change in compare(item({"a": many}), item({"a": other}))] == ["a"]
    assert [change["path"] for change in compare(item(many), item(other))] == ["$.data"]
    assert len(compare(item({}), item(few))) == MAX_FIELDS
    both = compare(item({}, {}), item(few, few))
    assert [change["path"] for change in both] == ["$.data", "$.tags"]


def test_files_change_as_a_whole_but_not_by_their_date() -> None:
    file = {"id": "1", "blob_url": "", "file_url": "https://x.example", "create_date": "2026"}
    before, again = item({}, files=[file]), item({}, files=[{**file, "create_date": "2027"}])
    assert compare(before, again) == []
    [change] = compare(before, item({}, files=[]))
    assert change == {"path": "$.files", "kind": "changed", "before": [file], "after": []}
