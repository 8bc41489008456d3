"""The operations of groups and jobs, with their examples."""

from __future__ import annotations

from typing import Any

from gleanery.service.api.examples import (
    DELETED,
    GROUP_ID,
    GROUP_SETTINGS,
    IMPLICIT_RUN_ID,
    IN_GROUP,
    JOB_ID,
    LAST_PAGE,
    REVIEW,
    REVIEW_DATE,
    RUN_ID,
    SCRAPE_DATE,
)
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.foundation.models import Deleted
from gleanery.service.resources.fields.models import FieldsOut
from gleanery.service.resources.groups import console, console_inbox, handlers
from gleanery.service.resources.groups.models import (
    FieldsQuery,
    GroupOut,
    GroupQuery,
    GroupSettings,
    GroupsQuery,
)

_REVIEW_CURSOR = 1772447400000001
_NEW_GROUP = {
    "group_id": GROUP_ID,
    "id": 7,
    "display_name": "Shop prices",
    "outputs": 0,
    "last_change": None,
    "cursor": 0,
    "key_fields": ["sku"],
    "schema": None,
    "retain_days": 90,
    "keep_versions": 50,
    "keep_days": 90,
    "run_timeout_minutes": 360,
    "missing": GROUP_SETTINGS["missing"],
    "countries": {},
    "has_more_countries": False,
    "jobs": [],
    "metadata": LAST_PAGE,
}
_GROUP = _NEW_GROUP | {
    "outputs": 2,
    "last_change": REVIEW_DATE,
    "cursor": _REVIEW_CURSOR,
    "countries": {"DE": 2},
    "jobs": [{"job_id": JOB_ID, "outputs": 2, "approved": 2, "latest_review": REVIEW}],
}
_FIELD_COUNTS: list[dict[str, Any]] = [
    {"path": "currency", "filled": 2, "fill_rate": 1.0, "kinds": {"string": 2}},
    {"path": "name", "filled": 2, "fill_rate": 1.0, "kinds": {"string": 2}},
    {"path": "price", "filled": 2, "fill_rate": 1.0, "kinds": {"number": 2}},
    {"path": "sku", "filled": 2, "fill_rate": 1.0, "kinds": {"string": 2}},
]
_RANGES: list[dict[str, Any]] = [
    {"range": None, "length": {"min": 3, "median": 3, "max": 3}},
    {"range": None, "length": {"min": 10, "median": 11, "max": 12}},
    {"range": {"min": 7.5, "max": 18.9}, "length": None},
    {"range": None, "length": {"min": 4, "median": 4, "max": 4}},
]
_TEXT_SCHEMA = {"type": "string", "minLength": 1}
_FIELDS = {
    "group_id": GROUP_ID,
    "job_id": JOB_ID,
    "outputs": 2,
    "counted_outputs": 2,
    "fields": [counts | ranges for counts, ranges in zip(_FIELD_COUNTS, _RANGES, strict=True)],
    "runs": [
        {
            "run_id": RUN_ID,
            "job_id": JOB_ID,
            "status": "complete",
            "start_date": REVIEW_DATE,
            "last_date": REVIEW_DATE,
            "outputs": 0,
            "fields": [],
        },
        {
            "run_id": IMPLICIT_RUN_ID,
            "job_id": JOB_ID,
            "status": "running",
            "start_date": SCRAPE_DATE,
            "last_date": SCRAPE_DATE,
            "outputs": 2,
            "fields": _FIELD_COUNTS,
        },
    ],
    "drift": [],
    "schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "currency": _TEXT_SCHEMA,
            "name": _TEXT_SCHEMA,
            "price": {"type": "number"},
            "sku": _TEXT_SCHEMA,
        },
        "required": ["currency", "name", "price", "sku"],
    },
}

_OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/groups",
        handler=handlers.get_groups,
        title="Get groups",
        description="The organization's groups with their counts and settings, in the order of "
        "their creation, each with its first 100 jobs. The `Link` header has the URL of the next "
        "page, which can follow after fewer groups than `limit`. The `metadata` of a group has "
        "the URL of its next jobs.",
        scopes=("outputs:read",),
        query=GroupsQuery,
        response=list[GroupOut],
        example=Example(query={"limit": 100}, response=[_GROUP]),
    ),
    Operation(
        method="GET",
        path="/v1/groups/{group_id}",
        handler=handlers.get_group,
        title="Get a group",
        description="One group with its counts, its settings and a page of its jobs with their "
        "latest reviews, in the order of their creation. For the next jobs, pass `next_cursor` as "
        "`cursor`, or follow `next_url`. Both are null on the last page, and only there.",
        scopes=("outputs:read",),
        query=GroupQuery,
        response=GroupOut,
        example=Example(path=IN_GROUP, response=_GROUP),
    ),
    Operation(
        method="PUT",
        path="/v1/groups/{group_id}",
        handler=handlers.set_group,
        title="Set up a group",
        description="Replaces the settings of a group; an omitted setting gets its default. A new "
        "group is created. A new key or schema applies to outputs that are stored afterwards.",
        scopes=("outputs:write",),
        creates_resource=True,
        body=GroupSettings,
        response=GroupOut,
        example=Example(path=IN_GROUP, body=GROUP_SETTINGS, response=_NEW_GROUP),
    ),
    Operation(
        method="DELETE",
        path="/v1/groups/{group_id}",
        handler=handlers.delete_group,
        title="Delete a group",
        description="Deletes the group with all its jobs, outputs, reviews, settings "
        "and local-storage entries. The change feed remains, and reports the deletion of every "
        "output.",
        scopes=("outputs:write",),
        response=Deleted,
        example=Example(path=IN_GROUP, response={"deleted": 0}),
    ),
    Operation(
        method="GET",
        path="/v1/groups/{group_id}/fields",
        handler=handlers.get_fields,
        title="Get field statistics",
        description="How often each field of `data` is filled, with which kinds of values and in "
        "which range, for the group or for one job. Fields are the members of `data`, and the "
        "members of objects in it. `runs` has the same for the newest runs, and `drift` the "
        "fields that the newest run of a job fills more or less often than the median of up to "
        "10 earlier ones: by more than 5 points, and by more than three standard deviations. "
        "Runs with fewer than 50 outputs are not compared, nor are failed and abandoned ones. "
        "`schema` is a suggestion for the setting `schema` of the group.",
        scopes=("outputs:read",),
        query=FieldsQuery,
        response=FieldsOut,
        example=Example(path=IN_GROUP, query={"job_id": JOB_ID}, response=_FIELDS),
    ),
    Operation(
        method="DELETE",
        path="/v1/groups/{group_id}/jobs/{job_id}",
        handler=handlers.delete_job,
        title="Delete a job",
        description="Deletes the job with its outputs, runs and reviews. The change feed reports "
        "the deletion of every output.",
        scopes=("outputs:write",),
        response=Deleted,
        example=Example(path={**IN_GROUP, "job_id": JOB_ID}, response=DELETED),
    ),
)

_CONSOLE_OPERATIONS = (
    Operation(
        method="GET",
        path="/console/api/inbox",
        handler=console_inbox.console_inbox,
        title="Inbox",
        description="Jobs that wait for a review, and sessions that expire soon.",
        needs_session=True,
        query=console_inbox.InboxQuery,
        response=console_inbox.Inbox,
    ),
    Operation(
        method="GET",
        path="/console/api/groups",
        handler=console.console_groups,
        title="Groups",
        description="Groups by name, with their numbers.",
        scopes=("outputs:read",),
        needs_session=True,
        query=console.ConsoleGroupsQuery,
        response=console.ListedGroups,
    ),
    Operation(
        method="GET",
        path="/console/api/groups/{group_id}/jobs",
        handler=console.console_jobs,
        title="Jobs of a group",
        description="The jobs of a group with their numbers.",
        scopes=("outputs:read",),
        needs_session=True,
        query=console.ConsoleJobsQuery,
        response=console.JobsOfGroup,
    ),
)

RESOURCE = Resource(
    tags={"groups": "Groups with their jobs, counts and settings."},
    operations=_OPERATIONS,
    console_operations=_CONSOLE_OPERATIONS,
)
