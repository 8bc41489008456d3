"""``gleanery export``: the outputs of a group in one file."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from gleanery.cli.commands import INTERRUPTED
from gleanery.cli.data.command import (
    FAILURE,
    USER_ERROR,
    AsJson,
    CommandFailed,
    UserError,
    data_command,
    name_options,
    print_json,
)
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.data.file_export import FileExport
from gleanery.cli.data.progress import Progress, Quiet
from gleanery.cli.data.segments import file_name
from gleanery.cli.data.stop_signals import StopSignals
from gleanery.cli.declaration import CommandGroup, Option
from gleanery.tables import ExportError, FormatName, InvalidExport, format_of
from gleanery.tables.destinations import STANDARD_OUTPUT, is_device

if TYPE_CHECKING:
    from gleanery.client import Client
    from gleanery.client.requests import OutputFilters
    from gleanery.tables import ExportReport, ExportWriter, Widening

app = CommandGroup()

_FILTERS = "Filters"
_TYPES = {
    "bool": "true or false",
    "int64": "integers",
    "double": "numbers",
    "string": "text",
    "timestamp": "dates",
    "json": "JSON text",
}
"""Words for the types of columns."""


@data_command(
    app,
    "export",
    examples=(
        "gleanery export shop-prices -o prices.parquet",
        "gleanery export shop-prices -o prices.csv --fields source_url,data.price",
        "gleanery export shop-prices -o s3://bucket/prices.jsonl --view approved",
        "gleanery export shop-prices -n 3 | jq .data",
    ),
)
def export(
    group: GroupName,
    output: Annotated[
        str | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File, s3://bucket/key, or - for standard output. Default: standard output; on a "
            "terminal, a new file with the name of the group.",
        ),
    ] = None,
    format_: Annotated[
        FormatName | None,
        Option(
            "--format",
            metavar="FORMAT",
            help="jsonl, csv or parquet. Default: by the ending of FILE, else jsonl.",
        ),
    ] = None,
    job: Annotated[
        str | None,
        Option("--job", metavar="JOB", section=_FILTERS, help="Only outputs of this job."),
    ] = None,
    created_after: Annotated[
        str | None,
        Option(
            "--created-after",
            metavar="DATE",
            section=_FILTERS,
            help="Only outputs created or updated since then, such as 2026-11-30.",
        ),
    ] = None,
    source_url: Annotated[
        str | None,
        Option(
            "--url",
            metavar="URL",
            section=_FILTERS,
            help="Only outputs of exactly this page.",
        ),
    ] = None,
    country: Annotated[
        str | None,
        Option(
            "--country",
            metavar="COUNTRY",
            section=_FILTERS,
            help="Only outputs of this country: name or code.",
        ),
    ] = None,
    region: Annotated[
        str | None,
        Option(
            "--region",
            metavar="REGION",
            section=_FILTERS,
            help="Only outputs of this region, such as DE-BY.",
        ),
    ] = None,
    approved: Annotated[
        bool,
        Option("--approved", section=_FILTERS, help="Only outputs that are approved now."),
    ] = False,
    not_approved: Annotated[
        bool,
        Option(
            "--not-approved",
            section=_FILTERS,
            help="Only outputs that are not approved now.",
        ),
    ] = False,
    missing: Annotated[
        bool,
        Option(
            "--missing",
            section=_FILTERS,
            help="Only outputs that the last complete run of their job did not send.",
        ),
    ] = False,
    view: Annotated[
        Literal["full", "approved"] | None,
        Option(
            "--view",
            metavar="VIEW",
            section=_FILTERS,
            help="approved: each output in its last approved version, even if it has a newer "
            "value. Default: full.",
        ),
    ] = None,
    fields: Annotated[
        str | None,
        Option(
            "--fields",
            metavar="A,B",
            help="Only these fields, in this order, such as source_url,data.price.",
        ),
    ] = None,
    data: Annotated[
        Literal["columns", "json"],
        Option(
            "--data",
            metavar="FORM",
            help="In tables: columns (one for each key of data) or json (one with JSON text).",
        ),
    ] = "columns",
    limit: Annotated[
        int | None,
        Option(
            "--limit",
            "-n",
            metavar="N",
            min=0,
            section=_FILTERS,
            help="At most N outputs.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace a file that exists already.")
    ] = False,
    resume: Annotated[
        bool, Option("--resume", help="Continue an export to this file that was stopped.")
    ] = False,
    keep_formulas: Annotated[
        bool,
        Option(
            "--no-escape-formulas",
            help="CSV: put no apostrophe before text that a spreadsheet would run as a formula.",
        ),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Write the outputs of a group to a file, each once. The file appears when it is complete.

    No value is lost or changed. A column of a table whose values have several types becomes text,
    and the command says so. Parquet needs pip install 'gleanery[parquet]', and S3 'gleanery[s3]'.
    """
    target, chosen = _destination(group, output, format_)
    if target == "-":
        _check_stream(chosen, as_json)
    if approved and not_approved:
        raise UserError("--approved and --not-approved exclude each other: give one of them")
    if view == "approved" and (approved or not_approved):
        option = "--approved" if approved else "--not-approved"
        raise UserError(f"--view approved has only approved versions: leave out {option}")
    if view == "approved" and missing:
        raise UserError("--missing is about outputs as they are now: leave out --view approved")
    if resume and not _is_file(target):
        raise UserError("Only an export to a file can continue: leave out --resume")
    filters: OutputFilters = {
        "job_id": job,
        "created_after": created_after,
        "url": source_url,
        "country": country,
        "region": region,
        "approved": approved if approved or not_approved else None,
        "view": view if view == "approved" else None,
        "missing": True if missing else None,
    }
    form = {
        "format": chosen,
        "data": data,
        "fields": None if fields is None else fields.split(","),
        "escape_formulas": not keep_formulas,
        "overwrite": overwrite,
    }
    with (
        Progress("Exported", "output", is_quiet=quiet) as progress,
        open_client(url, token_file, progress) as client,
        known_group(client, group),
    ):
        progress.total = _total(client, group, filters, limit)
        try:
            if _is_file(target):
                with StopSignals() as signals:
                    file = FileExport(client, group, target, filters, limit, progress, signals)
                    report = file.run(form, resume)
            else:
                report = _write_stream(client, group, target, form, filters, limit, progress)
        except ExportError as error:
            status = USER_ERROR if isinstance(error, InvalidExport) else FAILURE
            raise CommandFailed(name_options(str(error)), status) from None
        _show(report, target, progress, filters)
    if as_json:
        print_json({"destination": target, "format": chosen, **_as_document(report)})


def _destination(
    group: str, output: str | None, format_: FormatName | None
) -> tuple[str, FormatName]:
    """Return where the outputs go, and in which format."""
    if output is None:
        chosen = format_ or "jsonl"
        return ("-" if not sys.stdout.isatty() else f"{file_name(group)}.{chosen}"), chosen
    if output in STANDARD_OUTPUT:
        output = "-"
    if format_ is not None:
        return output, format_
    try:
        return output, format_of(output)
    except InvalidExport as error:
        raise UserError(name_options(str(error))) from None


def _check_stream(format_: FormatName, as_json: bool) -> None:
    """Raise UserError if standard output cannot take the outputs."""
    if as_json:
        raise UserError(
            "Standard output cannot take both the outputs and a report: leave out --json"
        )
    if format_ == "parquet" and sys.stdout.isatty():
        raise UserError("A terminal cannot show Parquet: give a file with -o")


def _total(client: Client, group: str, filters: OutputFilters, limit: int | None) -> int | None:
    """Return the number of outputs, if it is known without reading them."""
    given = [name for name, value in filters.items() if value is not None]
    if given not in ([], ["job_id"]):
        return None
    found = client.group(group)
    counts = {job.job_id: job.outputs for job in found.jobs}
    total = counts.get(str(filters["job_id"]), 0) if given else found.outputs
    return total if limit is None else min(total, limit)


def _is_file(target: str) -> bool:
    """Return False for standard output, S3, a pipe and a device."""
    return target != "-" and not target.startswith("s3://") and not is_device(target)


def _write_stream(
    client: Client,
    group: str,
    target: str,
    form: dict[str, Any],
    filters: OutputFilters,
    limit: int | None,
    progress: Progress,
) -> ExportReport:
    """Write to a destination that cannot keep a part of the outputs."""

    def show(writer: ExportWriter) -> None:
        progress.advance(writer.rows - progress.items, writer.item_bytes - progress.bytes)

    try:
        return client.export(group, target, on_progress=show, limit=limit, **form, **filters)
    except KeyboardInterrupt:
        command = shlex.join(["gleanery", *sys.argv[1:]])
        message = f"interrupted. To start again, run: {command}"
        raise CommandFailed(message, INTERRUPTED) from None


def _show(report: ExportReport, target: str, progress: Progress, filters: OutputFilters) -> None:
    """Show what the user cannot see in the file: widened columns, and fields that no output has."""
    for column in report.widenings:
        progress.note(_describe(column))
    for field in report.missing_fields:
        progress.note(f"No output has the field {field}")
    if not report.rows and any(value is not None for value in filters.values()):
        progress.note("No output matches the filters")
    progress.verb, progress.items, progress.bytes = "Exported", report.rows, report.bytes
    progress.summarize(f"to {'standard output' if target == '-' else target}")


def _describe(column: Widening) -> str:
    """Return why a column is stored as another type, in words of people."""
    others = "1 value" if column.count == 1 else f"{column.count:,} values"
    return (
        f"Column {column.field} has {_TYPES[column.old_type]} and {others} of another kind: it is "
        f"stored as {_TYPES[column.new_type]}; first in row {column.row:,}"
    )


def _as_document(report: ExportReport) -> dict[str, Any]:
    return {
        "outputs": report.rows,
        "bytes": report.bytes,
        "cursor": report.cursor,
        "widenings": report.widenings,
        "missing_fields": report.missing_fields,
    }
