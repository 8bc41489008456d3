"""A push: its batches, its report, and the errors of single items."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gleanery.client.errors import ApiError, ClientError, ErrorDetail, TooLarge

if TYPE_CHECKING:
    from gleanery.client.models import BatchResult

MAX_ERRORS = 100
_SHOWN_ERRORS = 5
_STOPPED = "stopped"
"""Type of a detail that says which lines of the request are stored."""
_MESSAGES = {
    "bare_item": "is no output with job_id, source_url and data: give job_id, for bare items"
}
"""Messages for types of errors whose own message names parts of the HTTP request."""
_FEW_STORED = ("No item is stored", "The first item is stored")
_MIN_COMPRESSED_BYTES = 1024
_MAX_RATIO = 400  # the service rejects a body that is 500 times as large as it was sent


@dataclass(frozen=True, slots=True)
class ItemError:
    """Problem of one item."""

    index: int
    """Position of the item in the whole input, from 0."""
    loc: tuple[str, ...]
    """Path inside the item."""
    msg: str
    type: str

    def __str__(self) -> str:
        place = f"item {self.index}"
        return f"{place}: {'.'.join(self.loc)}: {self.msg}" if self.loc else f"{place}: {self.msg}"


@dataclass(slots=True)
class PushReport:
    """Result of a push, or of its part that is stored."""

    items: int = 0
    """Number of items that are done, from the start of the input. Blank lines and skipped items
    count. To continue a push that has failed, leave out so many items."""
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    skipped: int = 0
    errors: list[ItemError] = field(default_factory=list)
    """The first 100 errors of skipped items."""
    batches: int = 0
    retries: int = 0


ProgressCallback = Callable[[PushReport], None]


class PushFailed(ClientError):
    """A push ended early. ``__cause__`` is the error of the request, if there is one."""

    def __init__(
        self, report: PushReport, errors: Sequence[ItemError], cause: ClientError | None
    ) -> None:
        self.report = report
        """What is stored."""
        self.errors = tuple(errors)
        """The items that are at fault; empty if none is."""
        self.cause = cause
        super().__init__(f"{self._reason().rstrip('.')}. {self._stored()}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report, self.errors, self.cause)

    def _reason(self) -> str:
        if not self.errors:
            return describe(self.cause)
        shown = "; ".join(str(error) for error in self.errors[:_SHOWN_ERRORS])
        more = len(self.errors) - _SHOWN_ERRORS
        return f"{shown}; and {more} more problems" if more > 0 else shown

    def _stored(self) -> str:
        stored = describe_stored(self.report)
        if self.cause is None or (isinstance(self.cause, ApiError) and self.cause.status < 500):
            return f"{stored}."
        if self.report.items == 0:
            return "It is not known whether the first batch is stored: push its items again."
        return (
            f"{stored}. It is not known whether the batch after them is stored: push its items "
            "again."
        )


def describe_stored(report: PushReport) -> str:
    """Return a sentence, without its period, that says how many items are done."""
    done = report.items
    return f"The first {done} items are stored" if done > 1 else _FEW_STORED[done]


def describe(error: ClientError | None) -> str:
    """Return the message of an error, without what it says about the lines of a batch."""
    if not isinstance(error, ApiError):
        return str(error)
    details = [detail for detail in error.detail if detail.type != _STOPPED]
    message = "; ".join(each.msg if each.loc == ("body",) else str(each) for each in details)
    return f"{message} (after {error.attempts} attempts)" if error.attempts > 1 else message


@dataclass(slots=True)
class Batch:
    """Lines that are sent in one request, and the positions of their items in the input."""

    lines: list[bytes] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    size: int = 0
    invalid: list[ItemError] = field(default_factory=list)
    """Items between the lines that are skipped, because they are no JSON."""
    end: int = 0
    """Position after the last item, which may be a skipped one."""
    is_in_run: bool = True
    """False if the items do not belong to the run of the push."""
    is_scattered: bool = False
    """True if items between the lines are not done when the lines are."""

    def add(self, index: int, line: bytes) -> None:
        self.lines.append(line)
        self.indexes.append(index)
        self.size += len(line) + 1

    def add_all(self, text: bytes) -> None:
        """Add the next items to an empty batch, as lines with their line breaks."""
        self.lines = text.splitlines()
        self.indexes = list(range(self.end, self.end + len(self.lines)))
        self.size = len(text)
        self.end += len(self.lines)

    def has_room(self, line: bytes, max_bytes: int) -> bool:
        """Return True if the line fits. A line that is longer than a batch has one of its own."""
        return not self.lines or self.size + len(line) <= max_bytes

    def is_full(self, max_items: int) -> bool:
        return len(self.lines) + len(self.invalid) >= max_items

    @property
    def body(self) -> bytes:
        return b"\n".join(self.lines)

    def split(self) -> tuple[Batch, Batch]:
        """Return two halves, in order."""
        middle = len(self.lines) // 2
        end = self.end if self.is_scattered else self.indexes[middle]
        return (
            self._part(slice(None, middle), [e for e in self.invalid if e.index < end], end),
            self._part(slice(middle, None), [e for e in self.invalid if e.index > end], self.end),
        )

    def _part(self, part: slice, invalid: list[ItemError], end: int) -> Batch:
        lines = self.lines[part]
        size = sum(map(len, lines)) + len(lines)
        flags = (self.is_in_run, self.is_scattered)
        return Batch(lines, self.indexes[part], size, invalid, end, *flags)

    def item_errors(self, details: Sequence[ErrorDetail]) -> list[ItemError]:
        """Return the errors that are about single items, with their positions in the input."""
        return [
            ItemError(
                self.indexes[int(detail.loc[1])],
                detail.loc[2:],
                _MESSAGES.get(detail.type, detail.msg),
                detail.type,
            )
            for detail in details
            if detail.type != _STOPPED and self._is_of_item(detail.loc)
        ]

    def _is_of_item(self, loc: tuple[str, ...]) -> bool:
        return (
            len(loc) > 1
            and loc[0] == "body"
            and loc[1].isdecimal()
            and int(loc[1]) < len(self.indexes)
        )


def divide(batch: Batch, job: str, start: int) -> list[Batch]:
    """Return the outputs of other jobs, if there are some, and then the rest of a batch.

    ``start`` is the position of the first item. The batch is done when the rest is.
    """
    others = Batch(end=start, is_in_run=False, is_scattered=True)
    rest = Batch(invalid=batch.invalid, end=batch.end)
    for index, line in zip(batch.indexes, batch.lines, strict=True):
        (rest if _job_of(line) in (job, None) else others).add(index, line)
    if not rest.lines:
        return [replace(batch, is_in_run=False)]
    return [others, rest] if others.lines else [batch]


def _job_of(line: bytes) -> str | None:
    """Return the job of an output; None if the service will reject it."""
    from msgspec import DecodeError, json

    from gleanery.client.models import OutputOfJob

    try:
        return json.decode(line, type=OutputOfJob).job_id
    except DecodeError:  # ValidationError is one
        return None


def add_result(report: PushReport, batch: Batch, result: BatchResult) -> None:
    """Add the response to a batch, and the items that were not sent."""
    details = [ErrorDetail(tuple(row.loc), row.msg, row.type) for row in result.errors]
    report.created += result.created
    report.updated += result.updated
    report.unchanged += result.unchanged
    report.skipped += result.skipped
    report.batches += 1
    add_skipped(report, batch, batch.item_errors(details))


def add_skipped(report: PushReport, batch: Batch, errors: Sequence[ItemError]) -> None:
    """Add the errors of a batch whose items are done."""
    found = sorted([*errors, *batch.invalid], key=lambda error: error.index)
    report.errors += found[: MAX_ERRORS - len(report.errors)]
    report.skipped += len(batch.invalid)
    report.items = batch.end


def find_errors(batch: Batch, error: ClientError) -> list[ItemError]:
    """Return the items that are at fault. Of a batch with one item, a limit is its error."""
    errors = batch.item_errors(error.detail if isinstance(error, ApiError) else ())
    if errors or not isinstance(error, TooLarge):
        return errors
    return [ItemError(batch.indexes[0], (), describe(error), "too_large")]


def concerns_items(error: ClientError, batch: Batch) -> bool:
    """Return True if smaller batches can be stored: the others are not at fault."""
    if isinstance(error, TooLarge):
        return True
    return isinstance(error, ApiError) and bool(batch.item_errors(error.detail))


def compress(body: bytes) -> bytes:
    """Return the body in gzip; unchanged if that is not worth it."""
    if len(body) < _MIN_COMPRESSED_BYTES:
        return body
    compressed = gzip.compress(body, compresslevel=1, mtime=0)
    return body if len(compressed) * _MAX_RATIO < len(body) else compressed
