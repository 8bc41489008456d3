"""Bodies in NDJSON for schemathesis, which knows no strategy for this media type."""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from hypothesis import strategies as st

NDJSON = "application/x-ndjson"
_OUTPUTS = st.fixed_dictionaries(
    {
        "job_id": st.sampled_from(["a", "b"]),
        "source_url": st.sampled_from(["https://a.example", "https://b.example"]),
        "data": st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)),
    }
)


def _lines(outputs: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(output) + "\n" for output in outputs).encode()


schemathesis.openapi.media_type(NDJSON, st.lists(_OUTPUTS, max_size=3).map(_lines))


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Removes the example: schemathesis can't send text of a media type with a strategy."""
    for methods in raw_schema["paths"].values():
        for row in methods.values():
            content = row.get("requestBody", {}).get("content", {})
            content.get(NDJSON, {}).pop("example", None)
