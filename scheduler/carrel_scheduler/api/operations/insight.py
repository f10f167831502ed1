"""Operations on logs, history, remedies and metrics of a workload, and on reports of jobs."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from msgspec.structs import replace

from carrel_scheduler.api import convert, problems, redact
from carrel_scheduler.api.models import queries
from carrel_scheduler.api.models.workloads import ReportIn
from carrel_scheduler.api.operation import Call, Operation, Response, StreamedResponse
from carrel_scheduler.api.operations.paths import WORKLOAD
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.merged_logs import merged
from carrel_scheduler.api.services.part_logs import logs_of_parts
from carrel_scheduler.engines.contract import EngineError, LogRequest, UnknownTask
from carrel_scheduler.workloads.state.remedies import PREEMPTIBLE
from carrel_schema.history import Curves, History, Point
from carrel_schema.kinds import COMPOSITES
from carrel_schema.wire import RemedyList

MOST_ROWS: Final = 10_000


@Operation(
    "GET",
    f"{WORKLOAD}/logs",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    query=queries.LogQuery,
    answers={200: str},
    media="text/plain",
    problems=(409, 429),
    for_jobs=True,
)
async def read_logs(call: Call) -> StreamedResponse:
    """Read the output of a task, or with `index=all` of all tasks or parts; `follow` streams."""
    media = "text/plain; charset=utf-8"
    return StreamedResponse(_log_pieces(call), media, ends=not call.query.follow)


async def _log_pieces(call: Call) -> AsyncGenerator[bytes, None]:
    query: queries.LogQuery = call.query
    with call.services.streams.counted(call.visitor.person):
        pieces = _pieces_of(call, query)
        try:
            async for piece in pieces:
                yield piece
        except UnknownTask as error:
            raise problems.Missing(
                Code.NO_LOGS, "Nothing has run yet that could have written this log"
            ) from error
        except EngineError as error:
            raise problems.Conflicting(Code.ENGINE_REFUSED, str(error)) from error
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()


def _pieces_of(call: Call, query: queries.LogQuery) -> AsyncIterator[bytes]:
    """The output of one task, or that of all tasks merged."""
    engine, meta = call.services.deps.engine, call.workload.meta
    request = LogRequest(
        attempt=query.attempt,
        tail_lines=query.tail,
        since=query.since,
        timestamps=query.timestamps,
        follow=query.follow,
    )
    if query.index != "all":
        return engine.logs(meta.uid, replace(request, index=query.index))
    if call.workload.spec.kind in COMPOSITES:
        deps, timestamps = call.services.deps, query.timestamps
        return logs_of_parts(deps, call.workload, request, timestamps=timestamps)
    logs = {
        f"{meta.name}-{index}": engine.logs(
            meta.uid, replace(request, index=index, timestamps=True)
        )
        for index in range(call.workload.spec.tasks)
    }
    return merged(logs, timestamps=query.timestamps, follow=query.follow)


@Operation(
    "GET",
    f"{WORKLOAD}/history",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    answers={200: History},
    for_jobs=True,
)
async def read_history(call: Call) -> Response:
    """Read a workload's changes of phase and the decisions about it, oldest first."""
    ledger, uid, viewer = call.services.deps.ledger, call.workload.meta.uid, call.visitor.person
    transitions = await ledger.transitions(workload_uid=uid, limit=MOST_ROWS)
    decisions = await ledger.decisions(workload_uid=uid, limit=MOST_ROWS)
    return Response(
        History(
            transitions=[redact.transition(row, viewer) for row in transitions],
            decisions=[redact.decision(row, viewer) for row in decisions],
        )
    )


@Operation(
    "GET",
    f"{WORKLOAD}/remedies",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    answers={200: RemedyList},
    problems=(409, 429),
    for_jobs=True,
)
async def read_remedies(call: Call) -> Response:
    """Read which changes would unblock a waiting workload, each one tried just now."""
    kind, phase = call.workload.spec.kind, call.workload.status.phase
    if kind in COMPOSITES:
        detail = f"Work of kind `{kind}` is not queued itself; ask about its parts"
        raise problems.Conflicting(Code.NOT_PENDING, detail)
    if phase != "pending":
        raise problems.Conflicting(Code.NOT_PENDING, f"It does not wait: its phase is `{phase}`")
    viewer = call.visitor.person
    found = call.services.remedies.of(call.workload.meta.uid, viewer)
    others = tuple(one for one in found if one.change != PREEMPTIBLE)
    if len(others) < len(found):
        allowed = await call.services.policies.may_be_preemptible(call.workload)
        found = found if allowed else others
    return Response(RemedyList(items=redact.remedies(found, viewer)))


@Operation(
    "GET",
    f"{WORKLOAD}/metrics",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    query=queries.MetricQuery,
    answers={200: Curves},
    for_jobs=True,
)
async def read_metrics(call: Call) -> Response:
    """Read the metrics that the job reported, as curves."""
    query: queries.MetricQuery = call.query
    curves = await call.services.deps.ledger.metrics(
        call.workload.meta.uid, names=query.name or None, max_points=query.max_points
    )
    return Response(
        {
            name: [Point(at=point.at, step=point.step, value=point.value) for point in found]
            for name, found in curves.items()
        }
    )


@Operation(
    "POST",
    f"{WORKLOAD}/reports",
    access=AdmittedCallers.TASK,
    permission="workloads:update",
    others="workloads:enter",
    body=ReportIn,
    answers={204: None},
)
async def report(call: Call) -> Response:
    """Record progress, metrics and checkpoints that a job reports."""
    body: ReportIn = call.body
    deps = call.services.deps
    said = convert.to_report(body, deps.clock())
    await deps.live.report(call.workload.meta.uid, said)
    await deps.trials.heard(call.workload, said)
    return Response(status=204)


OPERATIONS: Final = (
    read_logs,
    read_history,
    read_remedies,
    read_metrics,
    report,
)
