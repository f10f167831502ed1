"""Workload policies: read by those whose work they bind, written by administrators."""

from typing import Final

import msgspec

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import (
    ChangeInScope,
    InScope,
    ScopeFilter,
    of_query,
    scope_of,
)
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.constraints import Name
from carrel_schema.governance.policies import (
    EffectivePolicy,
    PolicyFields,
    PolicyList,
    PolicyOut,
)
from carrel_schema.kinds import WorkloadKind

POLICIES: Final = "/policies"
POLICY: Final = f"{POLICIES}/{{name}}"


class OfWork(msgspec.Struct, frozen=True, kw_only=True):
    """The project and the kind of the work."""

    project: Name
    kind: WorkloadKind = "training"


@Operation(
    "GET", POLICIES, access=AdmittedCallers.USER, query=ScopeFilter, answers={200: PolicyList}
)
async def list_policies(call: Call) -> Response:
    """List the policies that hold for the caller's work; all for administrators."""
    scope = None if call.query.scope is None else scope_of(call.query.scope)
    found = await call.services.policies.visible(call.visitor.person, scope)
    return Response(PolicyList(items=found))


@Operation("GET", POLICY, access=AdmittedCallers.USER, query=InScope, answers={200: PolicyOut})
async def read_policy(call: Call) -> Response:
    """Read one policy."""
    scope = scope_of(call.query.scope)
    return Response(await call.services.policies.get(call.path["name"], scope, call.visitor.person))


@Operation(
    "PUT",
    POLICY,
    access=AdmittedCallers.ADMIN,
    permission="policies:update",
    scope=of_query,
    query=ChangeInScope,
    body=PolicyFields,
    answers={200: PolicyOut},
    problems=(409,),
)
async def put_policy(call: Call) -> Response:
    """Create a policy, or replace it; the answer lists live work that it would refuse."""
    made = await call.services.policies.put(
        call.path["name"],
        scope_of(call.query.scope),
        call.body,
        call.visitor.person,
        dry_run=call.query.dry_run,
    )
    return Response(made)


@Operation(
    "DELETE",
    POLICY,
    access=AdmittedCallers.ADMIN,
    permission="policies:update",
    scope=of_query,
    query=InScope,
    answers={204: None},
)
async def delete_policy(call: Call) -> Response:
    """Delete a policy."""
    await call.services.policies.delete(call.path["name"], scope_of(call.query.scope))
    return Response(status=204)


@Operation(
    "GET",
    "/effective-policy",
    access=AdmittedCallers.MEMBER,
    permission="policies:read",
    project_in="query",
    query=OfWork,
    answers={200: EffectivePolicy},
    for_jobs=True,
)
async def read_effective_policy(call: Call) -> Response:
    """Read all rules of policies for work of a kind in a project."""
    return Response(await call.services.policies.effective(call.query.project, call.query.kind))


OPERATIONS: Final = (
    list_policies,
    read_policy,
    put_policy,
    delete_policy,
    read_effective_policy,
)
