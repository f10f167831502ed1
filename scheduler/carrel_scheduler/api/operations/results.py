"""Operations on results of jobs: written with the job's token, read with its owner's rights."""

from typing import Final

from carrel_scheduler.api import problems
from carrel_scheduler.api.operation import BYTES, Call, Operation, Response
from carrel_scheduler.api.operations.paths import WORKLOAD
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code

MOST_BYTES: Final = 33 * 2**20
RESULT: Final = f"{WORKLOAD}/result"


@Operation(
    "PUT",
    RESULT,
    access=AdmittedCallers.TASK,
    permission="workloads:update",
    others="workloads:enter",
    raw_bytes=MOST_BYTES,
    answers={204: None},
    problems=(409,),
)
async def write_result(call: Call) -> Response:
    """Store the result of a job; it replaces an earlier one."""
    if call.workload.spec.delete:
        raise problems.Conflicting(
            Code.BEING_DELETED, "The job is being deleted; nobody waits for its result"
        )
    await call.services.deps.results.put(call.workload.meta.uid, call.body)
    return Response(status=204)


@Operation(
    "GET",
    RESULT,
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    others="workloads:enter",
    answers={200: bytes},
    media=BYTES,
    for_jobs=True,
)
async def read_result(call: Call) -> Response:
    """Read the result of a job, unchanged."""
    content = await call.services.deps.results.get(call.workload.meta.uid)
    if content is None:
        raise problems.Missing(Code.NO_RESULT, "The job has handed no result back")
    return Response(content, media=BYTES)


OPERATIONS: Final = (write_result, read_result)
