"""Changed fields of outputs, applied to a copy."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from typing import Any

from gleanery.service.foundation.values import json_text

STEP = re.compile(r'\.?([^.\[\]"\\$\s][^.\[\]"\\\s]*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')


def steps(path: str) -> list[str | int]:
    """The names and indexes of a path; the first one is the member of the output."""
    start: list[str | int] = ["data"]
    if path.startswith("$."):
        start, path = [], path[2:]
    found = [*STEP.finditer(path)]
    assert "".join(match[0] for match in found) == path
    return start + [_step(*match.groups()) for match in found]


def _step(name: str | None, index: str | None, quoted: str | None) -> str | int:
    if quoted is not None:
        return str(json.loads(quoted))
    return name if name is not None else int(index or 0)


def apply(changes: Sequence[Any], before: dict[str, Any]) -> dict[str, Any]:
    """Makes the changes, after it has checked what was there before them."""
    result = copy.deepcopy(before)
    for change in changes:
        *parents, last = steps(change["path"])
        target: Any = result
        for step in parents:
            target = target[step]
        if change["kind"] == "added":
            assert last not in target
        else:
            assert same(target[last], change["before"])
        if change["kind"] == "removed":
            del target[last]
        else:
            target[last] = change["after"]
    return result


def same(one: Any, other: Any) -> bool:
    return json_text.canonical(one) == json_text.canonical(other)
