"""Operations on retention: how long records are kept, and what a change of that would free."""

from typing import Final

from carrel_scheduler.api.models.queries import DryRun
from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.principals.access import Access
from carrel_schema.governance.retention import RetentionFields, RetentionReport

RETENTION: Final = "/retention"


@Operation(
    "GET",
    RETENTION,
    access=Access.ADMIN,
    permission="audit:read",
    answers={200: RetentionReport},
)
async def read_retention(call: Call) -> Answer:
    """Read how long records are kept, how many there are, and what the next removal frees."""
    return Answer(await call.services.retention.report())


@Operation(
    "PUT",
    RETENTION,
    access=Access.ADMIN,
    permission="audit:update",
    query=DryRun,
    body=RetentionFields,
    answers={200: RetentionReport},
)
async def put_retention(call: Call) -> Answer:
    """Set how long the ledger keeps records; a dry run answers what that would free."""
    if call.query.dry_run:
        return Answer(await call.services.retention.report(call.body))
    return Answer(await call.services.retention.put(call.body))


OPERATIONS: Final = (read_retention, put_retention)
