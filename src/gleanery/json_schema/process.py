"""The process that holds data against JSON SchemaValidator: each line it reads is a question.

A schema is its author's program: a few lines of it can ask for more time, memory or stack than
there is. Here they can end nothing but this process.
"""

from __future__ import annotations

import contextlib
import json
import math
import resource
import signal
import sys
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs

SECONDS = 5
"""How much processor time one question may take."""

_BYTES = 1024**3
_MAX_VIOLATIONS_PER_VALUE = 10  # of one output; its author mends the first before the hundredth
_MAX_DETAILED_VIOLATIONS = 100  # of all; of every further output only the first
_STEPS_TOLD = 12  # of the way to a fault,
_STEP_TOLD = 60  # and this much of a name on it
_SCHEMAS_KEPT = 8  # each may take a good part of the memory


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # it ends with the service, when its input does
        signal.signal(number, signal.SIG_IGN)
    _limit(resource.RLIMIT_AS, _BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    _say({"is_ready": True})
    for question in sys.stdin.buffer:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + SECONDS)
        _say(_answer(**json.loads(question)))


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _limit(kind: int, amount: int) -> None:
    with contextlib.suppress(ValueError, OSError):  # a system that knows no such limit
        resource.setrlimit(kind, (amount, resource.getrlimit(kind)[1]))


def _answer(schema: str, values: list[Any]) -> dict[str, Any]:
    try:
        validator = _validator(schema)
    except Exception:
        return {"is_schema": False, "violations": []}
    found: list[tuple[int, list[str], list[str]]] = []
    for place, value in enumerate(values):
        if not validator.is_valid(value):
            most = _MAX_VIOLATIONS_PER_VALUE if len(found) < _MAX_DETAILED_VIOLATIONS else 1
            for error in islice(validator.iter_errors(value), most):
                found.append((place, _told(error.instance_path), _told(error.schema_path)))
    return {"is_schema": True, "violations": found}


def _told(path: list[str | int]) -> list[str]:
    steps = [_shortened(str(step)) for step in path[:_STEPS_TOLD]]
    return steps if len(path) <= _STEPS_TOLD else [*steps, "…"]


def _shortened(step: str) -> str:
    return step if len(step) <= _STEP_TOLD else step[:_STEP_TOLD] + "…"


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _validator(schema: str) -> Any:
    return jsonschema_rs.Draft202012Validator(json.loads(schema), retriever=_refuse)


def _refuse(address: str) -> Any:
    """The service never fetches an address that it was given."""
    raise ValueError("references to elsewhere are not followed")


if __name__ == "__main__":
    main()
