"""Dispatch of a call to its operation: the one place where scopes and membership are checked.

A caller without a matching scope is refused before anything is read, and objects of projects that
the caller does not see do not exist for it.
"""

from collections.abc import Mapping
from typing import Final

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.operation import Call, Operation
from carrel_scheduler.api.principals.access import RULES, AdmittedCallers, Visitor
from carrel_scheduler.api.principals.authentication import asking_the_hub, principal_of
from carrel_scheduler.api.principals.identity import MANAGE, IdentityUnavailable, Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.policy.rights import permission_for
from carrel_scheduler.workloads.state.phases import has_token
from carrel_schema.objects import Workload

_FROM_WORKSPACES: Final = (
    "; tokens of workspaces never carry it: use the console, or `carrel login` outside of them"
)


async def admit(
    operation: Operation, deps: ApiDependencies, token: str, path: Mapping[str, str]
) -> Visitor:
    """Let a caller in or refuse; every operation's calls pass here before anything else."""
    rule = RULES[operation.access]
    if rule.task_token:
        uid = deps.task_tokens.uid(token)
        if uid is not None:
            return Visitor(None, await _own_workload(deps, uid, path))
    if rule.node_token:
        node = await deps.node_agents.node_of(token)
        if node is not None:
            return _own_node(node, path)
    principal = await _principal(operation, deps, token)
    if operation.also_scope in principal.scopes:
        return Visitor(principal)
    if not rule.scopes & principal.scopes:
        if rule.node_token:
            raise problems.PermissionDenied(
                Code.MISSING_SCOPE, "This needs the token of the agent on that very node"
            )
        wanted = " or ".join(f"`{scope}`" for scope in sorted(rule.scopes))
        raise problems.PermissionDenied(
            Code.MISSING_SCOPE, f"This needs a token with the scope {wanted}"
        )
    if "project" in path:
        return await _admit_to_project(operation, deps, principal, path)
    if rule.permitted and not principal.may_anywhere(operation.permission):
        raise _not_permitted(principal, operation.permission, "some scope")
    return Visitor(principal)


async def _admit_to_project(
    operation: Operation, deps: ApiDependencies, principal: Principal, path: Mapping[str, str]
) -> Visitor:
    """Let a caller in to a project, or to the work of it that the path names."""
    rule, project = RULES[operation.access], path["project"]
    if rule.permitted:
        check_in_project(principal, operation.permission, project)
    if not rule.member:
        return Visitor(principal)
    if not principal.sees(project):
        raise not_found(path)
    if "name" not in path:
        check_in_project(principal, operation.permission, project)
        return Visitor(principal)
    workload = await _find(deps, path)
    user, kind = workload.spec.user, workload.spec.kind
    if not principal.sees_work(workload.meta.project, user, kind):
        raise not_found(path)
    if not rule.owner or principal.owns(user, kind):
        check_in_project(principal, permission_for(operation.permission, kind), project)
    elif not principal.may_in(project, operation.others):
        raise problems.PermissionDenied(
            Code.NOT_THE_OWNER,
            f"{project}/{path['name']} belongs to somebody else; its owner can do this, and who "
            f"has the permission `{operation.others}` in project/{project}",
        )
    return Visitor(principal, workload)


def check_in_project(principal: Principal, permission: str, project: str) -> None:
    """Raise ``PermissionDenied`` unless a role grants the permission in a project."""
    if permission and not principal.may_in(project, permission):
        raise _not_permitted(principal, permission, f"project/{project}")


def check_scope(operation: Operation, call: Call) -> None:
    """Check the permission where the query or the body says what a call is about."""
    rule = RULES[operation.access]
    principal = call.visitor.principal
    if not rule.permitted or "project" in call.path or principal is None:
        return
    if operation.also_scope in principal.scopes:
        return
    scope = operation.scope(call)
    if scope is not None and not principal.may(operation.permission, scope):
        raise _not_permitted(principal, operation.permission, str(scope))


def _not_permitted(principal: Principal, permission: str, where: str) -> problems.PermissionDenied:
    hint = "" if MANAGE in principal.scopes or principal.admin else _FROM_WORKSPACES
    return problems.not_permitted(permission, where, hint)


async def _principal(operation: Operation, deps: ApiDependencies, token: str) -> Principal:
    """The caller by the Hub's word, or for a job's token the job's user."""
    if deps.task_tokens.uid(token) is None:
        return await principal_of(deps.identity, token)
    if not operation.for_jobs:
        raise problems.PermissionDenied(
            Code.NOT_FOR_JOBS,
            "A job's token submits, watches and ends its user's work in its project, and does "
            "nothing else",
        )
    with asking_the_hub():
        principal = await deps.identity.user_for_token(token)
    if principal is None:
        raise problems.PermissionDenied(
            Code.TASK_TOKEN_EXPIRED,
            "This is the token of a job that does not run now, that may not submit, or whose user "
            "is no longer in its project",
        )
    return principal


async def name_of(deps: ApiDependencies, token: str) -> str:
    """The name of a refused caller for the audit log; empty if unknown."""
    try:
        principal = await deps.identity.user_for_token(token)
    except IdentityUnavailable:
        return ""
    return "" if principal is None else principal.name


def check_named_project(
    operation: Operation, visitor: Visitor, project: str, kind: str = ""
) -> None:
    """Refuse a project that the body or the query names and the caller has no right in.

    ``kind`` is that of the work that is asked for.
    """
    if operation.project_in == "path":
        return
    if not visitor.person.sees(project):
        raise problems.PermissionDenied(
            Code.NOT_A_MEMBER,
            f"You are not in the project `{project}`; an admin can add you",
        )
    if operation.access is AdmittedCallers.MEMBER:
        permission = permission_for(operation.permission, kind)
        check_in_project(visitor.person, permission, project)


def not_found(path: Mapping[str, str]) -> problems.Missing:
    """The problem for an object that does not exist or that the caller may not see."""
    what = "/".join(path[key] for key in ("project", "name") if key in path)
    return problems.Missing(Code.NOT_FOUND, f"There is no `{what}` that you can see")


async def _find(deps: ApiDependencies, path: Mapping[str, str]) -> Workload:
    try:
        return await deps.ledger.get(Workload, path["name"], path["project"])
    except ObjectNotFound as error:
        raise not_found(path) from error


def _own_node(node: str, path: Mapping[str, str]) -> Visitor:
    if node != path["node"]:
        raise problems.PermissionDenied(
            Code.WRONG_NODE_TOKEN, f"This token is that of node `{node}`, good for it only"
        )
    return Visitor(None)


async def _own_workload(deps: ApiDependencies, uid: str, path: Mapping[str, str]) -> Workload:
    try:
        workload = await deps.ledger.get_by_uid(Workload, uid)
    except ObjectNotFound as error:
        raise not_found(path) from error
    if (workload.meta.project, workload.meta.name) != (path["project"], path["name"]):
        raise problems.PermissionDenied(
            Code.WRONG_TASK_TOKEN, "This task token is good for its own workload only"
        )
    if not has_token(workload.status, deps.clock()):
        raise problems.PermissionDenied(
            Code.TASK_TOKEN_EXPIRED, "This task token expired with the end of its task"
        )
    return workload
