"""The API as a table: one row per operation, which holds everything about it."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.api.handlers import (
    audit,
    changes,
    exports,
    files,
    groups,
    leases,
    outputs,
    reviews,
    sessions,
    system,
)
from gleanery.api.operation import Operation
from gleanery.models import leases as lease_models
from gleanery.models.responses.common import Deleted, WriteCounts
from gleanery.models.session_state import CheckedCookie, CheckedEntry
from gleanery.service.resources.audit.models import AuditPage, AuditQuery
from gleanery.service.resources.changes.models import ChangePage, ChangeQuery
from gleanery.service.resources.exports.models import (
    ExportLink,
    ExportLinkQuery,
    ExportQuery,
    SignedExportQuery,
)
from gleanery.service.resources.fields.models import FieldsOut
from gleanery.service.resources.files.models import BlobQuery, FileQuery, FileUpload, StoredFile
from gleanery.service.resources.groups.models import (
    FieldsQuery,
    GroupOut,
    GroupQuery,
    GroupSettings,
    GroupsQuery,
)
from gleanery.service.resources.history.models import VersionPage
from gleanery.service.resources.outputs.models import (
    IngestQuery,
    IngestResult,
    NdjsonResult,
    OutputIn,
    OutputOut,
    OutputPage,
    OutputQuery,
    OutputTime,
    VersionQuery,
)
from gleanery.service.resources.reviews.models import (
    AddedReview,
    ReviewDetails,
    ReviewIn,
    ReviewOut,
    ReviewQuery,
    ReviewSample,
    ReviewSampleQuery,
)
from gleanery.service.resources.sessions.models import (
    CookieDeletion,
    CookieOut,
    DomainQuery,
    ImportResult,
    LocalStorageDeletion,
    LocalStorageOut,
    LocalStorageQuery,
    SessionDeletion,
    SessionExport,
    SessionImport,
    SessionOut,
    SessionsQuery,
)


class Status(TypedDict):
    """State of the service."""

    status: str


class ReadyStatus(Status):
    """Readiness of the service."""

    warning: NotRequired[
        Annotated[str, Field(description="The schema is newer than this version: upgrade it.")]
    ]


_LEASE_SCOPES = ("session:read", "session:write")
_LEASE_HEADERS = {"ETag": "Version of the session; `If-Match` takes it."}
_SESSION_HEADERS = {
    "Gleanery-Losses": "JSON array of sentences: what the format cannot carry.",
    "Content-Disposition": "Name of the file, as the tool calls it.",
}
_TABLE_TYPES = ("text/csv", "application/vnd.apache.parquet")
_EXPORT_HEADERS = {"Gleanery-Cursor": "Position at which the change feed continues."}

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/cookies",
        handler=sessions.set_cookies,
        title="Set cookies",
        description="Stores an array of cookies for the organization's scrapers, completely or not "
        "at all. A cookie with the domain, path and name of a stored one replaces it.",
        accepts_if_match=True,
        scopes=("session:write",),
        body=list[CheckedCookie],
        response=WriteCounts,
    ),
    Operation(
        method="GET",
        path="/v1/cookies",
        handler=sessions.get_cookies,
        title="Get cookies",
        description="Lists the organization's cookies in the order of their creation, including "
        "expired ones. A list is limited in bytes: if it is not complete, the `Link` header has "
        "the URL of the next page.",
        scopes=("session:read",),
        has_etag=True,
        query=DomainQuery,
        response=list[CookieOut],
    ),
    Operation(
        method="DELETE",
        path="/v1/cookies",
        handler=sessions.delete_cookies,
        title="Delete cookies",
        description="Deletes all cookies of a domain, or only those with a given name.",
        accepts_if_match=True,
        scopes=("session:write",),
        query=CookieDeletion,
        response=Deleted,
    ),
    Operation(
        method="POST",
        path="/v1/local-storage",
        handler=sessions.set_local_storage,
        title="Set local storage",
        description="Stores an array of local-storage entries for the organization's scrapers, "
        "completely or not at all. An entry with the domain, path and key of a stored one replaces "
        "it.",
        accepts_if_match=True,
        scopes=("session:write",),
        body=list[CheckedEntry],
        response=WriteCounts,
        extra_errors=(404,),  # an entry may name an unknown group
    ),
    Operation(
        method="GET",
        path="/v1/local-storage",
        handler=sessions.get_local_storage,
        title="Get local storage",
        description="Lists the organization's local-storage entries in the order of their "
        "creation, including expired ones. A list is limited in bytes: if it is not complete, the "
        "`Link` header has the URL of the next page.",
        scopes=("session:read",),
        has_etag=True,
        query=LocalStorageQuery,
        response=list[LocalStorageOut],
    ),
    Operation(
        method="DELETE",
        path="/v1/local-storage",
        handler=sessions.delete_local_storage,
        title="Delete local storage",
        description="Deletes all entries of a domain, or only those with a given key.",
        accepts_if_match=True,
        scopes=("session:write",),
        query=LocalStorageDeletion,
        response=Deleted,
    ),
    Operation(
        method="POST",
        path="/v1/sessions/leases",
        handler=leases.acquire_lease,
        title="Acquire a lease",
        description="Gives one holder the session of a domain and profile for a time: its cookies "
        "and local storage, without expired ones. A leading dot of the domain includes its "
        "subdomains. While another lease of the host, of a parent or "
        "of a child host exists, the response is 409 with `Retry-After`. Other profiles are "
        "independent. A holder counts `seconds` from the moment at which it sent the request, and "
        "stops using the session after them. A lease does not stop the routes without a lease.",
        scopes=_LEASE_SCOPES,
        body=lease_models.LeaseIn,
        response=lease_models.AcquiredLease,
        response_headers=_LEASE_HEADERS,
        extra_errors=(409,),
    ),
    Operation(
        method="GET",
        path="/v1/sessions/leases",
        handler=leases.list_leases,
        title="Get leases",
        description="The organization's current leases, oldest first, without values. At most 1000 "
        "exist at a time.",
        scopes=("session:read",),
        response=list[lease_models.LeaseOut],
    ),
    Operation(
        method="PUT",
        path="/v1/sessions/leases/{lease_id}",
        handler=leases.renew_lease,
        title="Renew or return a lease",
        description="Stores changes of the session, and renews or returns its lease, all or "
        "nothing. A lease that has expired or was returned gets 404, and then nothing is stored. "
        "So a holder that is late cannot overwrite the changes of the next one. `If-Match` also "
        "protects the changes of clients without a lease.",
        scopes=_LEASE_SCOPES,
        body=lease_models.LeaseChange,
        response=lease_models.ChangedLease,
        response_headers=_LEASE_HEADERS,
        accepts_if_match=True,
    ),
    Operation(
        method="DELETE",
        path="/v1/sessions/leases/{lease_id}",
        handler=leases.release_lease,
        title="Return a lease",
        description="Returns a lease without changes. Any token of the organization with the "
        "scopes can return it, so that an operator can end the lease of a worker that failed.",
        scopes=_LEASE_SCOPES,
        response=Deleted,
    ),
    Operation(
        method="GET",
        path="/v1/sessions",
        handler=sessions.list_sessions,
        title="List sessions",
        description="One object for each host and profile with cookies or local storage: how many "
        "records there are, how many have expired or expire within a day, and the last change. The "
        "response contains no names and no values. If it is not complete, the `Link` header has "
        "the URL of the next page.",
        scopes=("session:read",),
        query=SessionsQuery,
        response=list[SessionOut],
    ),
    Operation(
        method="DELETE",
        path="/v1/sessions",
        handler=sessions.delete_session,
        title="Delete a session",
        description="Deletes the cookies and the local storage of exactly this host and profile, "
        "with and without a leading dot of the domain. Records of subdomains stay. Leases whose "
        "holders may have these records end, so that a late holder cannot store them again.",
        accepts_if_match=True,
        scopes=("session:write",),
        query=SessionDeletion,
        response=Deleted,
    ),
    Operation(
        method="GET",
        path="/v1/sessions/export",
        handler=sessions.export_session,
        title="Export session state",
        description="Cookies and local storage in the format of a browser or tool, for example "
        "Playwright's storage state. Expired records are left out. With `url`, the response has "
        "only what a page at this URL sees. What the format cannot carry is left out. The header "
        "`Gleanery-Losses` says so, counts expired records, and says if no record matches. An "
        "entry without an origin gets that of `url`, or else `https` and its host. An export is "
        "limited in bytes: if the state is larger, the response is 422. The export is in the audit "
        "log.",
        scopes=("session:read",),
        has_etag=True,
        query=SessionExport,
        response=Any,
        may_be_text=True,
        response_headers=_SESSION_HEADERS,
        extra_errors=(404,),  # the query may name an unknown group
    ),
    Operation(
        method="POST",
        path="/v1/sessions/import",
        handler=sessions.import_session,
        title="Import session state",
        description="Stores the cookies and the local storage of a document, completely or not at "
        "all. The document can have any of the formats and any `Content-Type`. A record with the "
        "identity of a stored one replaces it. A stored cookie keeps the flags and the partition "
        "that the format does not carry and, if its value is the same, the expiry. The cookies of "
        "a request, such as a Cookie header, have no domain and path. Each one means the only "
        "stored cookie of its name that the page gets; otherwise it becomes a cookie of the page's "
        "host. `losses` says what could not be kept. The response contains no values. The import "
        "is in the audit log, and so is a dry run.",
        scopes=("session:write",),
        accepts_if_match=True,
        query=SessionImport,
        body=str,
        response=ImportResult,
        response_headers={"ETag": "Version of all records of the profile; `If-Match` takes it."},
        extra_errors=(404,),  # the query may name an unknown group
    ),
    Operation(
        method="GET",
        path="/v1/reviews/{group_id}",
        handler=reviews.get_latest_reviews,
        title="Get latest reviews",
        description="The latest review of each reviewed job of the group, newest first. With "
        "`history=true`, all reviews of the group. A list is limited in bytes: if it is not "
        "complete, the `Link` header has the URL of the next page.",
        scopes=("reviews:read",),
        query=ReviewQuery,
        response=list[ReviewOut],
    ),
    Operation(
        method="GET",
        path="/v1/reviews/{group_id}/sample",
        handler=reviews.get_review_sample,
        title="Get a sample for a review",
        description="Outputs of a job for a reviewer to look at: half of them random, a quarter "
        "changed since their last approval, and a quarter with a rare shape or an extreme value. "
        "If there are fewer of the latter, more are random. The random outputs represent the job. "
        "If the job has at most `size` outputs, the sample has all of them. It is limited in "
        "bytes, so it can have fewer. Send `cursor` as `as_of` of the review.",
        scopes=("reviews:read", "outputs:read"),
        query=ReviewSampleQuery,
        response=ReviewSample,
    ),
    Operation(
        method="GET",
        path="/v1/reviews/{group_id}/{review_id}",
        handler=reviews.get_review,
        title="Get a review",
        description="One review, with what it is about and its findings.",
        scopes=("reviews:read",),
        response=ReviewDetails,
    ),
    Operation(
        method="POST",
        path="/v1/reviews/{group_id}",
        handler=reviews.add_review,
        title="Add a review",
        description="Adds a review of a job. `approved` approves the current outputs of the job. "
        "`changes_requested` and `rejected` withdraw the approval. `pending` and `in_review` do "
        "not change it. An output gets a new position in the change order if its approval changes. "
        "With `as_of`, the review applies only to what its reviewer has seen: a value that was "
        "stored after that is left as it is. With `output_ids`, the review applies only to "
        "these outputs of the job, and changes them in one transaction. `changes_requested` and "
        "`rejected` also remove the outputs from the approved view. With `as_of`, they remove an "
        "approved version that was stored until then, even if the present value is later. "
        "With an `Idempotency-Key`, a repeated request gets the first response again for one day, "
        "and the review is added once.",
        scopes=("reviews:write",),
        body=ReviewIn,
        accepts_idempotency_key=True,
        response=AddedReview,
        extra_errors=(410,),
    ),
    Operation(
        method="GET",
        path="/v1/audit",
        handler=audit.get_audit,
        title="Get the audit log",
        description="The audit log: who read, stored or deleted cookies and local storage, added "
        "reviews, changed the settings of a group, created links to exports, created or revoked "
        "tokens, or rotated the secret key. Entries are in commit order, oldest first, and never "
        "change. To continue, pass the `cursor` of the response.",
        scopes=("audit:read",),
        query=AuditQuery,
        response=AuditPage,
    ),
    Operation(
        method="GET",
        path="/v1/outputs/{group_id}",
        handler=outputs.get_outputs,
        title="Get outputs for a scraping group",
        description="One page of the group's outputs, oldest change first. For the next page, pass "
        "`next_cursor` as `cursor`, or follow `next_url`. Both are null on the last page, and only "
        "there. A page is limited in bytes, so it can have fewer items than `limit`. With several "
        "filters it can even be empty before the last page. An output that changes during paging "
        "appears again on a later page.",
        scopes=("outputs:read",),
        query=OutputQuery,
        response=OutputPage,
        allows_read_batching=True,
    ),
    Operation(
        method="POST",
        path="/v1/outputs/{group_id}",
        handler=outputs.store_outputs,
        title="Store outputs",
        description="Stores a batch of outputs, completely or not at all. New groups and jobs are "
        "created. A job is a lasting source such as one site or one spider, not one run of it. "
        "Two outputs with the same job and key are the same output. The key is `key`, or "
        "else the group's `key_fields`, or else `source_url`. If the content is the same, only "
        "`last_scraped_date` changes. If a batch has an output several times, each value is a "
        "version, as in several requests. Of more than 100 such versions of an output, only the "
        "first and the last 99 are kept."
        "\n\n"
        "The body is an array of outputs. An object instead of the array is a batch of one. Its "
        "response is that of an array with one element."
        "\n\n"
        "A body in NDJSON (`application/x-ndjson`, one output per line) can have any length. It is "
        "stored in steps of a thousand lines. The response has the counts and `lines`, but no "
        "`results`. An error says how many lines are stored. With an `Idempotency-Key`, a repeated "
        "request gets the first response again for one day."
        "\n\n"
        "With `job_id` and `url_field`, each element of the batch, or each line, is a bare item. "
        "That is an object as a scraper writes it. It becomes the `data` of an output. `url_field` "
        "names the member of the item that is its `source_url`, and `key_field` the one that is "
        "its `key`. Both stay in `data`. An item in which such a member is missing, null or empty "
        "is invalid."
        "\n\n"
        "With `on_error=skip`, the valid elements are stored. `skipped` counts the others, and "
        "`errors` lists the first 100 errors. `results` still has one entry per element: null for "
        "a skipped one. An element is skipped if it is invalid, violates the group's schema or "
        "references an unknown file; a line also if it is not JSON.",
        scopes=("outputs:write",),
        creates_resource=True,
        query=IngestQuery,
        body=list[OutputIn],
        ndjson_handler=outputs.store_ndjson,
        accepts_idempotency_key=True,
        ndjson_response=NdjsonResult,
        response=IngestResult,
        extra_errors=(404,),  # an output may reference an unknown file
    ),
    Operation(
        method="GET",
        path="/v1/outputs/{group_id}/{output_id}",
        handler=outputs.get_output,
        title="Get an output",
        description="One output, as on a page of the group. With `at`, the output as it was then. "
        "Its `last_scraped_date` is the last one of that version. The service knows only the "
        "last change of a version's approval. If `at` is before that change, `is_approved` is the "
        "other value. If the output did not exist then, the response is 404. If the version is no "
        "longer kept, it is 410.",
        scopes=("outputs:read",),
        query=OutputTime,
        response=OutputOut,
        extra_errors=(410,),
    ),
    Operation(
        method="GET",
        path="/v1/outputs/{group_id}/{output_id}/history",
        handler=outputs.get_history,
        title="Get the history of an output",
        description="The versions of an output, newest first, each with the fields that it "
        "changed. A new version begins when the data, `source_url`, the tags or the files change. "
        "The group's `keep_versions` and `keep_days` say which versions are kept; the last "
        "approved one always is. At most 100 fields of a version are listed, with paths "
        "of at most 1000 characters: an object with more of them, or with a longer path in it, is "
        "one changed field. A page is limited in bytes, and so are the versions that it compares. "
        "For the next page, "
        "pass `next_cursor` as `cursor`, or follow `next_url`. A deleted output has its history "
        "as long as the change feed keeps its deletion. Files of earlier versions may be deleted.",
        scopes=("outputs:read",),
        query=VersionQuery,
        response=VersionPage,
    ),
    Operation(
        method="DELETE",
        path="/v1/outputs/{group_id}/{output_id}",
        handler=outputs.delete_output,
        title="Delete an output",
        description="Deletes one output. The change feed reports the deletion.",
        scopes=("outputs:write",),
        response=Deleted,
    ),
    Operation(
        method="GET",
        path="/v1/changes/{group_id}",
        handler=changes.get_changes,
        title="Get changes",
        description="The group's creations, updates, approval changes and deletions in commit "
        "order. For the next page, pass `next_cursor` as `cursor`, or follow `next_url`. Both are "
        "null if there are no further changes yet, and only then. To continue later, pass the "
        "`cursor` of the response, or of the last change that you have processed. A page is "
        "limited in bytes, so it can have fewer changes than `limit`. With `wait`, the response "
        "comes as soon as there is a change. Each view has its own feed; a client stays with one "
        "view. The feed keeps deletions for 30 days, if the operator "
        "has not changed that. An older cursor, or one from before a restore, gets 410: start "
        "again with cursor 0. With `diff=true`, each update says which fields have changed.",
        scopes=("outputs:read",),
        query=ChangeQuery,
        response=ChangePage,
        extra_errors=(410,),
    ),
    Operation(
        method="GET",
        path="/v1/exports/{group_id}",
        handler=exports.export_outputs,
        title="Export a group",
        description="All outputs of the group in one response, as NDJSON: one output per line, as "
        "on a page, and in no particular order. Every output that exists from the beginning to the "
        "end of the export is there exactly once, even while others write. To continue, pass the "
        "header `Gleanery-Cursor` of the response as `cursor` to `GET /v1/changes/{group_id}`, "
        "with the same `view`. The response is sent in chunks: if the last chunk is missing, the "
        "export is incomplete. With `format=csv` or `format=parquet`, the response is a table. The "
        "service converts it first, and sends it with a length; Parquet needs the extra `parquet` "
        "where the service is installed. For a large group, `gleanery export` is the better way: "
        "it converts where it runs.",
        scopes=("outputs:read",),
        query=ExportQuery,
        response=str,
        media_type="application/x-ndjson",
        other_media_types=_TABLE_TYPES,
        response_headers=_EXPORT_HEADERS,
        extra_errors=(505,),
    ),
    Operation(
        method="POST",
        path="/v1/exports/{group_id}/links",
        handler=exports.create_export_link,
        title="Create a link to an export",
        description="A signed URL of the export with these filters. It works without a token, so "
        "tools without own headers can read it. It is valid for the given time, but not longer "
        "than the token that creates it: a revoked or expired token ends its links. Whoever has "
        "the URL can read the outputs.",
        scopes=("outputs:read",),
        query=ExportLinkQuery,
        response=ExportLink,
    ),
    Operation(
        method="GET",
        path="/v1/exports/{group_id}/{file_name}",
        handler=exports.get_signed_export,
        title="Export a group by a signed link",
        description="The export of a signed link, without a token. The name of the file ends with "
        "its format: `outputs.jsonl`, `outputs.csv` or `outputs.parquet`.",
        query=SignedExportQuery,
        response=str,
        media_type="application/x-ndjson",
        other_media_types=_TABLE_TYPES,
        response_headers=_EXPORT_HEADERS,
        extra_errors=(403, 505),
    ),
    Operation(
        method="GET",
        path="/v1/groups",
        handler=groups.get_groups,
        title="Get groups",
        description="The organization's groups with their counts and settings, in the order of "
        "their creation, each with its first 100 jobs. The `Link` header has the URL of the next "
        "page, which can follow after fewer groups than `limit`. The `metadata` of a group has "
        "the URL of its next jobs.",
        scopes=("outputs:read",),
        query=GroupsQuery,
        response=list[GroupOut],
    ),
    Operation(
        method="GET",
        path="/v1/groups/{group_id}",
        handler=groups.get_group,
        title="Get a group",
        description="One group with its counts, its settings and a page of its jobs with their "
        "latest reviews, in the order of their creation. For the next jobs, pass `next_cursor` as "
        "`cursor`, or follow `next_url`. Both are null on the last page, and only there.",
        scopes=("outputs:read",),
        query=GroupQuery,
        response=GroupOut,
    ),
    Operation(
        method="PUT",
        path="/v1/groups/{group_id}",
        handler=groups.set_group,
        title="Set up a group",
        description="Replaces the settings of a group; an omitted setting gets its default. A new "
        "group is created. A new key or schema applies to outputs that are stored afterwards.",
        scopes=("outputs:write",),
        creates_resource=True,
        body=GroupSettings,
        response=GroupOut,
    ),
    Operation(
        method="DELETE",
        path="/v1/groups/{group_id}",
        handler=groups.delete_group,
        title="Delete a group",
        description="Deletes the group with all its jobs, outputs, reviews, settings "
        "and local-storage entries. The change feed remains, and reports the deletion of every "
        "output.",
        scopes=("outputs:write",),
        response=Deleted,
    ),
    Operation(
        method="GET",
        path="/v1/groups/{group_id}/fields",
        handler=groups.get_fields,
        title="Get field statistics",
        description="How often each field of `data` is filled, with which kinds of values and in "
        "which range, for the group or for one job. Fields are the members of `data`, and the "
        "members of objects in it. `scrapes` has the same for the newest scrapes, and `drift` the "
        "fields that the newest scrape of a job fills more or less often than the median of up to "
        "10 earlier ones: by more than 5 points, and by more than three standard deviations. "
        "Scrapes with fewer than 50 outputs are not compared. `schema` is a suggestion for the "
        "setting `schema` of the group.",
        scopes=("outputs:read",),
        query=FieldsQuery,
        response=FieldsOut,
    ),
    Operation(
        method="DELETE",
        path="/v1/groups/{group_id}/jobs/{job_id}",
        handler=groups.delete_job,
        title="Delete a job",
        description="Deletes the job with its outputs and reviews. The change feed reports the "
        "deletion of every output.",
        scopes=("outputs:write",),
        response=Deleted,
    ),
    Operation(
        method="POST",
        path="/v1/files",
        handler=files.store_file,
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
    ),
    Operation(
        method="GET",
        path="/v1/files",
        handler=files.find_file,
        title="Find a file",
        description="The newest file from this URL and ETag, so that a scraper does not have to "
        "download it again. A file that was found is not deleted for some days, so that an output "
        "can reference it.",
        scopes=("outputs:read",),
        query=FileQuery,
        response=StoredFile,
        extra_errors=(404,),
    ),
    Operation(
        method="GET",
        path="/v1/files/{id}",
        handler=files.get_file,
        title="Get a file",
        description="The bytes of a file; this is its `file_url`. The headers `Range`, "
        "`If-Range`, `If-Match` and `If-None-Match` are supported.",
        scopes=("outputs:read",),
        response=bytes,
        media_type="application/octet-stream",
    ),
    Operation(
        method="GET",
        path="/v1/blobs/{id}",
        handler=files.get_blob,
        title="Get a file by a signed link",
        description="The bytes of a file by a signed link, without a token. The link is the "
        "`blob_url` of an output and is valid for some minutes.",
        query=BlobQuery,
        response=bytes,
        media_type="application/octet-stream",
        extra_errors=(403,),
    ),
    Operation(
        method="GET",
        path="/",
        handler=system.root,
        title="Start page",
        description="Redirects to the console.",
        status=307,
    ),
    Operation(
        method="GET",
        path="/healthz",
        handler=system.healthz,
        title="Liveness",
        description="Returns 200 while the process accepts requests.",
        response=Status,
        always_admit=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        handler=system.readyz,
        title="Readiness",
        description="Returns 200 while the database is available and this version can serve its "
        "schema.",
        response=ReadyStatus,
        always_admit=True,
        extra_errors=(503,),
    ),
    Operation(
        method="GET",
        path="/metrics",
        handler=system.metrics,
        title="Metrics",
        description="Metrics in Prometheus' text format.",
        response=str,
        media_type="text/plain",
        always_admit=True,
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        handler=system.openapi,
        title="OpenAPI document",
        description="This API as an OpenAPI 3.1 document.",
        response=dict[str, Any],
        is_static=True,
    ),
    Operation(
        method="GET",
        path="/docs",
        handler=system.docs,
        title="Reference page",
        description="This API as an HTML page without external resources.",
        response=str,
        media_type="text/html",
        is_static=True,
    ),
)
