"""Principals, and the interfaces by which the API uses the Hub.

JupyterHub is the identity of everything. ``Identity`` turns a token into a principal,
``Membership`` reads and changes the Hub groups that say who belongs to which project. ``api.hub``
asks a real Hub.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from carrel_scheduler.policy.rights import NO_RIGHTS, Rights
from carrel_schema.governance.roles import FROM_WORKSPACES, ROLES
from carrel_schema.scopes import Scope, ScopeLevel

USE: Final = "custom:carrel:use"
SPAWN: Final = "custom:carrel:spawn"
ADMIN: Final = "custom:carrel:admin"
MANAGE: Final = "custom:carrel:manage"
"""The scope that roles beyond a researcher's need; tokens of workspaces do not have it."""
METRICS: Final = "custom:carrel:metrics"
GATEWAY: Final = "custom:carrel:gateway"
GROUP_PREFIX: Final = "project-"


def group_of(project: str) -> str:
    """The Hub group of a project's members."""
    return GROUP_PREFIX + project


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller: a Hub user or service with its groups and scopes.

    Attributes:
        job: uid of the job whose token it came with; it acts for its user, see ``jobs``.
        rights: what access rules give it.
    """

    name: str
    kind: Literal["user", "service", "service-account"]
    groups: frozenset[str]
    scopes: frozenset[str]
    job: str = ""
    rights: Rights = NO_RIGHTS

    @property
    def admin(self) -> bool:
        """Whether it may do everything but the spawner's part."""
        return ADMIN in self.scopes

    @property
    def spawner(self) -> bool:
        """Whether it is the Hub's spawner, which acts for users."""
        return SPAWN in self.scopes

    @property
    def gateway(self) -> bool:
        """Whether the caller is the gateway, which forwards requests to all routes."""
        return GATEWAY in self.scopes

    @property
    def projects(self) -> frozenset[str]:
        """The projects of which the caller is a member."""
        size = len(GROUP_PREFIX)
        return frozenset(group[size:] for group in self.groups if group.startswith(GROUP_PREFIX))

    @property
    def sees_all(self) -> bool:
        """Whether the caller may see all projects."""
        return self.admin or self.spawner or self.gateway

    def may(self, permission: str, scope: Scope) -> bool:
        """Whether the caller has a permission in a scope."""
        return self._may(permission, scope.level, scope.name)

    def may_in(self, project: str, permission: str) -> bool:
        """Whether the caller has a permission in a project, known or not."""
        return self._may(permission, "project", project)

    def _may(self, permission: str, level: ScopeLevel, name: str) -> bool:
        researchers = permission in FROM_WORKSPACES
        if self.admin or (self.spawner and researchers):
            return True
        if self.gateway and permission in ROLES["viewer"].permissions:
            return True
        own = level == "user" and name == self.name and self.kind == "user"
        member = level == "project" and group_of(name) in self.groups
        if researchers and (own or member):
            return True
        return self.rights.may(permission, level, name) and (researchers or MANAGE in self.scopes)

    def may_anywhere(self, permission: str) -> bool:
        """Whether the caller has a permission in any scope."""
        if self.admin:
            return True
        researchers = permission in FROM_WORKSPACES
        if researchers and (self.spawner or self.projects):
            return True
        return self.rights.anywhere(permission) and (researchers or MANAGE in self.scopes)

    def sees(self, project: str) -> bool:
        """Whether the caller may see a project's objects."""
        if self.sees_all or not project:
            return self.sees_all
        return self.may_in(project, "workloads:read")

    def sees_work(self, project: str, user: str, kind: str) -> bool:
        """Whether work is visible to it: to a job only its user's own, and no workspace."""
        if self.job and (user != self.name or kind == "workspace"):
            return False
        return self.sees(project)

    def sees_names(self, project: str) -> bool:
        """Whether the caller may see the names of a project's workloads and users.

        Spawner and gateway may not: they show what they read to the person who comes to them.
        """
        return self.admin or (not self.spawner and not self.gateway and self.sees(project))

    def visible_projects(self) -> list[str] | None:
        """Names to filter a listing by, in order; ``None`` means all."""
        if self.sees_all or "workloads:read" in self.rights.platform:
            return None
        return sorted({*self.projects, *self.rights.projects})

    def owns(self, user: str, workload_kind: str) -> bool:
        """Whether a workload of that user and kind is its to stop, change and remove."""
        if self.admin or (self.kind != "service" and self.name == user):
            return True
        return self.spawner and workload_kind == "workspace"


class IdentityUnavailable(Exception):  # noqa: N818 - an outcome to handle
    """The Hub did not answer, so the owner of a token is unknown."""


class UnknownHubUser(Exception):  # noqa: N818 - an outcome to handle
    """The Hub has no such user."""


class Identity(Protocol):
    """Turns tokens into principals."""

    async def user_for_token(self, token: str) -> Principal | None:
        """The user of a token; ``None`` for an unknown token. Raises ``IdentityUnavailable``."""
        ...

    def forget(self, user: str) -> None:
        """Drop the cached entries of a user whose groups have changed."""
        ...


class Membership(Protocol):
    """The members of projects. Every method raises ``IdentityUnavailable`` if the Hub is down."""

    async def users(self, project: str) -> Sequence[str]:
        """Members, sorted; empty when the group does not exist."""
        ...

    async def includes(self, project: str, user: str) -> bool:
        """Whether the user is a member; a yes may be some seconds old."""
        ...

    async def groups_of(self, user: str) -> Collection[str]:
        """Groups of a user in the Hub; none of one that it does not know."""
        ...

    async def administers(self, user: str) -> bool:
        """Whether a user is an administrator of the Hub."""
        ...

    async def add(self, project: str, user: str) -> None:
        """Make a user a member; raises ``UnknownHubUser``."""
        ...

    async def remove(self, project: str, user: str) -> None:
        """Remove a member; no error for a user who is none."""
        ...

    async def create_group(self, project: str) -> None:
        """Create the group; no error if it exists."""
        ...

    async def delete_group(self, project: str) -> None:
        """Delete the group; no error if it is missing."""
        ...
