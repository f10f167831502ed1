"""Operations that only the gateway calls."""

from typing import Final

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.models.gateway import LoadsIn, TaskIn, TaskOut
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.workloads.controllers.inference.loads import LoadReport
from carrel_scheduler.workloads.state.phases import HOLDING
from carrel_schema.objects import Workload


@Operation(
    "POST", "/gateway/loads", access=AdmittedCallers.GATEWAY, body=LoadsIn, answers={204: None}
)
async def report_loads(call: Call) -> Response:
    """Record requests in flight and request counts of workloads; only the gateway calls it."""
    body: LoadsIn = call.body
    reports = [LoadReport(**msgspec.structs.asdict(one)) for one in body.items]
    call.services.deps.loads.take(body.gateway, reports, everything=body.everything)
    for one in body.items:
        call.services.deps.live.visited(one.uid, one.last_request_at)
    return Response(status=204)


@Operation(
    "POST",
    "/gateway/tasks",
    access=AdmittedCallers.GATEWAY,
    body=TaskIn,
    answers={200: TaskOut},
    problems=(404,),
)
async def identify_task(call: Call) -> Response:
    """Answer whose work a task token is of, while it has a task; only the gateway calls it."""
    body: TaskIn = call.body
    deps = call.services.deps
    uid = deps.task_tokens.uid(body.token)
    unknown = problems.Missing(Code.NOT_FOUND, "No task at work has this token")
    if uid is None:
        raise unknown
    try:
        workload = await deps.ledger.get_by_uid(Workload, uid)
    except ObjectNotFound:
        raise unknown from None
    # A task that is asked to end may still need an answer to end well.
    if workload.status.phase not in HOLDING:
        raise unknown
    meta = workload.meta
    return Response(TaskOut(user=workload.spec.user, project=meta.project, name=meta.name))


OPERATIONS: Final = (report_loads, identify_task)
