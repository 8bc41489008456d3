"""The Python client library: reads, stores and exports data over HTTP, and converts sessions.

Of the rest of Gleanery, it imports only the base class of its errors. Names are imported on first
use, so that a program that needs one of them does not load the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gleanery import sessions as sessions
    from gleanery.client._async.client import AsyncClient
    from gleanery.client._async.exports import AsyncExportPages
    from gleanery.client._async.leases import AsyncLease
    from gleanery.client._async.pager import AsyncChangePager, AsyncOutputPager, AsyncPager
    from gleanery.client._async.runs import AsyncRun
    from gleanery.client._async.sessions import AsyncSession
    from gleanery.client._sync.client import Client
    from gleanery.client._sync.exports import ExportPages
    from gleanery.client._sync.leases import Lease
    from gleanery.client._sync.pager import ChangePager, OutputPager, Pager
    from gleanery.client._sync.runs import Run
    from gleanery.client._sync.sessions import Session
    from gleanery.client.errors import (
        ApiError,
        ClientError,
        Conflict,
        ConnectionFailed,
        CursorExpired,
        ErrorDetail,
        Forbidden,
        Invalid,
        InvalidResponse,
        InvalidState,
        InvalidWebhook,
        LeaseLost,
        NotConfigured,
        NotFound,
        RateLimited,
        ServerError,
        TimedOut,
        TooLarge,
        Unauthorized,
        Unavailable,
    )
    from gleanery.client.files import FileChanged
    from gleanery.client.models import (
        Change,
        Creation,
        DeletedOutput,
        Deletion,
        Drift,
        ExportLink,
        FieldChange,
        Fields,
        FieldStatistics,
        File,
        Finding,
        Group,
        Job,
        MissingSettings,
        Output,
        Review,
        ReviewDetails,
        ReviewSample,
        RunCounts,
        RunFields,
        RunRecord,
        SampledOutput,
        StoredFile,
        Update,
        Version,
    )
    from gleanery.client.monitor_models import (
        Alert,
        AlertFacts,
        AlertField,
        Rule,
        RulePreview,
        SuggestedRule,
    )
    from gleanery.client.pages import RecordList
    from gleanery.client.pushes import ItemError, PushFailed, PushReport
    from gleanery.client.session_models import (
        ChangedLease,
        ImportResult,
        NewCookie,
        NewEntry,
        SessionExport,
        SessionSummary,
        StoredCookie,
        StoredEntry,
        WriteCounts,
    )
    from gleanery.client.sync import SyncBatch, SyncState
    from gleanery.client.webhook_models import (
        Delivery,
        DeliveryAttempt,
        Webhook,
        WebhookWithSecret,
    )
    from gleanery.client.webhooks import WebhookEvent
    from gleanery.tables import ExportError, ExportFailed, ExportReport, InvalidExport

_MODULES = {
    "gleanery.client._async.client": ["AsyncClient"],
    "gleanery.client._async.exports": ["AsyncExportPages"],
    "gleanery.client._async.leases": ["AsyncLease"],
    "gleanery.client._async.pager": ["AsyncChangePager", "AsyncOutputPager", "AsyncPager"],
    "gleanery.client._async.runs": ["AsyncRun"],
    "gleanery.client._async.sessions": ["AsyncSession"],
    "gleanery.client._sync.client": ["Client"],
    "gleanery.client._sync.exports": ["ExportPages"],
    "gleanery.client._sync.leases": ["Lease"],
    "gleanery.client._sync.pager": ["ChangePager", "OutputPager", "Pager"],
    "gleanery.client._sync.runs": ["Run"],
    "gleanery.client._sync.sessions": ["Session"],
    "gleanery.client.errors": [
        "ApiError",
        "ClientError",
        "Conflict",
        "ConnectionFailed",
        "CursorExpired",
        "ErrorDetail",
        "Forbidden",
        "Invalid",
        "InvalidResponse",
        "InvalidState",
        "InvalidWebhook",
        "LeaseLost",
        "NotConfigured",
        "NotFound",
        "RateLimited",
        "ServerError",
        "TimedOut",
        "TooLarge",
        "Unauthorized",
        "Unavailable",
    ],
    "gleanery.tables": ["ExportError", "ExportFailed", "ExportReport", "InvalidExport"],
    "gleanery.client.files": ["FileChanged"],
    "gleanery.client.models": [
        "Change",
        "Creation",
        "DeletedOutput",
        "Deletion",
        "Drift",
        "ExportLink",
        "FieldChange",
        "FieldStatistics",
        "Fields",
        "File",
        "Finding",
        "Group",
        "Job",
        "MissingSettings",
        "Output",
        "Review",
        "ReviewDetails",
        "ReviewSample",
        "RunCounts",
        "RunFields",
        "RunRecord",
        "SampledOutput",
        "StoredFile",
        "Update",
        "Version",
    ],
    "gleanery.client.monitor_models": [
        "Alert",
        "AlertFacts",
        "AlertField",
        "Rule",
        "RulePreview",
        "SuggestedRule",
    ],
    "gleanery.client.pages": ["RecordList"],
    "gleanery.client.pushes": ["ItemError", "PushFailed", "PushReport"],
    "gleanery.client.session_models": [
        "ChangedLease",
        "ImportResult",
        "NewCookie",
        "NewEntry",
        "SessionExport",
        "SessionSummary",
        "StoredCookie",
        "StoredEntry",
        "WriteCounts",
    ],
    "gleanery.client.sync": ["SyncBatch", "SyncState"],
    "gleanery.client.webhook_models": [
        "Delivery",
        "DeliveryAttempt",
        "Webhook",
        "WebhookWithSecret",
    ],
    "gleanery.client.webhooks": ["WebhookEvent"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Alert",
    "AlertFacts",
    "AlertField",
    "ApiError",
    "AsyncChangePager",
    "AsyncClient",
    "AsyncExportPages",
    "AsyncLease",
    "AsyncOutputPager",
    "AsyncPager",
    "AsyncRun",
    "AsyncSession",
    "Change",
    "ChangePager",
    "ChangedLease",
    "Client",
    "ClientError",
    "Conflict",
    "ConnectionFailed",
    "Creation",
    "CursorExpired",
    "DeletedOutput",
    "Deletion",
    "Delivery",
    "DeliveryAttempt",
    "Drift",
    "ErrorDetail",
    "ExportError",
    "ExportFailed",
    "ExportLink",
    "ExportPages",
    "ExportReport",
    "FieldChange",
    "FieldStatistics",
    "Fields",
    "File",
    "FileChanged",
    "Finding",
    "Forbidden",
    "Group",
    "ImportResult",
    "Invalid",
    "InvalidExport",
    "InvalidResponse",
    "InvalidState",
    "InvalidWebhook",
    "ItemError",
    "Job",
    "Lease",
    "LeaseLost",
    "MissingSettings",
    "NewCookie",
    "NewEntry",
    "NotConfigured",
    "NotFound",
    "Output",
    "OutputPager",
    "Pager",
    "PushFailed",
    "PushReport",
    "RateLimited",
    "RecordList",
    "Review",
    "ReviewDetails",
    "ReviewSample",
    "Rule",
    "RulePreview",
    "Run",
    "RunCounts",
    "RunFields",
    "RunRecord",
    "SampledOutput",
    "ServerError",
    "Session",
    "SessionExport",
    "SessionSummary",
    "StoredCookie",
    "StoredEntry",
    "StoredFile",
    "SuggestedRule",
    "SyncBatch",
    "SyncState",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Update",
    "Version",
    "Webhook",
    "WebhookEvent",
    "WebhookWithSecret",
    "WriteCounts",
]


def __getattr__(name: str) -> Any:
    if name == "sessions":  # a documented path of the package that the service shares
        return import_module("gleanery.sessions")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__, "sessions"]
