"""Projects, departments, nodes, the queue and usage."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

import msgspec

from carrel.client.transport import Transport, segment
from carrel.models import (
    Department,
    Faults,
    GpuUsePoint,
    Identity,
    Limits,
    Node,
    Project,
    ProjectImpact,
    QueueEntry,
    QuotaFinding,
    Usage,
)
from carrel_schema.answers import Members
from carrel_schema.governance.kubeconfig import ClusterAccess

ItemT = TypeVar("ItemT")


class _Items(msgspec.Struct):
    """The list in an answer."""

    items: list[msgspec.Raw] = []


class ProjectMethods:
    """Read what the projects share; manage projects and departments (admins)."""

    _transport: Transport

    async def whoami(self) -> Identity:
        """The user of the token and their projects."""
        return await self._transport.ask("GET", "/whoami", Identity)

    async def cluster_access(self) -> ClusterAccess:
        """The facts from which a kubeconfig is written; refused (``no_cluster``) on one machine."""
        return await self._transport.ask("GET", "/cluster-access", ClusterAccess)

    async def openapi(self) -> bytes:
        """The API's description, an OpenAPI 3.1 document."""
        return await self._transport.send("GET", "/openapi.json")

    async def list_projects(self) -> list[Project]:
        """The projects that the caller may see, with their use."""
        return await self._items("/projects", Project)

    async def get_project(self, project: str) -> Project:
        """Read a project."""
        return await self._transport.ask("GET", _project(project), Project)

    async def create_project(self, body: Mapping[str, Any]) -> Project:
        """Create a project (admins)."""
        return await self._transport.ask("POST", "/projects", Project, body=body)

    @overload
    async def update_project(
        self, project: str, changes: Mapping[str, Any], *, dry_run: Literal[False] = False
    ) -> Project: ...
    @overload
    async def update_project(
        self, project: str, changes: Mapping[str, Any], *, dry_run: Literal[True]
    ) -> ProjectImpact: ...
    async def update_project(
        self, project: str, changes: Mapping[str, Any], *, dry_run: bool = False
    ) -> Project | ProjectImpact:
        """Change fields (merge patch, admins); with ``dry_run`` return the impact only."""
        path = _project(project)
        if dry_run:
            return await self._transport.ask(
                "PATCH", path, ProjectImpact, parameters={"dry_run": True}, body=changes
            )
        return await self._transport.ask("PATCH", path, Project, body=changes)

    async def update_projects(
        self, projects: Sequence[str], changes: Mapping[str, Any]
    ) -> list[Project]:
        """Change several projects alike (merge patch, admins): all of them or none."""
        body = {"projects": list(projects), "changes": changes}
        found = await self._transport.ask("POST", "/project-changes", _Items, body=body)
        return [self._transport.read(bytes(raw), Project) for raw in found.items]

    async def preview_projects(
        self, projects: Sequence[str], changes: Mapping[str, Any]
    ) -> ProjectImpact:
        """The workloads that such changes would start and preempt at once, all together."""
        body = {"projects": list(projects), "changes": changes}
        parameters = {"dry_run": True}
        return await self._transport.ask(
            "POST", "/project-changes", ProjectImpact, parameters=parameters, body=body
        )

    async def delete_project(self, project: str) -> None:
        """Remove an empty project (admins)."""
        await self._transport.send("DELETE", _project(project))

    async def members(self, project: str) -> list[str]:
        """The users of a project."""
        found = await self._transport.ask("GET", f"{_project(project)}/members", Members)
        return list(found.users)

    async def add_member(self, project: str, user: str) -> None:
        """Let a user into a project (admins)."""
        await self._transport.send("PUT", _member(project, user))

    async def remove_member(self, project: str, user: str) -> None:
        """Take a user out of a project (admins)."""
        await self._transport.send("DELETE", _member(project, user))

    async def list_departments(self) -> list[Department]:
        """List the departments by name."""
        found = await self._items("/departments", Department)
        return sorted(found, key=lambda department: department.name)

    async def put_department(self, department: str, rules: Mapping[str, Any]) -> Department:
        """Create or replace a department; ``rules`` are fields that projects have, too."""
        return await self._transport.ask("PUT", _department(department), Department, body=rules)

    async def preview_department(self, name: str, body: Mapping[str, Any]) -> ProjectImpact:
        """The workloads that a department with these rules would start and preempt at once."""
        path = f"/departments/{segment(name)}/preview"
        return await self._transport.ask("POST", path, ProjectImpact, body=body)

    async def delete_department(self, department: str) -> None:
        """Remove a department without projects."""
        await self._transport.send("DELETE", _department(department))

    async def quota_findings(self) -> list[QuotaFinding]:
        """Contradictions between quotas and limits (admins)."""
        return await self._items("/quota-findings", QuotaFinding)

    async def nodes(self) -> list[Node]:
        """List the nodes with their devices and the work on them."""
        return await self._items("/nodes", Node)

    async def node(self, name: str) -> Node:
        """Read a node."""
        return await self._transport.ask("GET", f"/nodes/{segment(name)}", Node)

    async def uncordon(self, node: str, device: int) -> None:
        """Return a GPU to service that health checks took out (admins)."""
        path = f"/nodes/{segment(node)}/devices/{device}/uncordon"
        await self._transport.send("POST", path)

    async def faults(self) -> Faults:
        """The inputs that the scheduler set aside because it could not process them (admins)."""
        return await self._transport.ask("GET", "/faults", Faults)

    async def queue(self, *, limit: int | None = None, after: int = 0) -> list[QueueEntry]:
        """Pending work, in the order of service; at most ``limit`` behind position ``after``."""
        return await self._items("/queue", QueueEntry, {"limit": limit, "after": after or None})

    async def usage(
        self, by: str = "project", *, since: float | None = None, until: float | None = None
    ) -> list[Usage]:
        """Use between two times (epoch seconds).

        ``by``: ``department``, ``project``, ``user``, ``workload`` or ``kind``.
        """
        return await self._items("/usage", Usage, {"by": by, "since": since, "until": until})

    async def gpu_use(self, uids: Sequence[str]) -> dict[str, list[GpuUsePoint]]:
        """The GPU use of up to 100 workloads, by uid; empty where nothing was measured."""
        found = await self._transport.ask(
            "GET", "/gpu-use", dict[str, dict[str, list[GpuUsePoint]]], parameters={"uid": uids}
        )
        return found["items"]

    async def activity(self, server_name: str, activity: Mapping[str, Any]) -> Limits:
        """Report the activity of the caller's own workspace; returns its limits."""
        body = {**activity, "server_name": server_name}
        return await self._transport.ask(
            "POST", "/workspaces/activity", Limits, body=body, repeatable=True
        )

    async def _items(
        self,
        path: str,
        item: type[ItemT],
        parameters: Mapping[str, str | float | None] | None = None,
    ) -> list[ItemT]:
        found = await self._transport.ask("GET", path, _Items, parameters=parameters)
        return [self._transport.read(bytes(raw), item) for raw in found.items]


def _project(project: str) -> str:
    return f"/projects/{segment(project)}"


def _member(project: str, user: str) -> str:
    return f"{_project(project)}/members/{segment(user)}"


def _department(department: str) -> str:
    return f"/departments/{segment(department)}"
