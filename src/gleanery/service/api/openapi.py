"""The description of the API for clients: the OpenAPI 3.1 document and the reference page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import TypedDict

from gleanery.common.settings import Settings
from gleanery.common.version import __version__
from gleanery.service.api import binding
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.api.response import DESCRIPTIONS, HEADERS, example
from gleanery.service.foundation.field_types import Name
from gleanery.service.foundation.models import ErrorDetailOut
from gleanery.service.foundation.security import tokens

Document = dict[str, Any]
_REF = "#/components/schemas/{model}"
_ERROR_REF = "#/components/responses/Error{status}"
_NDJSON = binding.Media.NDJSON.value
_NDJSON_BODY: Document = {
    "type": "string",
    "contentMediaType": _NDJSON,
    "description": "One output per line. Each line is an `OutputIn`, or with `url_field` its data.",
}
_SUBJECT = "Outputs, reviews, files, cookies and local storage of web scraping."
_RULES_OF_JSON = (
    "If a JSON object has a member twice, its last value counts. Integers keep every digit. Other "
    "numbers are doubles. A number that is too large for a double, or too close to zero, is an "
    "error (`1e400`, `1e-400`)."
)
_FORM = "multipart/form-data"
_TEXT = "text/plain"
_BINARY: Document = {"type": "string", "format": "binary"}
_FORM_BODY: Document = {
    "type": "object",
    "properties": {"file": _BINARY},
    "required": ["file"],
    "additionalProperties": False,
}
_ETAG: Document = {
    "description": "Version of the whole list. It is the same on later pages.",
    "schema": {"type": "string"},
    "required": True,
}
_IF_MATCH: Document = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "ETag of a list of records. If the list has changed, nothing is stored.",
    "schema": {"type": "string", "pattern": '^(\\*|(W/)?"[!#-~]*")$'},
}
_IF_NONE_MATCH: Document = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETag of an earlier response. If the list has not changed, the response is 304.",
    "schema": {"type": "string"},
}
_NEXT_PAGE: Document = {
    "description": 'URL of the next page, as in RFC 8288: `<URL>; rel="next"`. The header is '
    "absent on the last page, and only there.",
    "schema": {"type": "string"},
}


class ErrorBody(TypedDict):
    """Body of every error response."""

    detail: list[ErrorDetailOut]


def document(resources: Sequence[Resource], settings: Settings) -> Document:
    """Return the document for a service with these settings."""
    operations = [operation for resource in resources for operation in resource.operations]
    schemas = _Schemas(operations)
    paths: Document = {}
    for operation in operations:
        if operation.response is None:
            continue  # a redirect for people
        row = _operation(operation, schemas, settings)
        paths.setdefault(operation.path, {})[operation.method.lower()] = row
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gleanery",
            "version": __version__,
            "description": f"{_SUBJECT}\n\n{_RULES_OF_JSON}",
            "contact": {"name": "The operator of this service"},
            "license": {"name": "MIT License", "identifier": "MIT"},
        },
        "servers": [{"url": settings.address}],
        "tags": [
            {"name": name, "description": text}
            for resource in resources
            for name, text in resource.tags.items()
        ],
        "paths": paths,
        "components": {
            "schemas": schemas.definitions,
            "responses": _error_responses(operations, schemas),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Scopes: "
                    + "; ".join(f"`{scope}`: {text}" for scope, text in tokens.SCOPES.items()),
                }
            },
        },
    }


def encoded(document: Document) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


class _SchemaGenerator(GenerateJsonSchema):
    """Leaves out what confuses generators: null as a default, and a title of each member."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if (key, value) != ("default", None)}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class _Schemas:
    """JSON Schemas of all types in the table; named types are shared under components."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        types: dict[str, tuple[Any, Any]] = {"error": (ErrorBody, "serialization")}
        for operation in operations:
            types[f"{operation.name} body"] = (operation.body, "validation")
            types[f"{operation.name} query"] = (operation.query, "validation")
            types[f"{operation.name} response"] = (operation.response, "serialization")
            types[f"{operation.name} ndjson"] = (operation.ndjson_response, "serialization")
        inputs = [
            (name, mode, TypeAdapter(type_))
            for name, (type_, mode) in types.items()
            if type_ is not None
        ]
        found, shared = TypeAdapter.json_schemas(
            inputs, ref_template=_REF, schema_generator=_SchemaGenerator
        )
        self._found = {name: schema for (name, _), schema in found.items()}
        self.definitions: Document = shared["$defs"]
        for operation in operations:
            if operation.ndjson_handler is not None:
                assert operation.ndjson_example is not None
                example = operation.ndjson_example.response
                self.definitions[operation.ndjson_response.__name__]["examples"] = [example]
        queries = {operation.query for operation in operations if operation.query is not None}
        self._queries = {  # parameters in the document, so not under components
            query: self.definitions.pop(query.__name__) for query in queries
        }

    def body(self, operation: Operation, settings: Settings) -> Document:
        schema = dict(self._found[f"{operation.name} body"])
        if schema.get("type") == "array":
            schema["maxItems"] = settings.max_records
        if operation.ndjson_handler is not None:  # a batch, and an object is a batch of one
            return {"oneOf": [schema, schema["items"]]}
        return schema

    def response(self, operation: Operation) -> Document:
        schema = dict(self._found[f"{operation.name} response"])
        if operation.ndjson_response is None:
            return schema
        return {"oneOf": [schema, self._found[f"{operation.name} ndjson"]]}

    def query(self, query: type[BaseModel]) -> Document:
        found = self._queries[query]["properties"]
        return {name: dict(schema) for name, schema in found.items()}

    def is_required(self, query: type[BaseModel], name: str) -> bool:
        return name in self._queries[query].get("required", ())

    @property
    def error(self) -> Document:
        return dict(self._found["error"])


def _operation(operation: Operation, schemas: _Schemas, settings: Settings) -> Document:
    example = operation.example
    assert example is not None, f"{operation.name} has no example"
    row: Document = {
        "operationId": operation.name,
        "summary": operation.title,
        "description": operation.description + _required_scopes(operation),
        "tags": [_tag(operation)],
        "security": [{"token": []}] if operation.scopes else [],
        "responses": _responses(operation, schemas, example),
    }
    if parameters := _parameters(operation, schemas, example):
        row["parameters"] = parameters
    if operation.body is not None:
        row["requestBody"] = {
            "required": operation.body is not bytes,  # a file may be empty
            "content": _body_content(operation, schemas, settings, example),
        }
    return row


def _required_scopes(operation: Operation) -> str:
    if not operation.scopes:
        return ""
    noun = "scope" if len(operation.scopes) == 1 else "scopes"
    names = " and ".join(f"`{scope}`" for scope in operation.scopes)
    return f"\n\nRequires the {noun} {names}."


def _tag(operation: Operation) -> str:
    _, version, *rest = operation.path.split("/")
    if version != "v1":
        return "service"
    return "files" if rest[0] == "blobs" else rest[0]


def _body_content(
    operation: Operation, schemas: _Schemas, settings: Settings, example: Example
) -> Document:
    """Return the media types of a body. An upload can have any type, as its description says."""
    if operation.body is bytes:
        return {
            "application/octet-stream": {"schema": _BINARY, "example": example.body},
            _FORM: {"schema": _FORM_BODY, "example": {"file": example.body}},
        }
    if operation.body is str:
        return {
            "application/json": {"schema": {}, "example": example.body},
            _TEXT: {"schema": {"type": "string"}},
        }
    schema = schemas.body(operation, settings)
    content = {"application/json": {"schema": schema, "example": example.body}}
    if operation.ndjson_handler is not None:
        assert operation.ndjson_example is not None
        lines = operation.ndjson_example.body
        content[_NDJSON] = {"schema": _NDJSON_BODY, "example": lines}
    return content


def _parameters(operation: Operation, schemas: _Schemas, example: Example) -> list[Document]:
    """List the parameters. Those that the example request sends have its values."""
    sent = {"path": example.path, "query": example.query, "header": example.headers}
    return [
        found | {"example": sent[found["in"]][found["name"]]}
        if found["name"] in sent[found["in"]]
        else found
        for found in _declared_parameters(operation, schemas)
    ]


def _declared_parameters(operation: Operation, schemas: _Schemas) -> list[Document]:
    name_schema = TypeAdapter(Name).json_schema()
    found: list[Document] = [
        {"name": name, "in": "path", "required": True, "schema": name_schema}
        for name in operation.path_parameters
    ]
    if operation.accepts_idempotency_key:
        found.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "A repeated request with the same key is executed once.",
                "schema": {"type": "string", "pattern": f"^{binding.IDEMPOTENCY_KEY}$"},
            }
        )
    if operation.accepts_if_match:
        found.append(_IF_MATCH)
    if operation.has_etag:
        found.append(_IF_NONE_MATCH)
    if operation.query is not None:
        for name, schema in schemas.query(operation.query).items():
            description = schema.pop("description", "")
            schema.pop("title", None)
            found.append(
                {
                    "name": name,
                    "in": "query",
                    "required": schemas.is_required(operation.query, name),
                    "description": description,
                    "schema": _without_null(schema),
                }
            )
    return found


def _without_null(schema: Document) -> Document:
    """Remove null from a schema: an optional parameter is absent from the URL, never null."""
    types = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if schema.get("default") is not None:
        rest["default"] = schema["default"]
    if len(types) == 1:
        rest |= types[0]
        return rest
    return rest | ({"anyOf": types} if types else {})


def _success(operation: Operation, schemas: _Schemas, example: Example) -> Document:
    content = {"schema": schemas.response(operation), "example": example.response}
    success: Document = {"description": "Success.", "content": {operation.media_type: content}}
    if operation.response_headers:
        success["headers"] = {
            name: {"description": text, "schema": {"type": "string"}, "required": True}
            for name, text in operation.response_headers.items()
        }
    for media_type in operation.other_media_types:
        success["content"][media_type] = {"schema": {"type": "string"}}
    if operation.may_be_text:
        success["content"][_TEXT] = {"schema": {"type": "string"}}
    if operation.response is bytes:  # the media type is that of the file
        success["content"]["*/*"] = content
    return success


def _responses(operation: Operation, schemas: _Schemas, example: Example) -> Document:
    responses: Document = {str(operation.status): _success(operation, schemas, example)}
    if get_origin(operation.response) is list:
        responses["200"].setdefault("headers", {})["Link"] = _NEXT_PAGE
    if operation.has_etag:
        responses["200"].setdefault("headers", {})["ETag"] = _ETAG
        responses["304"] = {"description": "The list has the ETag of If-None-Match."}
    if operation.response is bytes:
        responses["206"] = {
            "description": "The range that Range requests.",
            "content": {operation.media_type: {"schema": _BINARY}, "*/*": {"schema": _BINARY}},
        }
        responses["304"] = {"description": "The client has the file, according to If-None-Match."}
    for status in operation.error_statuses():
        responses[str(status)] = {"$ref": _ERROR_REF.format(status=status)}
    return responses


def _error_responses(operations: Sequence[Operation], schemas: _Schemas) -> Document:
    """Return the error responses, which all operations share."""
    statuses = sorted({status for row in operations for status in row.error_statuses()})
    return {f"Error{status}": _error_response(status, schemas) for status in statuses}


def _error_response(status: int, schemas: _Schemas) -> Document:
    response: Document = {
        "description": DESCRIPTIONS[status],
        "content": {
            "application/json": {
                "schema": schemas.error,
                "example": example(status),
            }
        },
    }
    if status in HEADERS:
        response["headers"] = {
            name: {"schema": {"type": "string"}, "required": True} for name in HEADERS[status]
        }
    return response
