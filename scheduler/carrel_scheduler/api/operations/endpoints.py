"""Changing an endpoint while it serves."""

from typing import Final

from carrel_scheduler.api import redact
from carrel_scheduler.api.access import Access
from carrel_scheduler.api.models import answers
from carrel_scheduler.api.models.endpoints import EndpointPatch
from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.operations.paths import WORKLOAD


@Operation(
    "PATCH",
    WORKLOAD,
    access=Access.OWNER,
    body=EndpointPatch,
    answers={202: answers.WorkloadOut},
    problems=(409,),
)
async def change_endpoint(call: Call) -> Answer:
    """Change what an endpoint runs or how it is served; no request is lost."""
    changed = await call.services.endpoints.change(call.workload, call.body)
    return Answer(redact.workload(changed, call.visitor.person), 202)


OPERATIONS: Final = (change_endpoint,)
