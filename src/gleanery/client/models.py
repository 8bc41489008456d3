"""Records of the service, as its responses describe them. Unknown members are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Raw, Struct


class File(Struct, frozen=True, gc=False, kw_only=True):
    """File of an output."""

    id: str
    field: str
    url_etag_hash: str
    blob_key: str
    blob_url: str
    source_url: str
    create_date: datetime
    file_url: str
    file_type: str
    file_checksum: str
    file_metadata: dict[str, Any]


class Output(Struct, frozen=True, gc=False, kw_only=True):
    """Scraped output."""

    source_url: str
    data: dict[str, Any]
    id: int
    output_id: str
    root_job_id: str
    create_date: datetime
    update_date: datetime
    last_scraped_date: datetime
    key_hash: str
    value_hash: str
    is_approved: bool
    tags: dict[str, Any]
    files: list[File]


class PageMetadata(Struct, frozen=True, gc=False, kw_only=True):
    """Position of the next page; null on the last page, and only there."""

    next_cursor: int | None


class OutputPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of outputs."""

    metadata: PageMetadata
    items: list[Output]


class RawOutputPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of outputs that are not decoded."""

    metadata: PageMetadata
    items: list[Raw]


class DeletedOutput(Struct, frozen=True, gc=False, kw_only=True):
    """Identification of a deleted output."""

    id: int
    output_id: str
    root_job_id: str


class IdentifiedOutput(Struct, gc=False):
    """The identification of an output, without its other members."""

    output_id: str


class OutputOfJob(Struct, gc=False):
    """The job of an output that a client sends, without its other members."""

    job_id: str


class FieldChange(Struct, frozen=True, gc=False, kw_only=True):
    """Difference between two versions of an output."""

    path: str
    """Path inside ``data``; other members have the prefix ``$.``."""
    kind: Literal["added", "removed", "changed"]
    before: Any
    after: Any


class Version(Struct, frozen=True, gc=False, kw_only=True):
    """Version of an output, or its deletion, which has only its kind, position and date."""

    change: Literal["create", "update", "delete"]
    cursor: int
    version_date: datetime
    replaced_date: datetime | None = None
    key_hash: str | None = None
    value_hash: str | None = None
    is_approved: bool | None = None
    fields: list[FieldChange] | None = None
    """Differences from the version before; None if that one is no longer kept."""
    reason: str | None = None
    """Of a deletion: ``missing`` if complete runs did not send the output any more."""


class VersionPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of versions."""

    metadata: PageMetadata
    versions: list[Version]


class RawVersionPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of versions that are not decoded."""

    metadata: PageMetadata
    versions: list[Raw]


class _Change(Struct, frozen=True, gc=False, kw_only=True, tag_field="change"):
    """Members of every change."""

    cursor: int
    change_date: datetime
    group_id: str
    output_id: str


class Creation(_Change, frozen=True, gc=False, kw_only=True, tag="create"):
    """New output, which has not changed since then."""

    change: ClassVar[Literal["create"]] = "create"
    output: Output


class Update(_Change, frozen=True, gc=False, kw_only=True, tag="update"):
    """Output with another value or approval, as it is now."""

    change: ClassVar[Literal["update"]] = "update"
    output: Output
    fields: list[FieldChange] | None = None
    """With ``diff``: what has changed; None if the earlier version is no longer kept."""


class Deletion(_Change, frozen=True, gc=False, kw_only=True, tag="delete"):
    """Deleted output."""

    change: ClassVar[Literal["delete"]] = "delete"
    output: DeletedOutput
    reason: str | None = None
    """``missing`` if the service has removed it, because complete runs did not send it any more."""


Change = Creation | Update | Deletion


class ChangedOutput(Struct, gc=False):
    """The kind of a change and the output that changed, without the other members."""

    change: str
    output_id: str


class ChangePage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of changes, and the position after it."""

    metadata: PageMetadata
    cursor: int
    changes: list[Change]


class RawChangePage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of changes that are not decoded."""

    metadata: PageMetadata
    cursor: int
    changes: list[Raw]


ReviewStatus = Literal["pending", "in_review", "approved", "changes_requested", "rejected"]


class Review(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Review of a job."""

    job_id: str
    review_id: str
    review_date: datetime
    status: ReviewStatus
    comment: str
    skipped_output_ids: list[str] | None = None
    """After a review of single outputs: those with a newer value, which it does not apply to."""


class Finding(Struct, frozen=True, gc=False):
    """What a reviewer has found in one output, or in the field of a path inside its data."""

    output_id: str
    path: str | None = None
    note: str = ""


class ReviewDetails(Struct, frozen=True, gc=False, kw_only=True):
    """Review with what it is about."""

    job_id: str
    review_id: str
    review_date: datetime
    status: ReviewStatus
    comment: str
    as_of: int | None
    output_ids: list[str] | None
    skipped_output_ids: list[str] | None
    findings: list[Finding]
    person: str | None = None
    """Name of the reviewer in the console; None if the review was added with a token alone."""


class SampledOutput(Struct, frozen=True, gc=False, kw_only=True):
    """Output of a sample, with the reason for its choice."""

    reason: str
    """``random``, ``changed``, ``rare_shape`` or ``outlier``."""
    detail: str | None
    output: Output
    approved_output: Output | None
    """Last approved version, if the output has a newer value."""
    fields: list[FieldChange] | None = None
    """What has changed since that version; None if there is none, or if there is too much."""


class ReviewSample(Struct, frozen=True, gc=False, kw_only=True):
    """Sample of a job's outputs for a review."""

    seed: str
    job_id: str
    cursor: int
    """Value for ``as_of`` of the review."""
    outputs: int
    """Number of outputs of the job."""
    sample: list[SampledOutput]


class Job(Struct, frozen=True, gc=False, kw_only=True):
    """Job of a group, with its counts."""

    job_id: str
    outputs: int
    approved: int
    latest_review: Review | None


class MissingSettings(Struct, frozen=True, gc=False, kw_only=True):
    """When outputs are removed that complete runs do not send any more."""

    after_runs: int | None = None
    """Number of complete runs in a row; None if outputs are never removed."""
    max_share: float = 0.3
    """Share of a job's outputs. The removal of more of them waits for a decision."""


class Group(Struct, frozen=True, gc=False, kw_only=True):
    """Group with its settings, its counts and its jobs."""

    group_id: str
    id: int
    display_name: str | None
    outputs: int
    last_change: datetime | None
    cursor: int
    key_fields: list[str] | None
    schema: dict[str, Any] | None
    retain_days: int | None
    keep_versions: int
    keep_days: int
    run_timeout_minutes: int
    missing: MissingSettings
    countries: dict[str, int]
    has_more_countries: bool
    jobs: list[Job]
    metadata: PageMetadata


RunStatus = Literal["running", "complete", "partial", "failed", "unknown", "abandoned"]
"""``unknown`` is the end of an implicit run, ``abandoned`` that of a run that fell silent."""
FinalRunStatus = Literal["complete", "partial", "failed"]
"""How a client can finish a run."""


class RunCounts(Struct, frozen=True, gc=False, kw_only=True):
    """Numbers of outputs. A run counts each output once, with its strongest change."""

    created: int
    updated: int
    unchanged: int
    rejected: int
    """Elements that were not valid, each time they were sent."""
    missing: int
    """Of a complete run: outputs of the job that no run has sent since its start."""
    removed: int
    """Of a complete run: missing outputs that were removed."""

    @property
    def outputs(self) -> int:
        """Number of outputs that the run has sent."""
        return self.created + self.updated + self.unchanged


class RunRecord(Struct, frozen=True, gc=False, kw_only=True):
    """Run of a job."""

    run_id: str
    group_id: str
    job_id: str
    status: RunStatus
    start_date: datetime
    finish_date: datetime | None
    """Of a run that ended by silence, the time of its last outputs."""
    message: str | None
    labels: dict[str, str]
    is_implicit: bool
    """True if nobody has started it: it began with outputs that named no run."""
    counts: RunCounts
    comparison: Literal["pending", "done"] | None
    """Of a complete run: ``pending`` while it is compared with the outputs of a large job."""
    removal: Literal["pending", "held", "done", "kept", "replaced"] | None
    """``held`` if it waits for a decision; None if there is nothing to remove."""
    removable: int
    """Number of outputs that the removal is about."""


class RunPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of runs."""

    metadata: PageMetadata
    runs: list[RunRecord]


class RawRunPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of runs that are not decoded."""

    metadata: PageMetadata
    runs: list[Raw]


class FieldCounts(Struct, frozen=True, gc=False, kw_only=True):
    """Field, and how often outputs have it."""

    path: str
    filled: int
    fill_rate: float
    kinds: dict[str, int]


class ValueRange(Struct, frozen=True, gc=False, kw_only=True):
    """Smallest and largest number."""

    min: int | float
    max: int | float


class LengthRange(Struct, frozen=True, gc=False, kw_only=True):
    """Lengths of strings in characters, and of arrays in elements."""

    min: int
    median: int
    max: int


class FieldStatistics(FieldCounts, frozen=True, gc=False, kw_only=True):
    """Field with the ranges of its values."""

    range: ValueRange | None
    length: LengthRange | None


class RunFields(Struct, frozen=True, gc=False, kw_only=True):
    """Run of a job, and the fields of the outputs that it has sent."""

    run_id: str
    job_id: str
    status: RunStatus
    start_date: datetime
    last_date: datetime
    """Time of its last outputs; without outputs, of its start."""
    outputs: int
    """Outputs that it has sent, each counted once."""
    fields: list[FieldCounts]


class Drift(Struct, frozen=True, gc=False, kw_only=True):
    """Field that the newest run of a job fills more or less often than earlier ones."""

    job_id: str
    path: str
    before: float
    now: float


class Fields(Struct, frozen=True, gc=False, kw_only=True):
    """Statistics of the fields of a group, or of one job."""

    group_id: str
    job_id: str | None
    outputs: int
    counted_outputs: int
    fields: list[FieldStatistics]
    runs: list[RunFields]
    drift: list[Drift]
    schema: dict[str, Any]


class Deleted(Struct, frozen=True, gc=False, kw_only=True):
    """Number of deleted records."""

    deleted: int


class Problem(Struct, frozen=True, gc=False, kw_only=True):
    """Problem of an element that was skipped."""

    loc: list[str]
    msg: str
    type: str


class BatchResult(Struct, frozen=True, gc=False, kw_only=True):
    """What the service did with a batch of outputs."""

    created: int
    updated: int
    unchanged: int
    skipped: int = 0
    errors: list[Problem] = []


class StoredFile(Struct, frozen=True, gc=False, kw_only=True):
    """File that the service has."""

    id: str
    blob_key: str
    file_checksum: str
    """SHA-256 of the bytes, in hexadecimal digits."""
    file_type: str
    url_etag_hash: str
    size: int


class ExportLink(Struct, frozen=True, gc=False, kw_only=True):
    """Link to an export, which works without a token. Its URL is not shown."""

    url: str
    expires: datetime

    def __repr__(self) -> str:
        return f"ExportLink(expires={self.expires!r})"
