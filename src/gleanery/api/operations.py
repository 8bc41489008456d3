"""The API as a table: one row per operation, and nothing about an operation said elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from typing_extensions import TypedDict

from gleanery.api.context import Response
from gleanery.api.handlers import (
    audit,
    changes,
    cookies,
    files,
    groups,
    local_storage,
    outputs,
    reviews,
    system,
)
from gleanery.models import requests, responses

Handler = Callable[[Any], Awaitable[Response]]


class Status(TypedDict):
    """The service's word on itself."""

    status: str


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One row: how it is reached, who may, what it takes and gives, and its words for people."""

    method: str
    path: str
    handler: Handler
    title: str
    description: str
    scope: str | None = None
    creates_resource: bool = False
    """Whether what the path names may be new; else a name that can't exist is just not found."""
    query: type[BaseModel] | None = None
    body: Any = None
    """The type of a JSON body; ``bytes`` for a body of any kind, which is streamed."""
    ndjson_handler: Handler | None = None
    """The handler for a body in NDJSON, if there is one; it honours an Idempotency-Key too."""
    response: Any = None
    media: str = "application/json"
    always_admit: bool = False
    """Whether it is answered however much else is under way."""
    batches_pages: bool = False
    """Whether small pages that a client repeats are read in batches, see ``page_batches``."""

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def path_parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    def error_statuses(self) -> list[int]:
        """Every status but success that this operation can answer."""
        possible = {500}
        if self.scope is not None:
            possible |= {401, 403, 429}
        if not self.always_admit:
            possible |= {503}
        if self.path_parameters and not self.creates_resource:
            possible |= {404}
        if self.handler is local_storage.set_local_storage:
            possible |= {404}  # an entry may name a group
        if self.query is not None or self.creates_resource:
            possible |= {422}
        if self.body is not None:
            possible |= {413, 415, 422}
        if self.response is bytes:
            possible |= {416}
        if self.handler is files.find_file:
            possible |= {404}
        if self.handler is files.get_blob:
            possible |= {403}
        if self.handler is system.readyz:
            possible |= {503}
        if self.ndjson_handler is not None:
            possible |= {404, 409}  # an output may name a file; a key may have been used
        if self.handler is changes.get_changes:
            possible |= {410}
        return sorted(possible)


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/cookies",
        handler=cookies.set_cookies,
        title="Set cookies",
        description="Stores cookies that the organization's scrapers use. A cookie with the domain, path "
        "and name of a stored one replaces it; the array is stored whole or not at all.",
        scope="session:write",
        body=list[requests.CookieIn],
        response=responses.Tally,
    ),
    Operation(
        method="GET",
        path="/v1/cookies",
        handler=cookies.get_cookies,
        title="Get cookies",
        description="Lists the organization's cookies in the order of their first insertion, the expired "
        "ones too.",
        scope="session:read",
        query=requests.DomainQuery,
        response=list[responses.CookieOut],
    ),
    Operation(
        method="DELETE",
        path="/v1/cookies",
        handler=cookies.delete_cookies,
        title="Remove cookies",
        description="Removes the cookies of a domain, or those of one name there.",
        scope="session:write",
        query=requests.CookieDeletion,
        response=responses.Deleted,
    ),
    Operation(
        method="POST",
        path="/v1/local-storage",
        handler=local_storage.set_local_storage,
        title="Set local storage",
        description="Stores local-storage entries that the organization's scrapers use. An entry with "
        "the domain, path and key of a stored one replaces it; the array is stored whole or not "
        "at all.",
        scope="session:write",
        body=list[requests.LocalStorageIn],
        response=responses.Tally,
    ),
    Operation(
        method="GET",
        path="/v1/local-storage",
        handler=local_storage.get_local_storage,
        title="Get local storage",
        description="Lists the organization's entries in the order of their first insertion, the expired "
        "ones too.",
        scope="session:read",
        query=requests.LocalStorageQuery,
        response=list[responses.LocalStorageOut],
    ),
    Operation(
        method="DELETE",
        path="/v1/local-storage",
        handler=local_storage.delete_local_storage,
        title="Remove local storage",
        description="Removes the entries of a domain, or those of one key there.",
        scope="session:write",
        query=requests.LocalStorageDeletion,
        response=responses.Deleted,
    ),
    Operation(
        method="GET",
        path="/v1/reviews/{group_id}",
        handler=reviews.get_latest_reviews,
        title="Get latest reviews",
        description="The newest review of each reviewed job of the group, the newest of them first; with "
        "`history=true` every review that there ever was.",
        scope="reviews:read",
        query=requests.ReviewQuery,
        response=list[responses.ReviewOut],
    ),
    Operation(
        method="POST",
        path="/v1/reviews/{group_id}",
        handler=reviews.add_review,
        title="Add a review",
        description="Appends a review of a job. `approved` approves the job's outputs as they are now; "
        "`changes_requested` and `rejected` take the approval back; `pending` and `in_review` "
        "leave it. Every output whose approval changes moves in the change order.",
        scope="reviews:write",
        body=requests.ReviewIn,
        response=responses.ReviewOut,
    ),
    Operation(
        method="GET",
        path="/v1/audit",
        handler=audit.get_audit,
        title="Get the audit log",
        description="Who read, stored or removed cookies and local storage, reviewed, made or revoked "
        "tokens, or changed the secret key: oldest first, in the order of commit. `cursor` is "
        "always there to go on from. Entries are never changed.",
        scope="audit:read",
        query=requests.AuditQuery,
        response=responses.AuditPage,
    ),
    Operation(
        method="GET",
        path="/v1/outputs/{group_id}",
        handler=outputs.get_outputs,
        title="Get outputs for a scraping group",
        description="One page of the group's outputs, oldest change first. For the next page pass "
        "`next_cursor` as `cursor` or follow `next_url`; both are null on the last page, and only "
        "there. An output that changes while a client pages is met again later, never missed.",
        scope="outputs:read",
        query=requests.OutputQuery,
        response=responses.OutputPage,
        batches_pages=True,
    ),
    Operation(
        method="POST",
        path="/v1/outputs/{group_id}",
        handler=outputs.store_outputs,
        title="Store outputs",
        description="Stores a batch whole or not at all. Group and jobs come into being on first write. "
        "An output is the same as before if job and key are; the key is `key`, else the group's "
        "`key_fields`, else `source_url`. With the same content only its last_scraped_date moves."
        "\n\n"
        "A body of any length can be sent as NDJSON (`application/x-ndjson`), an output a line. "
        "It is stored a thousand lines at a time; the answer has the counts and `lines`, and no "
        "`results`; at a fault it says how far it got. With an `Idempotency-Key` the same "
        "request, repeated within a day, is answered as the first time.",
        scope="outputs:write",
        creates_resource=True,
        body=list[requests.OutputIn],
        ndjson_handler=outputs.store_lines,
        response=responses.IngestAnswer,
    ),
    Operation(
        method="DELETE",
        path="/v1/outputs/{group_id}/{output_id}",
        handler=outputs.delete_output,
        title="Remove an output",
        description="Removes one output; the change order keeps a tombstone of it.",
        scope="outputs:write",
        response=responses.Deleted,
    ),
    Operation(
        method="GET",
        path="/v1/changes/{group_id}",
        handler=changes.get_changes,
        title="Get changes",
        description="The group's creations, updates, approvals and deletions in the order of commit. "
        "`cursor` is always there to go on from, for ever; with `wait` the answer comes within a "
        "moment of the next change. A cursor from before deletions that are no longer known, or "
        "from before a restore, gets 410: start again with cursor 0.",
        scope="outputs:read",
        query=requests.ChangeQuery,
        response=responses.ChangePage,
    ),
    Operation(
        method="GET",
        path="/v1/groups",
        handler=groups.get_groups,
        title="Get groups",
        description="The organization's groups with their jobs, counts, latest reviews and settings, in "
        "the order in which they came into being. The `Link` header has the next page, if there is "
        "one.",
        scope="outputs:read",
        query=requests.GroupsQuery,
        response=list[responses.GroupOut],
    ),
    Operation(
        method="GET",
        path="/v1/groups/{group_id}",
        handler=groups.get_group,
        title="Get a group",
        description="One group with its jobs, counts, latest reviews and settings.",
        scope="outputs:read",
        response=responses.GroupOut,
    ),
    Operation(
        method="PUT",
        path="/v1/groups/{group_id}",
        handler=groups.set_group,
        title="Set up a group",
        description="Sets what is given and unsets what is not; the group comes into being if it is new. "
        "A new key or schema is for outputs stored from then on.",
        scope="outputs:write",
        creates_resource=True,
        body=requests.GroupSettings,
        response=responses.GroupOut,
    ),
    Operation(
        method="DELETE",
        path="/v1/groups/{group_id}",
        handler=groups.delete_group,
        title="Remove a group",
        description="Removes the group with all its jobs, outputs, reviews and settings. Every output "
        "gets its tombstone in the change order, and the change feed stays.",
        scope="outputs:write",
        response=responses.Deleted,
    ),
    Operation(
        method="DELETE",
        path="/v1/groups/{group_id}/jobs/{job_id}",
        handler=groups.delete_job,
        title="Remove a job",
        description="Removes the job with its outputs and reviews, through the change order.",
        scope="outputs:write",
        response=responses.Deleted,
    ),
    Operation(
        method="POST",
        path="/v1/files",
        handler=files.store_file,
        title="Store a file",
        description="Takes the bytes of a file as the body, of any `Content-Type`; they are stored while "
        "they come in. The same bytes are kept once, and the same bytes from the same source are "
        "the same file. `file_type` is told by the bytes, where they tell it. An output names the "
        "file by its `id`; one that no output names is removed after some days.",
        scope="outputs:write",
        query=requests.FileUpload,
        body=bytes,
        response=responses.StoredFile,
    ),
    Operation(
        method="GET",
        path="/v1/files",
        handler=files.find_file,
        title="Find a file",
        description="The newest file that is held from this URL and ETag, so that a scraper need not "
        "fetch it again.",
        scope="outputs:read",
        query=requests.FileQuery,
        response=responses.StoredFile,
    ),
    Operation(
        method="GET",
        path="/v1/files/{id}",
        handler=files.get_file,
        title="Get a file",
        description="The bytes of a file: its `file_url`. `Range`, `If-Range` and `If-None-Match` are "
        "honoured.",
        scope="outputs:read",
        response=bytes,
        media="*/*",
    ),
    Operation(
        method="GET",
        path="/v1/blobs/{id}",
        handler=files.get_blob,
        title="Follow a link to a file",
        description="The same without a token, by a link that an output has as `blob_url` where files "
        "are kept in a folder. Its parts are as they are in the link; it works for some minutes.",
        query=requests.BlobQuery,
        response=bytes,
        media="*/*",
    ),
    Operation(
        method="GET",
        path="/healthz",
        handler=system.healthz,
        title="Liveness",
        description="Answers as long as the process serves.",
        response=Status,
        always_admit=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        handler=system.readyz,
        title="Readiness",
        description="Answers 200 while the database is reached and its schema is this program's.",
        response=Status,
        always_admit=True,
    ),
    Operation(
        method="GET",
        path="/metrics",
        handler=system.metrics,
        title="Metrics",
        description="Prometheus' text format.",
        response=str,
        media="text/plain",
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        handler=system.openapi,
        title="The contract",
        description="This API as an OpenAPI 3.1 document.",
        response=dict[str, Any],
    ),
    Operation(
        method="GET",
        path="/docs",
        handler=system.docs,
        title="The contract for people",
        description="This API as a page that needs nothing from another host.",
        response=str,
        media="text/html",
    ),
)
