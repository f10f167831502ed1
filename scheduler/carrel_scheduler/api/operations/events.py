"""Server-sent events of workloads."""

from typing import Final

from carrel_scheduler.api.models import answers, queries
from carrel_scheduler.api.operation import Call, Operation, StreamedResponse
from carrel_scheduler.api.operations.paths import WORKLOAD
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.principals.identity import GATEWAY
from carrel_scheduler.api.services.event_stream import Filter

MEDIA: Final = "text/event-stream"


@Operation(
    "GET",
    "/events",
    access=AdmittedCallers.USER,
    also_scope=GATEWAY,
    project_in="query",
    query=queries.EventFilter,
    answers={200: answers.WorkloadEvent},
    media=MEDIA,
    problems=(429,),
    headers=("Last-Event-ID",),
    for_jobs=True,
)
async def stream_events(call: Call) -> StreamedResponse:
    """Stream events of all workloads that the caller sees, as server-sent events."""
    query: queries.EventFilter = call.query
    wanted = Filter(
        project=query.project or "", kind=query.kind or "", routed=query.routed, after=_after(call)
    )
    return _stream(call, wanted)


@Operation(
    "GET",
    f"{WORKLOAD}/events",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    answers={200: answers.WorkloadEvent},
    media=MEDIA,
    problems=(429,),
    headers=("Last-Event-ID",),
    for_jobs=True,
)
async def stream_workload_events(call: Call) -> StreamedResponse:
    """Stream events of one workload, as server-sent events."""
    meta = call.workload.meta
    return _stream(call, Filter(project=meta.project, uid=meta.uid, after=_after(call)))


def _stream(call: Call, wanted: Filter) -> StreamedResponse:
    events = call.services.streams.events(call.visitor.person, call.token, wanted)
    return StreamedResponse(events, MEDIA, looks_up=True)


def _after(call: Call) -> int | None:
    last = call.header("Last-Event-ID")
    return int(last) if last.isascii() and last.isdecimal() and len(last) < 19 else None


OPERATIONS: Final = (
    stream_events,
    stream_workload_events,
)
