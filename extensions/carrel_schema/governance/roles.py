"""Roles: sets of permissions; access rules give them to users and groups in a scope.

A permission is ``RESOURCE:ACTION``. ``create`` and ``update`` of work, templates and secrets are
about one's own; ``manage`` is about those of others. A member of a project is a researcher there,
an administrator of the Hub is one on the platform; access rules give more. All that somebody has
counts together, and a role in a scope holds for everything below it.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, get_args

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint
from carrel_schema.scopes import ScopeLevel

Permission = Literal[
    "workloads:read",
    "workloads:create",
    "workloads:update",
    "workloads:manage",
    "workloads:enter",
    "inference:read",
    "inference:create",
    "inference:update",
    "code:create",
    "models:read",
    "models:create",
    "models:manage",
    "projects:read",
    "projects:create",
    "projects:update",
    "projects:delete",
    "members:read",
    "members:update",
    "departments:read",
    "departments:update",
    "departments:delete",
    "nodes:read",
    "nodes:update",
    "node-groups:read",
    "node-groups:create",
    "node-groups:update",
    "node-groups:delete",
    "policies:read",
    "policies:update",
    "assets:read",
    "assets:create",
    "assets:manage",
    "templates:read",
    "templates:create",
    "templates:manage",
    "secrets:read",
    "secrets:create",
    "secrets:manage",
    "usage:read",
    "budgets:update",
    "prices:read",
    "prices:update",
    "audit:read",
    "audit:update",
    "access-rules:read",
    "access-rules:update",
    "access-rules:escalate",
    "service-accounts:read",
    "service-accounts:update",
    "alerts:read",
    "alerts:update",
    "users:read",
    "users:update",
    "directory-groups:read",
    "directory-groups:update",
    "faults:read",
    "metrics:read",
]
ALL: Final[frozenset[str]] = frozenset(get_args(Permission))
RoleName = Literal[
    "administrator",
    "department-administrator",
    "editor",
    "researcher",
    "ml-engineer",
    "viewer",
]
SubjectKind = Literal["user", "group", "service-account"]


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """A set of permissions.

    Attributes:
        description: for people.
        permissions: what it lets somebody do.
        levels: scopes that it can be given in.
    """

    description: str
    permissions: frozenset[str]
    levels: tuple[ScopeLevel, ...] = ("platform", "department", "project")


_READ: Final[frozenset[str]] = frozenset(
    {
        *("workloads:read", "inference:read", "models:read", "projects:read", "members:read"),
        "node-groups:read",
        *("departments:read", "nodes:read", "policies:read", "templates:read", "secrets:read"),
        "assets:read",
        *("usage:read", "prices:read"),
    }
)
_OWN: Final[frozenset[str]] = frozenset(
    {"models:create", "templates:create", "secrets:create", "assets:create"}
)
_SERVE: Final[frozenset[str]] = frozenset({"inference:create", "inference:update", "code:create"})
_PROJECTS: Final[frozenset[str]] = frozenset(
    {"projects:create", "projects:update", "projects:delete", "members:update"}
)
ROLES: Final[Mapping[RoleName, Role]] = {
    "administrator": Role(
        description="Everything.",
        permissions=ALL,
        levels=("platform",),
    ),
    "department-administrator": Role(
        description="Runs a department: its projects with their members, limits and quotas, its "
        "policies, templates and secrets; says who is researcher, ML engineer or viewer in it; "
        "ends everybody's work in it; reads its part of the audit log.",
        permissions=_READ
        | _OWN
        | _PROJECTS
        | {
            "workloads:manage",
            "models:manage",
            "policies:update",
            "templates:manage",
            "budgets:update",
        }
        | {"assets:manage"}
        | {"secrets:manage", "audit:read", "access-rules:read", "access-rules:update"}
        | {"service-accounts:read", "service-accounts:update"},
        levels=("platform", "department"),
    ),
    "editor": Role(
        description="Makes and changes departments and projects, and says who is in them.",
        permissions=_READ | _PROJECTS | {"departments:update", "departments:delete"},
        levels=("platform", "department"),
    ),
    "researcher": Role(
        description="Submits work of all kinds, and changes and ends their own.",
        permissions=_READ | _OWN | _SERVE | {"workloads:create", "workloads:update"},
    ),
    "ml-engineer": Role(
        description="Deploys endpoints, and changes and ends their own.",
        permissions=_READ | _OWN | _SERVE,
    ),
    "viewer": Role(
        description="Sees projects, work, logs, models and consumption, and changes nothing.",
        permissions=_READ,
    ),
}
GIVEN_IN_DEPARTMENTS: Final[frozenset[str]] = frozenset({"researcher", "ml-engineer", "viewer"})
"""Roles that who may change access rules gives, without ``access-rules:escalate``."""
FROM_WORKSPACES: Final[frozenset[str]] = ROLES["researcher"].permissions
"""All that tokens of workspaces carry, whatever their user may do elsewhere."""


class AccessRuleFields(msgspec.Struct, frozen=True, kw_only=True):
    """An access rule: a subject, its role and the ``scope`` in the form ``department/NAME``.

    ``subject`` is a user, a group of the Hub or a service account, by name.
    """

    subject: Annotated[str, Constraint(min_length=1, max_length=255)]
    role: RoleName
    scope: Annotated[str, Constraint(max_length=200)]
    subject_kind: SubjectKind = "user"


class AccessRuleOut(Answer, frozen=True, kw_only=True):
    """An access rule; ``id`` names it where it is deleted."""

    id: str
    subject: str
    subject_kind: str = "user"
    role: str
    scope: str
    created_at: float = 0.0
    created_by: str = ""


class AccessRuleList(Answer, frozen=True, kw_only=True):
    """Access rules of the scopes that the caller may see."""

    items: Sequence[AccessRuleOut] = ()


class RoleOut(Answer, frozen=True, kw_only=True):
    """A role and its permissions."""

    name: str
    description: str = ""
    permissions: Sequence[str] = ()
    scopes: Sequence[str] = ()


class RoleList(Answer, frozen=True, kw_only=True):
    """The roles."""

    items: Sequence[RoleOut] = ()


class PermissionCheck(Answer, frozen=True, kw_only=True):
    """The answer whether the caller has a permission; ``roles`` are those that would give it."""

    permission: str
    scope: str
    allowed: bool = False
    roles: Sequence[str] = ()


def roles_with(permission: str) -> list[str]:
    """Names of the roles that a permission is part of, the smallest first."""
    found = [
        (len(role.permissions), name)
        for name, role in ROLES.items()
        if permission in role.permissions
    ]
    return [name for _, name in sorted(found)]
