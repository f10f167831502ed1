"""The permissions of a principal by scope: the data on which decisions are based."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from carrel_schema.kinds import WorkloadKind
from carrel_schema.scopes import ScopeLevel

MayCreate = Callable[[str, str, WorkloadKind], Awaitable[bool]]
"""Whether a user (the second) may make work of a kind in a project (the first).

Raises ``RightsUnknown`` while that cannot be told.
"""


@dataclass(frozen=True, slots=True)
class Rights:
    """Permissions by scope.

    Attributes:
        platform: hold everywhere.
        departments: by department.
        projects: by project, those of its department included.
        held: (role, scope) of the rules that they come from.
    """

    platform: frozenset[str] = frozenset()
    departments: Mapping[str, frozenset[str]] = field(default_factory=dict)
    projects: Mapping[str, frozenset[str]] = field(default_factory=dict)
    held: tuple[tuple[str, str], ...] = ()

    def may(self, permission: str, level: ScopeLevel, name: str) -> bool:
        """Whether they hold in a scope; what is a user's own is nobody else's."""
        if level == "user":
            return False
        if permission in self.platform:
            return True
        known = {"department": self.departments, "project": self.projects}.get(level, {})
        return permission in known.get(name, ())

    def anywhere(self, permission: str) -> bool:
        """Whether the permissions hold in any scope."""
        return permission in self.platform or any(
            permission in found
            for known in (self.departments, self.projects)
            for found in known.values()
        )


NO_RIGHTS = Rights()


class RightsUnknown(Exception):  # noqa: N818 - an outcome to handle
    """The rights of a user are not known now: the Hub does not answer."""


def permission_for(permission: str, kind: str) -> str:
    """The permission for work of a kind; endpoints have their own."""
    if kind in ("inference", "replica"):
        return permission.replace("workloads:", "inference:")
    return permission
