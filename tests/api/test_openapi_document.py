"""What generators need of the OpenAPI document: types, formats, media types, tags, stable names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from gleanery.common.settings import Settings
from gleanery.service.api import openapi
from gleanery.service.application import RESOURCES
from tests.support.service import Client

DOCUMENT = openapi.document(RESOURCES, Settings())
SCHEMAS = DOCUMENT["components"]["schemas"]
ROWS = {
    row["operationId"]: row for methods in DOCUMENT["paths"].values() for row in methods.values()
}
OPERATION_IDS = {  # names of functions in generated clients: they never change
    *("set_cookies", "get_cookies", "delete_cookies"),
    *("set_local_storage", "get_local_storage", "delete_local_storage"),
    *("get_latest_reviews", "add_review", "get_audit"),
    *("get_outputs", "store_outputs", "delete_output", "get_changes"),
    *("get_groups", "get_group", "set_group", "delete_group", "delete_job"),
    *("store_file", "find_file", "get_file", "get_blob"),
    *("healthz", "readyz", "metrics", "openapi", "docs"),
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
BYTES = "application/octet-stream"


def objects(value: Any, *left_out: str) -> Iterator[dict[str, Any]]:
    """Every object of the document, except inside examples and members with these names."""
    if isinstance(value, list):
        for element in value:
            yield from objects(element, *left_out)
    if isinstance(value, dict):
        yield value
        for name, member in value.items():
            if name not in ("example", "examples", *left_out):
                yield from objects(member, *left_out)


def kinds(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a schema, without null."""
    choices = schema.get("anyOf", [schema])
    return [choice for choice in choices if choice != {"type": "null"}]


def test_no_default_is_null() -> None:
    """A generator takes it for a required member, or for the type null."""
    assert [found for found in objects(DOCUMENT) if found.get("default", 0) is None] == []


def test_every_default_fits_its_schema() -> None:
    """A generator writes the default into its code, as a value of the declared type."""
    parameters = [found for row in ROWS.values() for found in row.get("parameters", ())]
    declared = [parameter["schema"] for parameter in parameters] + [
        member for schema in SCHEMAS.values() for member in schema.get("properties", {}).values()
    ]
    defaults = [schema for schema in declared if "default" in schema]
    assert len(defaults) > 10
    for schema in defaults:
        root = {"components": DOCUMENT["components"], **schema}
        assert jsonschema_rs.is_valid(root, schema["default"]), schema


def test_every_name_of_a_member_is_restricted() -> None:
    """With patternProperties alone, a name that fits no pattern may have any value."""
    for schema in objects(DOCUMENT, "example", "examples"):
        assert "additionalProperties" in schema or "patternProperties" not in schema


def test_every_enumeration_consists_of_strings() -> None:
    """openapi-python-client leaves out an operation that sends or gets another enumeration."""
    outside_conditions = objects(DOCUMENT, "then")  # generators ignore this keyword
    enumerations = [found["enum"] for found in outside_conditions if "enum" in found]
    assert len(enumerations) > 5
    for values in enumerations:
        assert all(isinstance(value, str) for value in values), values


def test_every_member_has_a_type() -> None:
    for name, schema in SCHEMAS.items():
        for member, found in schema.get("properties", {}).items():
            for kind in kinds(found):
                assert "type" in kind or "$ref" in kind, (name, member)
    assert SCHEMAS["CookieIn"]["properties"]["domain"]["type"] == "string"
    assert "anyOf" not in SCHEMAS["CookieIn"]["properties"]["domain"]


def test_every_date_has_its_format() -> None:
    dates = {
        f"{name}.{member}": kinds(found)[0]
        for name, schema in SCHEMAS.items()
        for member, found in schema.get("properties", {}).items()
        if member.endswith("date") or member == "last_change"
    } | {"expires": kinds(SCHEMAS["LocalStorageOut"]["properties"]["expires"])[0]}
    assert len(dates) > 10
    for name, schema in dates.items():
        assert schema == {"type": "string", "format": "date-time"}, name


def test_bytes_are_an_octet_stream() -> None:
    upload = ROWS["store_file"]["requestBody"]["content"]
    assert list(upload) == [BYTES, "multipart/form-data"]
    assert upload[BYTES]["schema"] == {"type": "string", "format": "binary"}
    for name in ("get_file", "get_blob"):
        for status in ("200", "206"):
            media = list(ROWS[name]["responses"][status]["content"])
            assert media == [BYTES, "*/*"]  # the second is the file's own


def test_ndjson_has_its_own_body_and_response() -> None:
    row = ROWS["store_outputs"]
    body = row["requestBody"]["content"]
    assert list(body) == ["application/json", "application/x-ndjson"]
    assert body["application/x-ndjson"]["schema"]["type"] == "string"
    choices = row["responses"]["200"]["content"]["application/json"]["schema"]["oneOf"]
    assert [choice["$ref"].rpartition("/")[2] for choice in choices] == [
        *("IngestResult", "NdjsonResult")
    ]
    assert "results" not in SCHEMAS["NdjsonResult"]["properties"]
    assert "lines" in SCHEMAS["NdjsonResult"]["required"]


def test_tags_are_declared_and_outputs_come_first() -> None:
    declared = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert next(iter(declared)) == "outputs"
    assert all(declared.values())
    assert {tag for row in ROWS.values() for tag in row["tags"]} == declared.keys()
    assert ROWS["get_blob"]["tags"] == ["files"]


def test_license_and_contact_are_declared() -> None:
    assert DOCUMENT["info"]["license"] == {"name": "MIT License", "identifier": "MIT"}
    assert DOCUMENT["info"]["contact"]


def test_operation_ids_never_change() -> None:
    assert ROWS.keys() >= OPERATION_IDS


def test_error_responses_are_shared() -> None:
    for row in ROWS.values():
        for status, response in row["responses"].items():
            if int(status) >= 400:
                assert response == {"$ref": f"#/components/responses/Error{status}"}


def test_every_schema_is_one_of_json_schema_2020_12() -> None:
    for schema in SCHEMAS.values():
        jsonschema_rs.meta.validate({"$schema": DIALECT, **schema})


@pytest.mark.parametrize("cookie", [{}, {"expires": "2030-01-01T00:00:00Z", "sameSite": "Lax"}])
def test_a_minimal_cookie_is_valid_and_stored(client: Client, cookie: dict[str, Any]) -> None:
    minimal = {"domain": "shop.example.com", "name": "a", "value": "b"} | cookie
    root = {"components": DOCUMENT["components"], "$ref": "#/components/schemas/CookieIn"}
    jsonschema_rs.Draft202012Validator(root, validate_formats=True).validate(minimal)
    assert client.post("/v1/cookies", json=[minimal]).json()["created"] == 1


def test_a_head_that_is_too_large_gets_the_documented_error(client: Client) -> None:
    answer = client.get("/healthz", headers={"X-Large": "a" * 70_000})
    assert answer.status_code == 431
    [content] = DOCUMENT["components"]["responses"]["Error431"]["content"].values()
    assert answer.json() == content["example"]
