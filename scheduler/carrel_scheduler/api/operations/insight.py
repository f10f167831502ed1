"""A workload seen from close by: logs, history, curves, reports."""

from collections.abc import AsyncGenerator
from typing import Final

from carrel_scheduler.api import convert, problems, redact
from carrel_scheduler.api.access import Access
from carrel_scheduler.api.models import answers, queries
from carrel_scheduler.api.models.workloads import ReportIn
from carrel_scheduler.api.operation import Answer, Call, Operation, Stream
from carrel_scheduler.api.problems import Code
from carrel_scheduler.engines.contract import EngineError, UnknownTask

ONE: Final = "/workloads/{project}/{name}"
MOST_ROWS: Final = 10_000


async def logs(call: Call) -> Stream:
    """The output of one task."""
    return Stream(_log_pieces(call), "text/plain; charset=utf-8")


async def _log_pieces(call: Call) -> AsyncGenerator[bytes, None]:
    query: queries.LogQuery = call.query
    with call.services.streams.counted(call.visitor.person):
        pieces = call.services.deps.engine.logs(
            call.workload.meta.uid,
            index=query.index,
            attempt=query.attempt,
            tail_lines=query.tail,
            since=query.since,
            timestamps=query.timestamps,
            follow=query.follow,
        )
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


async def history(call: Call) -> Answer:
    """State changes and decisions."""
    ledger, uid, viewer = call.services.deps.ledger, call.workload.meta.uid, call.visitor.person
    transitions = await ledger.transitions(workload_uid=uid, limit=MOST_ROWS)
    decisions = await ledger.decisions(workload_uid=uid, limit=MOST_ROWS)
    return Answer(
        answers.History(
            transitions=[redact.transition(row, viewer) for row in transitions],
            decisions=[redact.decision(row, viewer) for row in decisions],
        )
    )


async def metrics(call: Call) -> Answer:
    """Reported values by name."""
    query: queries.MetricQuery = call.query
    curves = await call.services.deps.ledger.metrics(
        call.workload.meta.uid, names=query.name or None, max_points=query.max_points
    )
    return Answer(
        {
            name: [
                answers.Point(at=point.at, step=point.step, value=point.value) for point in found
            ]
            for name, found in curves.items()
        }
    )


async def report(call: Call) -> Answer:
    """Take a job's report."""
    body: ReportIn = call.body
    deps = call.services.deps
    await deps.live.report(call.workload.meta.uid, convert.to_report(body, deps.clock()))
    return Answer(status=204)


OPERATIONS: Final = (
    Operation(
        id="read_logs",
        method="GET",
        path=f"{ONE}/logs",
        access=Access.MEMBER,
        summary="The output of one task, with `follow` until it ends",
        query=queries.LogQuery,
        answers={200: str},
        media="text/plain",
        run=logs,
        problems=(409, 429),
    ),
    Operation(
        id="read_history",
        method="GET",
        path=f"{ONE}/history",
        access=Access.MEMBER,
        summary="State changes and decisions, oldest first",
        answers={200: answers.History},
        run=history,
    ),
    Operation(
        id="read_metrics",
        method="GET",
        path=f"{ONE}/metrics",
        access=Access.MEMBER,
        summary="Curves that the job reported",
        query=queries.MetricQuery,
        answers={200: answers.Curves},
        run=metrics,
    ),
    Operation(
        id="report",
        method="POST",
        path=f"{ONE}/reports",
        access=Access.TASK,
        summary="A job says how it is going",
        body=ReportIn,
        answers={204: None},
        run=report,
    ),
)
