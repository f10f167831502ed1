"""What only the gateway calls."""

from typing import Final

from carrel_scheduler.api.access import Access
from carrel_scheduler.api.models.gateway import LoadsIn
from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.workloads.loads import LoadReport


@Operation("POST", "/gateway/loads", access=Access.GATEWAY, body=LoadsIn, answers={204: None})
async def report_loads(call: Call) -> Answer:
    """Requests in flight and counted, by workload; of the gateway."""
    body: LoadsIn = call.body
    reports = [LoadReport(**one.model_dump()) for one in body.items]
    call.services.deps.loads.take(body.gateway, reports, everything=body.everything)
    for one in body.items:
        call.services.deps.live.visited(one.uid, one.last_request_at)
    return Answer(status=204)


OPERATIONS: Final = (report_loads,)
