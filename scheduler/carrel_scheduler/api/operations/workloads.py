"""Create, list, read and steer workloads."""

from typing import Final

from carrel_scheduler.api import problems, redact
from carrel_scheduler.api.models import queries
from carrel_scheduler.api.models.workloads import (
    Rerun,
    Sharing,
    WorkloadBatch,
    WorkloadChanges,
    WorkspaceClaim,
)
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.paths import WORKLOAD, WORKLOADS
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.rerunning import request_again
from carrel_schema.kinds import PARTS
from carrel_schema.objects import Limits, Workload
from carrel_schema.problems import BatchAnswer
from carrel_schema.wire import Forecast, WorkloadCreate, WorkloadOut, WorkloadPage

LONGEST_KEY: Final = 200


@Operation(
    "POST",
    WORKLOADS,
    access=AdmittedCallers.MEMBER,
    permission="workloads:create",
    project_in="body",
    query=queries.DryRun,
    body=WorkloadCreate,
    templated=True,
    answers={201: WorkloadOut, 200: Forecast},
    problems=(409,),
    headers=("Idempotency-Key",),
    for_jobs=True,
)
async def create_workload(call: Call) -> Response:
    """Submit a workload."""
    return await _submit(call, call.body)


async def _submit(call: Call, body: WorkloadCreate) -> Response:
    viewer = call.visitor.person
    if call.query.dry_run:
        draft, forecast = await call.services.submission.forecast(body, viewer)
        shown = redact.reason(forecast, viewer) or forecast
        return Response(Forecast(workload=redact.workload(draft, viewer), forecast=shown))
    workload = await call.services.submission.create(body, viewer, _idempotency_key(call))
    location = call.address("workloads", workload.meta.project, workload.meta.name)
    return Response(redact.workload(workload, viewer), 201, {"Location": location})


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


@Operation(
    "POST",
    f"{WORKLOADS}:batch",
    access=AdmittedCallers.MEMBER,
    permission="workloads:create",
    project_in="body",
    body=WorkloadBatch,
    templated=True,
    answers={200: BatchAnswer},
    for_jobs=True,
)
async def create_workloads(call: Call) -> Response:
    """Submit up to 1,000 workloads at once."""
    body: WorkloadBatch = call.body
    items = await call.services.batches.create(body.items, call.visitor.person)
    return Response(BatchAnswer(items=items))


@Operation(
    "GET",
    WORKLOADS,
    access=AdmittedCallers.USER,
    project_in="query",
    query=queries.WorkloadFilter,
    answers={200: WorkloadPage},
    for_jobs=True,
)
async def list_workloads(call: Call) -> Response:
    """List the workloads that the caller sees, in the order of creation or the newest first."""
    query: queries.WorkloadFilter = call.query
    viewer = call.visitor.person
    projects = viewer.visible_projects() if query.project is None else [query.project]
    if projects == []:
        return Response(WorkloadPage(items=[]))
    labels = dict(pair.split("=", 1) for pair in query.label)
    hidden = frozenset() if query.parts or query.kind or labels else PARTS
    user = query.user
    if viewer.job:  # it sees its user's work, and no workspace
        hidden, user = hidden | {"workspace"}, viewer.name
        if query.kind == "workspace" or query.user not in (None, viewer.name):
            return Response(WorkloadPage(items=[]))
    page = await call.services.deps.ledger.list(
        Workload,
        projects=projects,
        phases=query.phase or None,
        user=user,
        workload_kind=query.kind,
        without_kinds=sorted(hidden),
        labels=labels or None,
        search=query.search,
        newest_first=query.order == "newest",
        limit=query.limit,
        after=query.after,
    )
    positions = call.services.deps.live.positions()
    items = [redact.workload(workload, viewer, positions) for workload in page.items]
    return Response(WorkloadPage(items=items, next=page.next or None))


@Operation(
    "GET",
    WORKLOAD,
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    answers={200: WorkloadOut},
    for_jobs=True,
)
async def read_workload(call: Call) -> Response:
    """Read one workload."""
    positions = call.services.deps.live.positions()
    return Response(redact.workload(call.workload, call.visitor.person, positions))


def _actor(call: Call) -> str:
    """Find who acts: where the Hub's spawner calls, the user whose workspace it is."""
    person = call.visitor.person
    return call.workload.spec.user if person.spawner else person.name


@Operation(
    "PATCH",
    WORKLOAD,
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    body=WorkloadChanges,
    answers={202: WorkloadOut},
    problems=(409,),
)
async def change_workload(call: Call) -> Response:
    """Change a workload: labels, limits, priority and size, or what an endpoint runs."""
    return _accepted(call, await call.services.changes.change(call.workload, call.body))


def _steering(path: str) -> Operation:
    return Operation(
        "POST",
        path,
        access=AdmittedCallers.OWNER,
        permission="workloads:update",
        answers={202: WorkloadOut},
        problems=(409,),
    )


def _accepted(call: Call, changed: Workload) -> Response:
    return Response(redact.workload(changed, call.visitor.person), 202)


@Operation(
    "DELETE",
    WORKLOAD,
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    query=queries.DeletionFilter,
    answers={202: WorkloadOut},
    problems=(409,),
    for_jobs=True,
)
async def delete_workload(call: Call) -> Response:
    """Stop and delete a workload with its files; workloads that it submitted stay."""
    deleted = await call.services.control.delete(
        call.workload, _actor(call), children=call.query.children
    )
    await call.services.deps.results.remove(call.workload.meta.uid)
    return _accepted(call, deleted)


@_steering(f"{WORKLOAD}/suspend")
async def suspend_workload(call: Call) -> Response:
    """Suspend a workload: stop it and keep its definition."""
    return _accepted(call, await call.services.control.suspend(call.workload, _actor(call)))


@_steering(f"{WORKLOAD}/resume")
async def resume_workload(call: Call) -> Response:
    """Resume a suspended or stopped workload: queue it again."""
    return _accepted(call, await call.services.control.resume(call.workload))


@Operation(
    "POST",
    f"{WORKLOAD}/extend",
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    answers={200: Limits},
    problems=(409,),
)
async def extend_workload(call: Call) -> Response:
    """Extend the time limit of a workspace by what its project allows."""
    if call.workload.spec.kind != "workspace":
        raise problems.Conflicting(
            Code.NOT_A_WORKSPACE, "Only workspaces have limits that can be extended"
        )
    return Response(await call.services.deps.live.extend(call.workload.meta.uid))


@Operation(
    "POST",
    f"{WORKLOAD}/claim",
    access=AdmittedCallers.SPAWNER,
    body=WorkspaceClaim,
    answers={200: WorkloadOut},
    problems=(409,),
)
async def claim_workload(call: Call) -> Response:
    """Give a held workspace its command, once its resources are allocated."""
    body: WorkspaceClaim = call.body
    claimed = await call.services.deps.live.claim(
        call.workload.meta.uid,
        command=body.command,
        environment=body.environment,
        secret_environment=body.secret_environment,
        working_dir=body.working_dir,
        port=body.port,
        external=body.external,
    )
    return Response(redact.workload(claimed, call.visitor.person))


@Operation(
    "POST",
    f"{WORKLOAD}/rerun",
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    query=queries.DryRun,
    body=Rerun,
    answers={201: WorkloadOut, 200: Forecast},
    problems=(409,),
    headers=("Idempotency-Key",),
)
async def rerun_workload(call: Call) -> Response:
    """Submit a workload's request again, with changes and its files; for its own user only."""
    body: Rerun = call.body
    viewer, workload = call.visitor.person, call.workload
    if viewer.name != workload.spec.user:
        raise problems.PermissionDenied(
            Code.NOT_THE_OWNER,
            f"Only {workload.spec.user} runs it again: it has their files and secrets",
        )
    if body.changes.get("project", workload.meta.project) != workload.meta.project:
        raise problems.invalid_field(
            "project", Code.UNKNOWN_VALUE, body.changes["project"], "the project of the workload"
        )
    secrets = await call.services.deps.ledger.secrets(workload.meta.uid)
    return await _submit(call, request_again(workload, secrets, body.changes))


@Operation(
    "POST",
    f"{WORKLOAD}/share",
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    others="workloads:enter",
    body=Sharing,
    answers={202: WorkloadOut},
    problems=(409,),
)
async def share_route(call: Call) -> Response:
    """Change who may reach a port of running work: its user, its project or everyone."""
    body: Sharing = call.body
    changed = await call.services.changes.share(call.workload, body.route, body.access)
    return Response(redact.workload(changed, call.visitor.person), 202)


OPERATIONS: Final = (
    create_workload,
    create_workloads,
    list_workloads,
    read_workload,
    change_workload,
    delete_workload,
    suspend_workload,
    resume_workload,
    extend_workload,
    claim_workload,
    rerun_workload,
    share_route,
)
