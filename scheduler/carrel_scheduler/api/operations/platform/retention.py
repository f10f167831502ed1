"""Operations on retention: how long records are kept, and what a change of that would free."""

from typing import Final

from carrel_scheduler.api.models.queries import DryRun
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.governance.retention import RetentionFields, RetentionReport

RETENTION: Final = "/retention"


@Operation(
    "GET",
    RETENTION,
    access=AdmittedCallers.ADMIN,
    permission="audit:read",
    answers={200: RetentionReport},
)
async def read_retention(call: Call) -> Response:
    """Read how long records are kept, how many there are, and what the next removal frees."""
    return Response(await call.services.retention.report())


@Operation(
    "PUT",
    RETENTION,
    access=AdmittedCallers.ADMIN,
    permission="audit:update",
    query=DryRun,
    body=RetentionFields,
    answers={200: RetentionReport},
)
async def put_retention(call: Call) -> Response:
    """Set how long the ledger keeps records; a dry run answers what that would free."""
    if call.query.dry_run:
        return Response(await call.services.retention.report(call.body))
    return Response(await call.services.retention.put(call.body))


OPERATIONS: Final = (read_retention, put_retention)
