"""The operations of files, with their examples."""

from __future__ import annotations

from gleanery.service.api.examples import (
    FILE_ID,
    FILE_SOURCE,
    FILE_TEXT,
    LINK_PARAMETERS,
    STORED_FILE,
)
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.resources.files import handlers
from gleanery.service.resources.files.models import BlobQuery, FileQuery, FileUpload, StoredFile

_OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/files",
        handler=handlers.store_file,
        title="Store a file",
        description="Stores the body as a file. It can have any `Content-Type` and is streamed to "
        "the blob store. A form (`multipart/form-data`, as from `curl -F file=@x.pdf`) must have "
        "one part, the file. The type of other forms, `application/x-www-form-urlencoded`, gets "
        "415: `curl -d` sends it and changes the bytes. Equal bytes are stored once. Equal bytes "
        "from the same source are the same file. `file_type` is detected from the bytes if their "
        "format is known. An output references the file by its `id`. A file without a reference is "
        "deleted after some days.",
        scopes=("outputs:write",),
        query=FileUpload,
        body=bytes,
        response=StoredFile,
        example=Example(
            query={**FILE_SOURCE, "filename": "coffee.txt"}, body=FILE_TEXT, response=STORED_FILE
        ),
    ),
    Operation(
        method="GET",
        path="/v1/files",
        handler=handlers.find_file,
        title="Find a file",
        description="The newest file from this URL and ETag, so that a scraper does not have to "
        "download it again. A file that was found is not deleted for some days, so that an output "
        "can reference it.",
        scopes=("outputs:read",),
        query=FileQuery,
        response=StoredFile,
        extra_errors=(404,),
        example=Example(query=FILE_SOURCE, response=STORED_FILE),
    ),
    Operation(
        method="GET",
        path="/v1/files/{id}",
        handler=handlers.get_file,
        title="Get a file",
        description="The bytes of a file; this is its `file_url`. The headers `Range`, "
        "`If-Range`, `If-Match` and `If-None-Match` are supported.",
        scopes=("outputs:read",),
        response=bytes,
        media_type="application/octet-stream",
        example=Example(path={"id": FILE_ID}, response=FILE_TEXT),
    ),
    Operation(
        method="GET",
        path="/v1/blobs/{id}",
        handler=handlers.get_blob,
        title="Get a file by a signed link",
        description="The bytes of a file by a signed link, without a token. The link is the "
        "`blob_url` of an output and is valid for some minutes.",
        query=BlobQuery,
        response=bytes,
        media_type="application/octet-stream",
        extra_errors=(403,),
        example=Example(path={"id": FILE_ID}, query=LINK_PARAMETERS, response=FILE_TEXT),
    ),
)

RESOURCE = Resource(
    tags={"files": "Files of outputs."},
    operations=_OPERATIONS,
)
