"""What schemathesis cannot read from the OpenAPI document: NDJSON, and values of parameters."""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from hypothesis import strategies as st

NDJSON = "application/x-ndjson"
ETAG = "If-Match"  # a current one is not in the document
BARE_ITEMS = (
    "job_id",
    "url_field",
    "key_field",
)  # OpenAPI can't say that the first needs the second
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
    """Removes an example in text, which has no strategy, and what a request cannot guess."""
    row = raw_schema["paths"]["/v1/outputs/{group_id}"]["post"]
    del row["requestBody"]["content"][NDJSON]["example"]
    row["parameters"] = [found for found in row["parameters"] if found["name"] not in BARE_ITEMS]
    for methods in raw_schema["paths"].values():
        for operation in methods.values():
            given = operation.get("parameters", [])
            given[:] = [found for found in given if found["name"] != ETAG]
