"""The operations of reviews, with their examples."""

from __future__ import annotations

from gleanery.service.api.examples import COFFEE_OUT, IN_GROUP, JOB_ID, LAST_CURSOR, REVIEW, TEA_OUT
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.resources.reviews import console, handlers
from gleanery.service.resources.reviews.models import (
    AddedReview,
    ChosenOutputs,
    ConsoleSample,
    FieldPage,
    FieldsQuery,
    JobReviews,
    JobReviewsQuery,
    LaterQuery,
    LaterValues,
    ReviewDetails,
    ReviewIn,
    ReviewOut,
    ReviewQuery,
    ReviewSample,
    ReviewSampleQuery,
    SampleQuery,
)

_FINDING = {"output_id": TEA_OUT["output_id"], "path": "price", "note": "Only until Sunday."}

_OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/reviews/{group_id}",
        handler=handlers.get_latest_reviews,
        title="Get latest reviews",
        description="The latest review of each reviewed job of the group, newest first. With "
        "`history=true`, all reviews of the group. A list is limited in bytes: if it is not "
        "complete, the `Link` header has the URL of the next page.",
        scopes=("reviews:read",),
        query=ReviewQuery,
        response=list[ReviewOut],
        example=Example(path=IN_GROUP, response=[REVIEW]),
    ),
    Operation(
        method="GET",
        path="/v1/reviews/{group_id}/sample",
        handler=handlers.get_review_sample,
        title="Get a sample for a review",
        description="Outputs of a job for a reviewer to look at: half of them random, a quarter "
        "changed since their last approval, and a quarter with a rare shape or an extreme value. "
        "If there are fewer of the latter, more are random. The random outputs represent the job. "
        "If the job has at most `size` outputs, the sample has all of them. It is limited in "
        "bytes, so it can have fewer. Send `cursor` as `as_of` of the review.",
        scopes=("reviews:read", "outputs:read"),
        query=ReviewSampleQuery,
        response=ReviewSample,
        example=Example(
            path=IN_GROUP,
            query={"job_id": JOB_ID, "seed": "march"},
            response={
                "seed": "march",
                "job_id": JOB_ID,
                "cursor": LAST_CURSOR,
                "outputs": 2,
                "sample": [
                    {
                        "reason": "random",
                        "detail": None,
                        "output": output,
                        "approved_output": None,
                        "fields": None,
                    }
                    for output in (TEA_OUT, COFFEE_OUT)
                ],
            },
        ),
    ),
    Operation(
        method="GET",
        path="/v1/reviews/{group_id}/{review_id}",
        handler=handlers.get_review,
        title="Get a review",
        description="One review, with what it is about and its findings.",
        scopes=("reviews:read",),
        response=ReviewDetails,
        example=Example(
            path={**IN_GROUP, "review_id": REVIEW["review_id"]},
            response=REVIEW
            | {
                "person": None,
                "as_of": LAST_CURSOR,
                "output_ids": None,
                "skipped_output_ids": None,
                "findings": [_FINDING],
            },
        ),
    ),
    Operation(
        method="POST",
        path="/v1/reviews/{group_id}",
        handler=handlers.add_review,
        title="Add a review",
        description="Adds a review of a job. `approved` approves the current outputs of the job. "
        "`changes_requested` and `rejected` withdraw the approval. `pending` and `in_review` do "
        "not change it. An output gets a new position in the change order if its approval changes. "
        "With `as_of`, the review applies only to what its reviewer has seen: a value that was "
        "stored after that is left as it is. With `output_ids`, the review applies only to "
        "these outputs of the job, and changes them in one transaction. `changes_requested` and "
        "`rejected` also remove the outputs from the approved view. With `as_of`, they remove an "
        "approved version that was stored until then, even if the present value is later. "
        "With an `Idempotency-Key`, a repeated request gets the first response again for one day, "
        "and the review is added once.",
        scopes=("reviews:write",),
        body=ReviewIn,
        accepts_idempotency_key=True,
        response=AddedReview,
        extra_errors=(410,),
        example=Example(
            path=IN_GROUP,
            body={
                "job_id": JOB_ID,
                "status": "approved",
                "comment": REVIEW["comment"],
                "as_of": LAST_CURSOR,
                "findings": [_FINDING],
            },
            response=REVIEW,
        ),
    ),
)

_CONSOLE_OPERATIONS = (
    Operation(
        method="GET",
        path="/console/api/sample/{group_id}",
        handler=console.get_sample,
        title="Sample",
        description="Outputs of a job to review, beside their last approved versions.",
        needs_session=True,
        scopes=("reviews:read", "outputs:read"),
        query=SampleQuery,
        response=ConsoleSample,
    ),
    Operation(
        method="POST",
        path="/console/api/sample/{group_id}",
        handler=console.read_sample_again,
        title="Earlier sample",
        description="The outputs of an earlier sample, as they are now.",
        needs_session=True,
        scopes=("reviews:read", "outputs:read"),
        body=ChosenOutputs,
        response=ConsoleSample,
    ),
    Operation(
        method="POST",
        path="/console/api/sample/{group_id}/later",
        handler=console.get_later_values,
        title="Later values",
        description="Which outputs of a sample were changed or deleted after its position.",
        needs_session=True,
        scopes=("reviews:read",),
        body=LaterQuery,
        response=LaterValues,
    ),
    Operation(
        method="GET",
        path="/console/api/outputs/{group_id}/{output_id}/fields",
        handler=console.get_fields,
        title="Fields of an output",
        description="All fields of an output to review, beside its last approved version.",
        needs_session=True,
        scopes=("reviews:read", "outputs:read"),
        query=FieldsQuery,
        response=FieldPage,
    ),
    Operation(
        method="GET",
        path="/console/api/reviews/{group_id}",
        handler=console.get_job_reviews,
        title="Reviews of a job",
        description="The newest reviews of a job, with reviewers and findings.",
        needs_session=True,
        scopes=("reviews:read",),
        query=JobReviewsQuery,
        response=JobReviews,
    ),
)

RESOURCE = Resource(
    tags={"reviews": "Reviews of jobs, which approve outputs."},
    operations=_OPERATIONS,
    console_operations=_CONSOLE_OPERATIONS,
)
