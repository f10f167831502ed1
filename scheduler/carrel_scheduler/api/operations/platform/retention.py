"""How long what is kept is kept, and what a change of that would free."""

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
    """How long what is kept, how much there is, and what the next removal frees."""
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
    """Say how long the ledger keeps what; a dry run tells what that would free."""
    if call.query.dry_run:
        return Answer(await call.services.retention.report(call.body))
    return Answer(await call.services.retention.put(call.body))


OPERATIONS: Final = (read_retention, put_retention)
