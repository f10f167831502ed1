"""Operations on samples: capacity and use of the cluster, nodes and projects over time."""

from typing import Annotated, Final

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_schema.constraints import NO_NUL, Constraint, Number
from carrel_schema.samples import METRICS, STEPS, SampleSeries, Step
from carrel_schema.scopes import Scope

DAY_SECONDS: Final = 86_400.0
MOST_POINTS: Final = 2000
SUBJECTS: Final = "`cluster`, `node/NAME`, `node-group/NAME`, `department/NAME` or `project/NAME`"


class SampleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The subject and the span of time of samples; by default the last day."""

    subject: Annotated[str, Constraint(min_length=1, max_length=300, pattern=NO_NUL)] = "cluster"
    since: Number | None = None
    until: Number | None = None


@Operation(
    "GET", "/samples", access=AdmittedCallers.USER, query=SampleQuery, answers={200: SampleSeries}
)
async def read_samples(call: Call) -> Response:
    """Read metrics over time: of the cluster, a node, a node group, a department or a project."""
    query: SampleQuery = call.query
    _check_subject(query.subject, call.visitor.person)
    now = call.services.deps.clock()
    until = now if query.until is None else min(query.until, now)
    since = until - DAY_SECONDS if query.since is None else query.since
    step = step_for(until - since)
    found = await call.services.deps.ledger.samples.read(step, [query.subject], since, until)
    points = found.get(query.subject, ())
    return Response(
        SampleSeries(
            subject=query.subject,
            step_seconds=float(step),
            times=[float(at) for at, _ in points],
            values={name: [getattr(one, name) for _, one in points] for name in METRICS},
        )
    )


def step_for(seconds: float) -> Step:
    """Choose the shortest step that gives no more than the allowed number of samples."""
    return STEPS[0] if seconds / STEPS[0] <= MOST_POINTS else STEPS[1]


def _check_subject(subject: str, person: Principal) -> None:
    kind, slash, name = subject.partition("/")
    if kind not in ("cluster", "node", "node-group", "department", "project") or bool(slash) != (
        kind != "cluster"
    ):
        raise problems.invalid_field("subject", Code.WRONG_FORM, subject, SUBJECTS)
    hidden = problems.Missing(Code.NOT_FOUND, f"There is no {kind} `{name}` that you can see")
    if kind == "project" and not person.sees(name):
        raise hidden
    if kind == "department":
        try:
            scope = Scope("department", name)
        except ValueError:
            raise hidden from None
        if not person.may("departments:read", scope):
            raise hidden


OPERATIONS: Final = (read_samples,)
