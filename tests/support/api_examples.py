"""The examples of all operations, in an order in which they work."""

from __future__ import annotations

from gleanery.service.api.operation import Example
from gleanery.service.application import OPERATIONS

_BY_NAME = {
    handler.__name__: example
    for operation in OPERATIONS
    for handler, example in (
        (operation.handler, operation.example),
        (operation.ndjson_handler, operation.ndjson_example),
    )
    if handler is not None and example is not None
}
_STORY = (
    "set_group",
    "store_file",
    "find_file",
    "store_ndjson",
    "store_outputs",
    "get_outputs",
    "get_output",
    "get_history",
    "get_changes",
    "get_file",
    "get_blob",
    "get_review_sample",
    "add_review",
    "get_latest_reviews",
    "get_review",
    "set_monitors",
    "get_monitors",
    "start_run",
    "finish_run",
    "get_run",
    "get_runs",
    "get_alerts",
    "get_alert",
    "set_alert",
    "get_suggested_monitors",
    "decide_removal",
    "get_groups",
    "get_group",
    "get_fields",
    "export_outputs",
    "create_export_link",
    "get_signed_export",
    "set_cookies",
    "get_cookies",
    "import_session",
    "list_sessions",
    "export_session",
    "acquire_lease",
    "list_leases",
    "renew_lease",
    "release_lease",
    "delete_cookies",
    "delete_session",
    "set_local_storage",
    "get_local_storage",
    "delete_local_storage",
    "create_webhook",
    "get_webhooks",
    "get_webhook",
    "set_webhook",
    "enable_webhook",
    "test_webhook",
    "get_deliveries",
    "redeliver",
    "rotate_webhook_secret",
    "delete_webhook",
    "get_audit",
    "delete_output",
    "delete_job",
    "delete_group",
    "healthz",
    "readyz",
    "metrics",
    "openapi",
    "docs",
)
"""Names of handlers: the group is filled, reviewed, read, and at the end deleted."""
EXAMPLES: dict[str, Example] = {name: _BY_NAME[name] for name in (*_STORY, *_BY_NAME)}
