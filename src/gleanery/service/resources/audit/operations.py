"""The operations of the audit log, with their examples."""

from __future__ import annotations

from gleanery.service.api.examples import GROUP_ID, GROUP_SETTINGS, JOB_ID, REVIEW, REVIEW_DATE
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.foundation.security import tokens
from gleanery.service.resources.audit import handlers
from gleanery.service.resources.audit.models import AuditPage, AuditQuery

_OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/audit",
        handler=handlers.get_audit,
        title="Get the audit log",
        description="The audit log: who read, stored or deleted cookies and local storage, added "
        "reviews, changed the settings of a group, created links to exports, created or revoked "
        "tokens, or rotated the secret key. Entries are in commit order, oldest first, and never "
        "change. To continue, pass the `cursor` of the response.",
        scopes=("audit:read",),
        query=AuditQuery,
        response=AuditPage,
        example=Example(
            query={"limit": 3},
            response={
                "cursor": 1772447400104601,
                "entries": [
                    {
                        "id": 1772438400922067,
                        "date": "2026-03-02T08:00:00Z",
                        "token_id": None,
                        "request_id": None,
                        "action": "create_token",
                        "about": {"token_id": 5, "scopes": sorted(tokens.SCOPES)},
                    },
                    {
                        "id": 1772440200310442,
                        "date": "2026-03-02T08:30:00Z",
                        "token_id": 5,
                        "request_id": "0c44a1d87be25f90e6a1",
                        "action": "set_group",
                        "about": {"group_id": GROUP_ID, "settings": list(GROUP_SETTINGS)},
                    },
                    {
                        "id": 1772447400104601,
                        "date": REVIEW_DATE,
                        "token_id": 5,
                        "request_id": "137b19b763d239e45e9c",
                        "action": "add_review",
                        "about": {
                            "group_id": GROUP_ID,
                            "job_id": JOB_ID,
                            "review_id": REVIEW["review_id"],
                            "status": "approved",
                        },
                    },
                ],
            },
        ),
    ),
)

_CONSOLE_OPERATIONS = (
    Operation(
        method="GET",
        path="/console/api/audit",
        handler=handlers.read_audit_log,
        title="Audit log",
        description="The audit log, newest first.",
        needs_session=True,
        scopes=("audit:read",),
        query=handlers.AuditLogQuery,
        response=handlers.AuditLogPage,
    ),
)

RESOURCE = Resource(
    tags={"audit": "Audit log of the organization."},
    operations=_OPERATIONS,
    console_operations=_CONSOLE_OPERATIONS,
)
