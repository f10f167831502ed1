"""Access rules of the operations: who may call what, as data.

Nothing is allowed by default: an operation whose access has no rule cannot be built into an
application. ``dispatch`` applies the rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from carrel_scheduler.api.principals.identity import ADMIN, GATEWAY, SPAWN, USE, Principal
from carrel_schema.objects import Workload


class AdmittedCallers(StrEnum):
    """The callers that an operation admits; see docs/api.md."""

    USER = "user"
    MEMBER = "member"
    OWNER = "owner"
    SPAWNER = "spawner"
    TASK = "task"
    ADMIN = "admin"
    GATEWAY = "gateway"
    NODE = "node"
    HUB = "hub"


@dataclass(frozen=True, slots=True)
class OperationRule:
    """Required rights: one of ``scopes``, then membership, then ownership; or another token.

    ``permitted``: the operation's permission is needed, by a role.
    ``task_token``: that of the task whose workload the path names; ``node_token``: that of the
    agent on the node that it names.
    """

    scopes: frozenset[str]
    member: bool = False
    owner: bool = False
    permitted: bool = False
    task_token: bool = False
    node_token: bool = False


_ANYBODY: Final = frozenset({USE, SPAWN, ADMIN})
RULES: Final[Mapping[AdmittedCallers, OperationRule]] = {
    AdmittedCallers.USER: OperationRule(_ANYBODY),
    AdmittedCallers.MEMBER: OperationRule(_ANYBODY, member=True),
    AdmittedCallers.OWNER: OperationRule(_ANYBODY, member=True, owner=True),
    AdmittedCallers.SPAWNER: OperationRule(frozenset({SPAWN}), member=True),
    AdmittedCallers.TASK: OperationRule(_ANYBODY, member=True, owner=True, task_token=True),
    AdmittedCallers.ADMIN: OperationRule(_ANYBODY, permitted=True),
    AdmittedCallers.GATEWAY: OperationRule(frozenset({GATEWAY})),
    AdmittedCallers.NODE: OperationRule(frozenset(), node_token=True),
    AdmittedCallers.HUB: OperationRule(frozenset({SPAWN})),
}


@dataclass(frozen=True, slots=True)
class Visitor:
    """The admitted caller, and the workload that the path names.

    ``principal`` is ``None`` for a task or a node's agent that came with its own token.
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
