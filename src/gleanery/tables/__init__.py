"""Files of outputs: JSON lines, CSV and Parquet, in a local file, on standard output or in S3.

It sends no request to the service: a caller gives the outputs page by page.
"""

from gleanery.tables.export import ExportError, ExportFailed, ExportReport, InvalidExport, Widening
from gleanery.tables.writer import (
    DATA_FORMS,
    FORMATS,
    ExportWriter,
    FormatName,
    available_formats,
    format_of,
    open_export,
)

__all__ = [
    "DATA_FORMS",
    "FORMATS",
    "ExportError",
    "ExportFailed",
    "ExportReport",
    "ExportWriter",
    "FormatName",
    "InvalidExport",
    "Widening",
    "available_formats",
    "format_of",
    "open_export",
]
