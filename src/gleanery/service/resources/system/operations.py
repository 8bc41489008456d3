"""The operations that describe the service itself, with their examples."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.common.version import __version__
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.resources.system import handlers


class Status(TypedDict):
    """State of the service."""

    status: str


class ReadyStatus(Status):
    """Readiness of the service."""

    warning: NotRequired[
        Annotated[str, Field(description="The schema is newer than this version: upgrade it.")]
    ]


# OpenAPI cannot describe it, because its target is not a path.
SERVER_OPTIONS = Operation(
    method="OPTIONS",
    path="*",
    handler=handlers.server_options,
    title="Options of the server",
    description="Returns the methods that the service knows.",
    status=204,
)
_OPERATIONS = (
    Operation(
        method="GET",
        path="/",
        handler=handlers.root,
        title="Start page",
        description="Redirects to the console.",
        status=307,
    ),
    Operation(
        method="GET",
        path="/healthz",
        handler=handlers.healthz,
        title="Liveness",
        description="Returns 200 while the process accepts requests.",
        response=Status,
        always_admit=True,
        example=Example(response={"status": "ok"}),
    ),
    Operation(
        method="GET",
        path="/readyz",
        handler=handlers.readyz,
        title="Readiness",
        description="Returns 200 while the database is available and this version can serve its "
        "schema.",
        response=ReadyStatus,
        always_admit=True,
        extra_errors=(503,),
        example=Example(response={"status": "ready"}),
    ),
    Operation(
        method="GET",
        path="/metrics",
        handler=handlers.metrics,
        title="Metrics",
        description="Metrics in Prometheus' text format.",
        response=str,
        media_type="text/plain",
        always_admit=True,
        example=Example(
            response="# HELP gleanery_info Always 1; the label is the version of the program.\n"
            "# TYPE gleanery_info gauge\n"
            f'gleanery_info{{version="{__version__}"}} 1.0\n',
            is_excerpt=True,
        ),
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        handler=handlers.openapi,
        title="OpenAPI document",
        description="This API as an OpenAPI 3.1 document.",
        response=dict[str, Any],
        is_static=True,
        example=Example(
            response={"openapi": "3.1.0", "info": {"title": "Gleanery", "version": __version__}},
            is_excerpt=True,
        ),
    ),
    Operation(
        method="GET",
        path="/docs",
        handler=handlers.docs,
        title="Reference page",
        description="This API as an HTML page without external resources.",
        response=str,
        media_type="text/html",
        is_static=True,
        example=Example(response="<!doctype html>\n", is_excerpt=True),
    ),
)

_CONSOLE_OPERATIONS = (
    Operation(
        method="GET",
        path="/console",
        handler=handlers.console_page,
        title="Console",
        description="The page of the console.",
        media_type="text/html",
        response=str,
    ),
    Operation(
        method="GET",
        path="/console/",
        handler=handlers.console_without_slash,
        title="Console",
        description="Redirects to the page of the console.",
        status=307,
    ),
    Operation(
        method="GET",
        path="/console/assets/{version}/{name}",
        handler=handlers.console_asset,
        title="File of the console",
        description="A file of this version.",
        response=str,
    ),
    Operation(
        method="GET",
        path="/console/assets/{version}/{name}/{file}",
        handler=handlers.console_asset,
        title="File of the console",
        description="A file of this version, in a folder.",
        response=str,
    ),
)

RESOURCE = Resource(
    tags={"service": "State and description of the service, without a token."},
    operations=_OPERATIONS,
    console_operations=_CONSOLE_OPERATIONS,
)
