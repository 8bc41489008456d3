"""The OpenAPI 3.1 document, generated from the operation table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_origin

from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict

from gleanery import __version__
from gleanery.api import error_responses
from gleanery.api.binding import IDEMPOTENCY_KEY
from gleanery.api.examples import EXAMPLES, Example
from gleanery.api.operations import Operation
from gleanery.models.fields import Name
from gleanery.security import tokens
from gleanery.settings import Settings

Document = dict[str, Any]
_REF = "#/components/schemas/{model}"
_ERROR_REF = "#/components/responses/Error{status}"
_NEXT_PAGE: Document = {
    "description": 'URL of the next page, as in RFC 8288: `<URL>; rel="next"`. The header is '
    "absent on the last page, and only there.",
    "schema": {"type": "string"},
}


class ErrorDetailOut(TypedDict):
    """One problem of a request. It never contains the value."""

    loc: list[str]
    msg: str
    type: str


class ErrorBody(TypedDict):
    """Body of every error response."""

    detail: list[ErrorDetailOut]


def document(operations: Sequence[Operation], settings: Settings) -> Document:
    """Return the document for a service with these settings."""
    schemas = _Schemas(operations)
    paths: Document = {}
    for operation in operations:
        row = _operation(operation, schemas, settings)
        paths.setdefault(operation.path, {})[operation.method.lower()] = row
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gleanery",
            "version": __version__,
            "description": "Cookies, local storage, reviews and outputs of web scraping.",
        },
        "servers": [{"url": settings.address}],
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


class _Schemas:
    """JSON Schemas of all types in the table; named types are shared under components."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        types: dict[str, tuple[Any, Any]] = {"error": (ErrorBody, "serialization")}
        for operation in operations:
            types[f"{operation.name} body"] = (operation.body, "validation")
            types[f"{operation.name} query"] = (operation.query, "validation")
            types[f"{operation.name} response"] = (operation.response, "serialization")
        inputs = [
            (name, mode, TypeAdapter(type_))
            for name, (type_, mode) in types.items()
            if type_ is not None
        ]
        found, shared = TypeAdapter.json_schemas(inputs, ref_template=_REF)
        self._found = {name: schema for (name, _), schema in found.items()}
        self.definitions: Document = shared["$defs"]
        queries = {operation.query for operation in operations if operation.query is not None}
        self._queries = {  # parameters in the document, so not under components
            query: self.definitions.pop(query.__name__) for query in queries
        }

    def body(self, operation: Operation, settings: Settings) -> Document:
        schema = dict(self._found[f"{operation.name} body"])
        if schema.get("type") == "array":
            schema["maxItems"] = settings.max_records
        return schema

    def response(self, operation: Operation) -> Document:
        return dict(self._found[f"{operation.name} response"])

    def query(self, query: type[BaseModel]) -> Document:
        found = self._queries[query]["properties"]
        return {name: dict(schema) for name, schema in found.items()}

    def is_required(self, query: type[BaseModel], name: str) -> bool:
        return name in self._queries[query].get("required", ())

    @property
    def error(self) -> Document:
        return dict(self._found["error"])


def _operation(operation: Operation, schemas: _Schemas, settings: Settings) -> Document:
    example = EXAMPLES[operation.name]
    row: Document = {
        "operationId": operation.name,
        "summary": operation.title,
        "description": operation.description
        + (f"\n\nRequires the scope `{operation.scope}`." if operation.scope else ""),
        "tags": [operation.path.split("/")[2] if operation.scope else "service"],
        "security": [{"token": []}] if operation.scope else [],
        "responses": _responses(operation, schemas, example),
    }
    if parameters := _parameters(operation, schemas, example):
        row["parameters"] = parameters
    if operation.body is not None:
        is_file = operation.body is bytes
        media = "*/*" if is_file else "application/json"
        row["requestBody"] = {
            "required": not is_file,  # a file may be empty
            "content": {
                media: {"schema": schemas.body(operation, settings), "example": example.body}
            },
        }
    return row


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
                "schema": {"type": "string", "pattern": f"^{IDEMPOTENCY_KEY}$"},
            }
        )
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
    if operation.response is None:
        return {
            "description": "The address is in the Location header.",
            "headers": {"Location": {"schema": {"type": "string"}, "required": True}},
        }
    content = {"schema": schemas.response(operation), "example": example.response}
    return {"description": "Success.", "content": {operation.media_type: content}}


def _responses(operation: Operation, schemas: _Schemas, example: Example) -> Document:
    responses: Document = {str(operation.status): _success(operation, schemas, example)}
    if get_origin(operation.response) is list:
        responses["200"]["headers"] = {"Link": _NEXT_PAGE}
    if operation.response is bytes:
        responses["206"] = {
            "description": "The range that Range requests.",
            "content": {operation.media_type: {"schema": schemas.response(operation)}},
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
        "description": error_responses.DESCRIPTIONS[status],
        "content": {
            "application/json": {
                "schema": schemas.error,
                "example": error_responses.example(status),
            }
        },
    }
    if status in error_responses.HEADERS:
        response["headers"] = {
            name: {"schema": {"type": "string"}, "required": True}
            for name in error_responses.HEADERS[status]
        }
    return response
