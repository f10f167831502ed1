"""Who may call what: the rules as data, and the one function that applies them.

Nothing is allowed by default: an operation whose access has no rule cannot be built into an
application, a caller without a matching scope is refused before anything is read, and objects of
projects that the caller does not see do not exist for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from carrel_scheduler.api import problems
from carrel_scheduler.api.identity import (
    ADMIN,
    SPAWN,
    USE,
    Identity,
    IdentityUnavailable,
    Principal,
)
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.objects import Workload
from carrel_scheduler.ledger.store import NotFound

if TYPE_CHECKING:
    from carrel_scheduler.api.dependencies import ApiDependencies
    from carrel_scheduler.api.operation import Operation


class Access(StrEnum):
    """Who passes; see docs/api.md."""

    USER = "user"
    MEMBER = "member"
    OWNER = "owner"
    SPAWNER = "spawner"
    TASK = "task"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Rule:
    """One of ``scopes`` is needed; then membership, then ownership; or a task token instead."""

    scopes: frozenset[str]
    member: bool = False
    owner: bool = False
    task_token: bool = False


_ANYBODY: Final = frozenset({USE, SPAWN, ADMIN})
RULES: Final[Mapping[Access, Rule]] = {
    Access.USER: Rule(_ANYBODY),
    Access.MEMBER: Rule(_ANYBODY, member=True),
    Access.OWNER: Rule(_ANYBODY, member=True, owner=True),
    Access.SPAWNER: Rule(frozenset({SPAWN}), member=True),
    Access.TASK: Rule(_ANYBODY, member=True, owner=True, task_token=True),
    Access.ADMIN: Rule(frozenset({ADMIN})),
}


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who was let in, and the workload that the path names.

    ``principal`` is ``None`` for a task that came with its own token.
    """

    principal: Principal | None
    workload: Workload | None = None

    @property
    def person(self) -> Principal:
        """The principal of an operation that tasks cannot call."""
        if self.principal is None:
            msg = "a task token has no principal"
            raise TypeError(msg)
        return self.principal


def token_of(authorization: str) -> str:
    """The token of an ``Authorization`` header; raises ``Unauthenticated``."""
    scheme, _, token = authorization.strip().partition(" ")
    token = token.strip()
    if scheme.lower() not in ("token", "bearer") or not token:
        raise problems.Unauthenticated(
            "Send a JupyterHub token as `Authorization: token …`; the Hub's token page makes one"
        )
    return token


async def principal_of(identity: Identity, token: str) -> Principal:
    """Who a token belongs to; raises ``Unauthenticated`` or, with the Hub down, ``Unavailable``."""
    try:
        principal = await identity.user_for_token(token)
    except IdentityUnavailable as error:
        raise hub_unavailable() from error
    if principal is None:
        raise problems.Unauthenticated("The Hub does not know this token (expired or revoked?)")
    return principal


def hub_unavailable() -> problems.Unavailable:
    """The Hub does not answer."""
    return problems.Unavailable(
        Code.HUB_UNAVAILABLE,
        "JupyterHub does not answer, so nobody can be identified; try again in a moment",
        headers={"Retry-After": "5"},
    )


async def admit(
    operation: "Operation", deps: "ApiDependencies", token: str, path: Mapping[str, str]
) -> Visitor:
    """Let a caller in or refuse; every operation's calls pass here before anything else."""
    rule = RULES[operation.access]
    if rule.task_token:
        uid = deps.task_tokens.uid(token)
        if uid is not None:
            return Visitor(None, await _own_workload(deps, uid, path))
    principal = await principal_of(deps.identity, token)
    if not (rule.scopes | {operation.also_scope}) & principal.scopes:
        wanted = " or ".join(f"`{scope}`" for scope in sorted(rule.scopes))
        raise problems.Forbidden(Code.MISSING_SCOPE, f"This needs a token with the scope {wanted}")
    if not rule.member or "project" not in path:
        return Visitor(principal)
    if not principal.sees(path["project"]):
        raise not_found(path)
    if "name" not in path:
        return Visitor(principal)
    workload = await _find(deps, path)
    if rule.owner and not principal.owns(workload.spec.user, workload.spec.kind):
        raise problems.Forbidden(
            Code.NOT_THE_OWNER,
            f"{path['project']}/{path['name']} belongs to somebody else; its owner or an admin "
            "can do this",
        )
    return Visitor(principal, workload)


def check_named_project(operation: "Operation", visitor: Visitor, project: str) -> None:
    """Refuse a project that the body or the query names and the caller is not in."""
    if operation.project_in == "path":
        return
    if not visitor.person.sees(project):
        raise problems.Forbidden(
            Code.NOT_A_MEMBER,
            f"You are not in the project `{project}`; an admin can add you",
        )


def not_found(path: Mapping[str, str]) -> problems.Missing:
    """Nothing there, or nothing for these eyes: the same words for both."""
    what = "/".join(path[key] for key in ("project", "name") if key in path)
    return problems.Missing(Code.NOT_FOUND, f"There is no `{what}` that you can see")


async def _find(deps: "ApiDependencies", path: Mapping[str, str]) -> Workload:
    try:
        return await deps.ledger.get(Workload, path["name"], path["project"])
    except NotFound as error:
        raise not_found(path) from error


async def _own_workload(deps: "ApiDependencies", uid: str, path: Mapping[str, str]) -> Workload:
    try:
        workload = await deps.ledger.get_by_uid(Workload, uid)
    except NotFound as error:
        raise not_found(path) from error
    if (workload.meta.project, workload.meta.name) != (path["project"], path["name"]):
        raise problems.Forbidden(
            Code.WRONG_TASK_TOKEN, "This task token is good for its own workload only"
        )
    return workload
