"""What clients send and receive about the audit log: the query, the actions and the entries."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import MAX_INT64, WholeNumber
from gleanery.service.foundation.models import DateTimeOut, Query, ReviewStatus


class AuditQuery(Query):
    """Part of the audit log to read."""

    cursor: WholeNumber = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="Only entries after this cursor, or after a time in microseconds since 1970.",
    )
    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")


AuditAction = Literal[
    "get_cookies",
    "set_cookies",
    "delete_cookies",
    "get_local_storage",
    "set_local_storage",
    "delete_local_storage",
    "export_session",
    "import_session",
    "delete_session",
    "reveal_value",
    "acquire_lease",
    "renew_lease",
    "release_lease",
    "add_review",
    "decide_removal",
    "export_outputs",
    "create_export_link",
    "set_group",
    "create_webhook",
    "set_webhook",
    "enable_webhook",
    "rotate_webhook_secret",
    "test_webhook",
    "redeliver",
    "delete_webhook",
    "set_monitors",
    "set_alert",
    "create_token",
    "revoke_token",
    "create_login_link",
    "sign_in",
    "refuse_sign_in",
    "sign_out",
    "rename_organization",
    "delete_organization",
    "rotate_keys",
    "forget_keys",
    "restore",
]


class AuditAbout(TypedDict, total=False):
    """Object of an action. Its members depend on the action."""

    records: Annotated[int, Field(description="Number of cookies or entries.")]
    domains: Annotated[
        list[str],
        Field(
            description="Affected domains; all domains if absent. At most 20 for stored records."
        ),
    ]
    for_group: Annotated[
        int, Field(description="`id` of the group in the filter, or of the deleted group.")
    ]
    profile: Annotated[str, Field(description="Account at the site.")]
    format: Annotated[str, Field(description="Format of an import, an export, a link or a lease.")]
    dry_run: Annotated[bool, Field(description="True if an import stored nothing.")]
    group_id: str
    settings: Annotated[
        list[str], Field(description="Settings of the group that have another value now.")
    ]
    job_id: str
    review_id: str
    run_id: str
    webhook_id: str
    delivery_id: str
    alert_id: str
    decision: Literal["remove", "keep"]
    status: ReviewStatus
    outputs: Annotated[int, Field(description="Number of outputs, if a review names them.")]
    token_id: Annotated[
        int,
        Field(description="Token that was created or revoked, or of the session or login link."),
    ]
    scopes: list[str]
    key: Annotated[str, Field(description="Fingerprint of the new key.")]
    person: Annotated[str, Field(description="Name of the person, for actions in the console.")]
    of_person: Annotated[
        str,
        Field(description="Person of the login link, or of the session that somebody else ended."),
    ]
    everywhere: Annotated[bool, Field(description="True if all sessions of the token ended.")]
    reason: Annotated[
        Literal["expired_token", "revoked_token", "expired_link"],
        Field(description="Why a sign-in was refused."),
    ]


class AuditEntry(TypedDict):
    """Entry of the audit log. It never contains a value, a cookie's name or an entry's key."""

    id: int
    date: DateTimeOut
    token_id: Annotated[int | None, Field(description="Actor; null for the command line.")]
    request_id: Annotated[str | None, Field(description="X-Request-ID of the response.")]
    action: Annotated[AuditAction, Field(description="Operation or command.")]
    about: AuditAbout


class AuditPage(TypedDict):
    """Entries, oldest first, and the cursor to continue from."""

    cursor: int
    entries: list[AuditEntry]
