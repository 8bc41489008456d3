"""The process that validates data against JSON Schema: each line on its input is one request.

A schema is a program that a client wrote: a few lines of it can need more time, memory or stack
than there is. If that happens here, it ends only this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs

_MAX_MEMORY_BYTES = 1024**3
_MAX_VIOLATIONS_PER_VALUE = 10  # a client fixes the first before it needs the hundredth
_MAX_DETAILED_VIOLATIONS = 100  # of all values; after that only the first of each value
_MAX_PATH_STEPS = 12
_MAX_STEP_LENGTH = 60
_CACHED_SCHEMAS = 8  # a compiled schema can need a large part of the memory


def main(cpu_seconds: float, niceness: int) -> None:
    """Serve requests. Each may use so much processor time; the signal of its end is SIGPROF."""
    os.nice(niceness)
    for number in (signal.SIGINT, signal.SIGTERM):  # the process ends when its input is closed
        signal.signal(number, signal.SIG_IGN)
    _limit(resource.RLIMIT_AS, _MAX_MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    _send({"is_ready": True})
    for request in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        response = _validate(**json.loads(request))
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(response)


def _send(response: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(response) + "\n")
    sys.stdout.flush()


def _limit(kind: int, amount: int) -> None:
    with contextlib.suppress(ValueError, OSError):  # the system does not support this limit
        resource.setrlimit(kind, (amount, resource.getrlimit(kind)[1]))


def _validate(schema: str, values: list[Any]) -> dict[str, Any]:
    try:
        validator = _compile(schema)
    except Exception as problem:
        path = getattr(problem, "instance_path", None) or _wrong_reference(schema, str(problem))
        return {"is_schema": False, "path": _shorten(path), "violations": []}
    found: list[tuple[int, list[str], list[str], str | None, list[str]]] = []
    for index, value in enumerate(values):
        if not validator.is_valid(value):
            limit = _MAX_VIOLATIONS_PER_VALUE if len(found) < _MAX_DETAILED_VIOLATIONS else 1
            for error in islice(validator.iter_errors(value), limit):
                paths = _shorten(error.instance_path), _shorten(error.schema_path)
                found.append((index, *paths, _missing_member(error), _expected_types(error)))
    return {"is_schema": True, "violations": found}


def _missing_member(error: jsonschema_rs.ValidationError) -> str | None:
    """Return the name of the member that the schema requires, if that is the violation."""
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return _shorten_step(kind.property)
    return None


def _expected_types(error: jsonschema_rs.ValidationError) -> list[str]:
    """Return the types that the schema allows, if the value has another one."""
    kind = error.kind
    return kind.types if isinstance(kind, jsonschema_rs.ValidationErrorKind.Type) else []


def _wrong_reference(schema: str, message: str) -> list[str | int]:
    """Return the path of the first reference that the message names; empty if there is none."""
    for path, target in _references(json.loads(schema), []):
        if (target.partition("#")[2] or target) in message:
            return path
    return []


def _references(part: Any, path: list[str | int]) -> Iterator[tuple[list[str | int], str]]:
    """Yield the path and the target of every reference in a part of a schema."""
    members = part.items() if isinstance(part, dict) else enumerate(part)
    for name, value in members:
        if name == "$ref" and isinstance(value, str):
            yield [*path, name], value
        elif isinstance(value, dict | list):
            yield from _references(value, [*path, name])


def _shorten(path: list[str | int]) -> list[str]:
    steps = [_shorten_step(str(step)) for step in path[:_MAX_PATH_STEPS]]
    return steps if len(path) <= _MAX_PATH_STEPS else [*steps, "…"]


def _shorten_step(step: str) -> str:
    return step if len(step) <= _MAX_STEP_LENGTH else step[:_MAX_STEP_LENGTH] + "…"


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _compile(schema: str) -> Any:
    return jsonschema_rs.Draft202012Validator(json.loads(schema), retriever=_reject_reference)


def _reject_reference(address: str) -> Any:
    """Rejects references to other documents: the service never fetches a client's URL."""
    raise ValueError("references to other documents are not allowed")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
