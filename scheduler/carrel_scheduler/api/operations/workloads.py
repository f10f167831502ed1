"""Create, list, read and steer workloads."""

from typing import Final
from urllib.parse import quote

from carrel_scheduler.api import problems, redact
from carrel_scheduler.api.access import Access
from carrel_scheduler.api.models import answers, queries
from carrel_scheduler.api.models.workloads import Claim, WorkloadBatch, WorkloadCreate
from carrel_scheduler.api.operation import Answer, Call, Operation, Run
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.objects import Limits, Workload

LONGEST_KEY: Final = 200
ONE: Final = "/workloads/{project}/{name}"


async def create(call: Call) -> Answer:
    """Store a workload, or say what would become of it."""
    body: WorkloadCreate = call.body
    viewer = call.visitor.person
    if call.query.dry_run:
        draft, forecast = await call.services.submission.forecast(body, viewer)
        shown = redact.reason(forecast, viewer) or forecast
        return Answer(answers.Forecast(workload=redact.workload(draft, viewer), forecast=shown))
    workload = await call.services.submission.create(body, viewer, _idempotency_key(call))
    path = f"/api/v1/workloads/{quote(workload.meta.project)}/{quote(workload.meta.name)}"
    location = call.services.deps.prefix + path
    return Answer(redact.workload(workload, viewer), 201, {"Location": location})


def _idempotency_key(call: Call) -> str:
    key = call.header("Idempotency-Key")
    if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise problems.invalid_field(
            "Idempotency-Key",
            Code.WRONG_FORM,
            key,
            f"1 to {LONGEST_KEY} printable ASCII characters",
        )
    return key


async def create_many(call: Call) -> Answer:
    """Store many workloads; each is created or refused for itself."""
    body: WorkloadBatch = call.body
    items = await call.services.batches.create(body.items, call.visitor.person)
    return Answer(answers.BatchAnswer(items=items))


async def find(call: Call) -> Answer:
    """A page of the workloads that the caller sees."""
    query: queries.WorkloadFilter = call.query
    viewer = call.visitor.person
    projects = viewer.visible_projects() if query.project is None else [query.project]
    if projects == []:
        return Answer(answers.WorkloadPage(items=[]))
    labels = dict(pair.split("=", 1) for pair in query.label)
    page = await call.services.deps.ledger.list(
        Workload,
        projects=projects,
        phases=query.phase or None,
        user=query.user,
        workload_kind=query.kind,
        labels=labels or None,
        limit=query.limit,
        after=query.after,
    )
    items = [redact.workload(workload, viewer) for workload in page.items]
    return Answer(answers.WorkloadPage(items=items, next=page.next or None))


async def read(call: Call) -> Answer:
    """One workload."""
    return Answer(redact.workload(call.workload, call.visitor.person))


async def delete(call: Call) -> Answer:
    """End and remove it."""
    changed = await call.services.control.delete(call.workload)
    return Answer(redact.workload(changed, call.visitor.person), 202)


async def suspend(call: Call) -> Answer:
    """Stop it and keep its definition."""
    changed = await call.services.control.suspend(call.workload)
    return Answer(redact.workload(changed, call.visitor.person), 202)


async def resume(call: Call) -> Answer:
    """Queue it again."""
    changed = await call.services.control.resume(call.workload)
    return Answer(redact.workload(changed, call.visitor.person), 202)


async def extend(call: Call) -> Answer:
    """Keep a workspace for the time that its project allows."""
    if call.workload.spec.kind != "workspace":
        raise problems.Conflicting(
            Code.NOT_A_WORKSPACE, "Only workspaces have limits that can be extended"
        )
    return Answer(await call.services.deps.live.extend(call.workload.meta.uid))


async def claim(call: Call) -> Answer:
    """Give a workspace that got its turn its command."""
    body: Claim = call.body
    claimed = await call.services.deps.live.claim(
        call.workload.meta.uid,
        command=body.command,
        environment=body.environment,
        secret_environment=body.secret_environment,
        working_dir=body.working_dir,
        port=body.port,
    )
    return Answer(redact.workload(claimed, call.visitor.person))


def _steer(verb: str, summary: str, run: Run) -> Operation:
    return Operation(
        id=f"{verb}_workload",
        method="POST",
        path=f"{ONE}/{verb}",
        access=Access.OWNER,
        summary=summary,
        answers={202: answers.WorkloadOut},
        run=run,
        problems=(409,),
    )


OPERATIONS: Final = (
    Operation(
        id="create_workload",
        method="POST",
        path="/workloads",
        access=Access.MEMBER,
        project_in="body",
        summary="Submit a workload",
        query=queries.DryRun,
        body=WorkloadCreate,
        answers={201: answers.WorkloadOut, 200: answers.Forecast},
        run=create,
        problems=(409,),
        headers=("Idempotency-Key",),
    ),
    Operation(
        id="create_workloads",
        method="POST",
        path="/workloads:batch",
        access=Access.MEMBER,
        project_in="body",
        summary="Submit up to 1,000 workloads at once",
        body=WorkloadBatch,
        answers={200: answers.BatchAnswer},
        run=create_many,
    ),
    Operation(
        id="list_workloads",
        method="GET",
        path="/workloads",
        access=Access.USER,
        project_in="query",
        summary="Workloads that the caller sees, in the order of creation",
        query=queries.WorkloadFilter,
        answers={200: answers.WorkloadPage},
        run=find,
    ),
    Operation(
        id="read_workload",
        method="GET",
        path=ONE,
        access=Access.MEMBER,
        summary="One workload",
        answers={200: answers.WorkloadOut},
        run=read,
    ),
    Operation(
        id="delete_workload",
        method="DELETE",
        path=ONE,
        access=Access.OWNER,
        summary="End and remove a workload; its checkpoints stay",
        answers={202: answers.WorkloadOut},
        run=delete,
        problems=(409,),
    ),
    _steer("suspend", "Stop a workload and keep its definition", suspend),
    _steer("resume", "Queue a stopped workload again", resume),
    Operation(
        id="extend_workload",
        method="POST",
        path=f"{ONE}/extend",
        access=Access.OWNER,
        summary="Keep a workspace for the time that its project allows",
        answers={200: Limits},
        run=extend,
        problems=(409,),
    ),
    Operation(
        id="claim_workload",
        method="POST",
        path=f"{ONE}/claim",
        access=Access.SPAWNER,
        summary="Give a workspace that got its turn its command",
        body=Claim,
        answers={200: answers.WorkloadOut},
        run=claim,
        problems=(409,),
    ),
)
