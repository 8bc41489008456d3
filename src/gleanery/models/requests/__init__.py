"""Bodies and queries of requests, as strict pydantic models.

The models give each validation error its location and type, and the OpenAPI document its schemas.
"""

from __future__ import annotations

from gleanery.models.requests.audit import AuditQuery
from gleanery.models.requests.changes import ChangeQuery, OutputTime, VersionQuery
from gleanery.models.requests.files import BlobQuery, FileQuery, FileUpload
from gleanery.models.requests.filters import (
    ExportLinkQuery,
    ExportQuery,
    OutputFilters,
    OutputQuery,
    SignedExportQuery,
    View,
)
from gleanery.models.requests.groups import FieldsQuery, GroupQuery, GroupSettings, GroupsQuery
from gleanery.models.requests.outputs import (
    CheckedFile,
    FieldName,
    FileIn,
    IngestQuery,
    Output,
    OutputIn,
)
from gleanery.models.requests.reviews import FindingIn, ReviewIn, ReviewQuery, ReviewSampleQuery
from gleanery.models.requests.sessions import (
    CookieDeletion,
    DomainQuery,
    LocalStorageDeletion,
    LocalStorageQuery,
    SessionDeletion,
    SessionExport,
    SessionImport,
    SessionsQuery,
)

__all__ = [
    "AuditQuery",
    "BlobQuery",
    "ChangeQuery",
    "CheckedFile",
    "CookieDeletion",
    "DomainQuery",
    "ExportLinkQuery",
    "ExportQuery",
    "FieldName",
    "FieldsQuery",
    "FileIn",
    "FileQuery",
    "FileUpload",
    "FindingIn",
    "GroupQuery",
    "GroupSettings",
    "GroupsQuery",
    "IngestQuery",
    "LocalStorageDeletion",
    "LocalStorageQuery",
    "Output",
    "OutputFilters",
    "OutputIn",
    "OutputQuery",
    "OutputTime",
    "ReviewIn",
    "ReviewQuery",
    "ReviewSampleQuery",
    "SessionDeletion",
    "SessionExport",
    "SessionImport",
    "SessionsQuery",
    "SignedExportQuery",
    "VersionQuery",
    "View",
]
