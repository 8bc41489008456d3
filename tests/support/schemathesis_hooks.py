"""What schemathesis cannot read from the OpenAPI document: NDJSON, and values of parameters."""

from __future__ import annotations

import json
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis.engine import observations

NDJSON = "application/x-ndjson"
ETAG = "If-Match"  # a current one is not in the document
BARE_ITEMS = (
    "job_id",
    "url_field",
    "key_field",
)  # OpenAPI can't say that the first needs the second
FITTING = ("url", "format")  # a format can need a URL
NOT_IN_VIEW = ("approved", "diff", "missing")  # OpenAPI can't say that view=approved excludes it
_OUTPUTS = st.fixed_dictionaries(
    {
        "job_id": st.sampled_from(["a", "b"]),
        "source_url": st.sampled_from(["https://a.example", "https://b.example"]),
        "data": st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)),
    }
)


def _lines(outputs: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(output) + "\n" for output in outputs).encode()


def _tolerate_any_url() -> None:
    """Lets schemathesis pass over a URL that Python cannot split, such as that of host ``[04c8]``.

    It would stop with an error: a cookie can have such a domain, and its ``url`` has it, too.
    """
    find = observations._same_origin_path

    def find_or_none(value: str, origin: tuple[str, str]) -> str | None:
        try:
            return find(value, origin)
        except ValueError:
            return None

    observations._same_origin_path = find_or_none


_tolerate_any_url()
schemathesis.openapi.media_type(NDJSON, st.lists(_OUTPUTS, max_size=3).map(_lines))


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Removes an example in text, which has no strategy, and what a request cannot guess."""
    row = raw_schema["paths"]["/v1/outputs/{group_id}"]["post"]
    del row["requestBody"]["content"][NDJSON]["example"]
    row["parameters"] = [found for found in row["parameters"] if found["name"] not in BARE_ITEMS]
    [on_error] = [found for found in row["parameters"] if found["name"] == "on_error"]
    on_error["schema"]["enum"].remove("skip")  # OpenAPI can't say that it accepts invalid items
    _describe_session_documents(raw_schema["paths"])
    _describe_leases(raw_schema)
    for methods in raw_schema["paths"].values():
        for operation in methods.values():
            given = operation.get("parameters", [])
            given[:] = [found for found in given if found["name"] != ETAG]
            if any(found["name"] == "view" for found in given):
                given[:] = [found for found in given if found["name"] not in NOT_IN_VIEW]


def _describe_session_documents(paths: dict[str, Any]) -> None:
    """Says which documents are valid, and removes parameters that must fit to the document."""
    for path, method in (("/v1/sessions/import", "post"), ("/v1/sessions/export", "get")):
        row = paths[path][method]
        row["parameters"] = [one for one in row["parameters"] if one["name"] not in FITTING]
    content = paths["/v1/sessions/import"]["post"]["requestBody"]["content"]
    content["application/json"]["schema"] = {"const": content["application/json"]["example"]}
    del content["text/plain"]


def _describe_leases(raw_schema: dict[str, Any]) -> None:
    """Does the same for the state in the body of a lease."""
    row = raw_schema["paths"]["/v1/sessions/leases/{lease_id}"]["put"]
    example = row["requestBody"]["content"]["application/json"]["example"]
    schemas = raw_schema["components"]["schemas"]
    schemas["LeaseChange"]["properties"]["state"] = {"const": example["state"]}
    for name in ("LeaseIn", "LeaseChange"):
        del schemas[name]["properties"]["format"]
    # It is refused if the lease has another site than the state.
    del schemas["LeaseChange"]["properties"]["replace"]
