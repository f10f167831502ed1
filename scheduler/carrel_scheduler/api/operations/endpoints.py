"""Who comes in by a route."""

from typing import Final

from carrel_scheduler.api import redact
from carrel_scheduler.api.models.workloads import Sharing
from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.operations.paths import WORKLOAD
from carrel_scheduler.api.principals.access import Access
from carrel_schema.wire import WorkloadOut


@Operation(
    "POST",
    f"{WORKLOAD}/share",
    access=Access.OWNER,
    body=Sharing,
    answers={202: WorkloadOut},
    problems=(409,),
)
async def share_route(call: Call) -> Answer:
    """Open a port of running work to its project or to everyone, or close it again."""
    body: Sharing = call.body
    changed = await call.services.changes.share(call.workload, body.route, body.access)
    return Answer(redact.workload(changed, call.visitor.person), 202)


OPERATIONS: Final = (share_route,)
