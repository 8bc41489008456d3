"""Changed fields: the differences between two versions of an output.

A path without a prefix is inside ``data``. A path with the prefix ``$.`` names another member.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gleanery.service.foundation.values import json_text
from gleanery.service.resources.files.references import with_markers
from gleanery.service.resources.history.models import FieldChange

MAX_FIELDS = 100
"""The most changed fields of two versions.

If an object or array has more, it is one changed field as a whole.
"""
MAX_PATH_LENGTH = 1000
"""The longest path. If a member has a longer one, the object around it is the changed field."""
Item = dict[str, Any]
_ABSENT: Any = object()
_SCALARS = (str, int, float, bool, type(None))


def compare(before: Item, after: Item) -> list[FieldChange]:
    """Return the changed fields of two versions, without the approval."""
    data, tags = _compare_member("data", before, after), _compare_member("tags", before, after)
    rest = _compare_member("source_url", before, after) + _compare_files(before, after)
    if len(data) + len(tags) + len(rest) > MAX_FIELDS:
        data, tags = (
            [_change(f"$.{name}", before[name], after[name])] if changes else []
            for name, changes in (("data", data), ("tags", tags))
        )
    return data + tags + rest


def compare_approval(before: bool, after: bool) -> list[FieldChange]:
    """Return the change of the approval, if there is one."""
    return _differences("$.is_approved", before, after)


def _compare_member(name: str, before: Item, after: Item) -> list[FieldChange]:
    path = "" if name == "data" else f"$.{name}"
    return _differences(path, before[name], after[name])


def _compare_files(before: Item, after: Item) -> list[FieldChange]:
    """Compare the files without their dates: a file elsewhere has the date of each version."""
    old, new = (
        [{**file, "create_date": None} for file in item["files"]] for item in (before, after)
    )
    if not _differences("", old, new):
        return []
    return [_change("$.files", with_markers(before["files"]), with_markers(after["files"]))]


def _differences(path: str, before: Any, after: Any) -> list[FieldChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        inner = _members(before, after)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        inner = _elements(before, after)
    else:
        return [] if _is_equal(before, after) else [_change(path, before, after)]
    found: list[FieldChange] = []
    for part, old, new in inner:
        inner_path = _join(path, part)
        changes = _differences(inner_path or "", old, new)
        found += changes
        if len(found) > MAX_FIELDS or (changes and inner_path is None):
            return [_change(path or "$.data", before, after)]
    return found


_Part = str | int
"""The name of a member, or the index of an element."""


def _members(before: Item, after: Item) -> Iterator[tuple[_Part, Any, Any]]:
    for name in before | after:
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if _may_differ(old, new):
            yield name, old, new


def _elements(before: list[Any], after: list[Any]) -> Iterator[tuple[_Part, Any, Any]]:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if _may_differ(old, new):
            yield index, old, new


def _may_differ(before: Any, after: Any) -> bool:
    """Return False for most values that are equal, which then need no path."""
    return type(before) is not type(after) or type(before) not in _SCALARS or before != after


def _join(path: str, part: _Part) -> str | None:
    """Return the path of a member or an element; None if it is too long."""
    if isinstance(part, int):
        return json_text.path_of_element(path, part)
    if len(path) + len(part) > MAX_PATH_LENGTH:
        return None
    return json_text.path_of_member(path, part)


def _is_equal(before: Any, after: Any) -> bool:
    """Compare two values that are not both objects, and not both arrays of one length."""
    if isinstance(before, str) or isinstance(after, str):
        return bool(before == after)
    if before is _ABSENT or after is _ABSENT:
        return False
    if isinstance(before, dict | list) or isinstance(after, dict | list):
        return False
    return json_text.canonical(before) == json_text.canonical(after)


def _change(path: str, before: Any, after: Any) -> FieldChange:
    if before is _ABSENT:
        return FieldChange(path=path, kind="added", before=None, after=after)
    if after is _ABSENT:
        return FieldChange(path=path, kind="removed", before=before, after=None)
    return FieldChange(path=path, kind="changed", before=before, after=after)
