"""The operation of the change feed, with its example."""

from __future__ import annotations

from gleanery.service.api.examples import (
    FIRST_CURSOR,
    GROUP_ID,
    IN_GROUP,
    LAST_CURSOR,
    LAST_PAGE,
    SCRAPE_DATE,
    TEA_OUT,
)
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.resources.changes import handlers
from gleanery.service.resources.changes.models import ChangePage, ChangeQuery

_OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/changes/{group_id}",
        handler=handlers.get_changes,
        title="Get changes",
        description="The group's creations, updates, approval changes and deletions in commit "
        "order. For the next page, pass `next_cursor` as `cursor`, or follow `next_url`. Both are "
        "null if there are no further changes yet, and only then. To continue later, pass the "
        "`cursor` of the response, or of the last change that you have processed. A page is "
        "limited in bytes, so it can have fewer changes than `limit`. With `wait`, the response "
        "comes as soon as there is a change. Each view has its own feed; a client stays with one "
        "view. The feed keeps deletions for 30 days, if the operator "
        "has not changed that. An older cursor, or one from before a restore, gets 410: start "
        "again with cursor 0. With `diff=true`, each update says which fields have changed.",
        scopes=("outputs:read",),
        query=ChangeQuery,
        response=ChangePage,
        extra_errors=(410,),
        example=Example(
            path=IN_GROUP,
            query={"cursor": FIRST_CURSOR, "limit": 100},
            response={
                "metadata": LAST_PAGE,
                "cursor": LAST_CURSOR,
                "changes": [
                    {
                        "change": "create",
                        "cursor": LAST_CURSOR,
                        "change_date": SCRAPE_DATE,
                        "group_id": GROUP_ID,
                        "output_id": TEA_OUT["output_id"],
                        "output": TEA_OUT,
                    }
                ],
            },
        ),
    ),
)

RESOURCE = Resource(
    tags={"changes": "Every change of a group's outputs, in commit order."},
    operations=_OPERATIONS,
)
