"""Projects: an object in the ledger and a group in the Hub, made and removed together.

Order keeps halves apart: the group is made before the object and removed before it, so whatever
fails in between leaves a project that works or none, and repeating the request finishes it.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from carrel_scheduler.api import convert, problems, refusals
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.models import validators
from carrel_scheduler.api.models.projects import ProjectChanges
from carrel_scheduler.api.principals.authentication import asking_the_hub
from carrel_scheduler.api.principals.identity import IdentityUnavailable, Principal, UnknownHubUser
from carrel_scheduler.api.problems import Code
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, StoreError, VersionConflict
from carrel_scheduler.workloads.contract import Live
from carrel_schema.answers import ProjectCreate, ProjectImpact
from carrel_schema.objects import Department, DepartmentSpec, Project, ProjectSpec, Workload
from carrel_schema.scopes import PLATFORM, Scope

COLORS: Final = 12
ATTEMPTS: Final = 8
KNOWN_SECONDS: Final = 1.0
READ_ONE_BY_ONE: Final = 4


class Projects:
    """Reads and changes projects and their members."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps
        self._submitting: Counter[str] = Counter()
        self._closing: set[str] = set()
        self._known_until: dict[str, float] = {}

    @asynccontextmanager
    async def in_use(self, name: str) -> AsyncIterator[None]:
        """Protect a project from deletion inside the block.

        Raises ``InvalidRequest`` if it is unknown.
        """
        async with self.all_in_use((name,)):
            yield

    @asynccontextmanager
    async def all_in_use(self, names: Collection[str]) -> AsyncIterator[None]:
        """The same for many at once."""
        self._submitting.update(names)
        try:
            for name in names:
                if name in self._closing:
                    raise _unknown(name)
            await self._look_up(names)
            yield
        finally:
            self._submitting.subtract(names)
            for name in names:
                if not self._submitting[name]:
                    del self._submitting[name]

    async def _look_up(self, names: Collection[str]) -> None:
        """Remember for a second which projects exist: submissions come in hundreds."""
        now = self._deps.clock()
        asked = [name for name in names if now >= self._known_until.get(name, 0.0)]
        for name in asked:
            self._known_until.pop(name, None)
        there = await self._those_there(asked)
        for name in asked:
            if name not in there:
                raise _unknown(name)
            self._known_until[name] = self._deps.clock() + KNOWN_SECONDS

    async def _those_there(self, names: Collection[str]) -> Collection[str]:
        if len(names) > READ_ONE_BY_ONE:
            page = await self._deps.ledger.list(Project)
            return {one.meta.name for one in page.items if not one.meta.deleting}
        found = []
        for name in names:
            with contextlib.suppress(ObjectNotFound):
                project = await self._deps.ledger.get(Project, name)
                found += [] if project.meta.deleting else [name]
        return found

    async def get(self, name: str) -> Project:
        """Read a project; raises ``Missing``."""
        try:
            return await self._deps.ledger.get(Project, name)
        except ObjectNotFound:
            raise problems.Missing(
                Code.NOT_FOUND, f"There is no project `{name}` that you can see"
            ) from None

    async def visible(self, principal: Principal) -> list[Project]:
        """Projects that the caller may see, by name."""
        page = await self._deps.ledger.list(Project)
        seen = [project for project in page.items if principal.sees(project.meta.name)]
        return sorted(seen, key=lambda project: project.meta.name)

    async def create(self, body: ProjectCreate, principal: Principal) -> Project:
        """Make a project and its Hub group; its colour is the least used of twelve."""
        page = await self._deps.ledger.list(Project)
        if any(project.meta.name == body.name for project in page.items):
            raise _taken(body.name)
        used = Counter(project.spec.color for project in page.items)
        color = min(range(COLORS), key=lambda number: (used[number], number))
        project = convert.to_project(body, principal, color=color, now=self._deps.clock())
        self._check_guarantee(project.spec)
        check_groups(self._deps.live, project.spec)
        await self._check_department(project.spec)
        await self._hub_group(body.name, exists=True)
        try:
            made = await self._deps.ledger.create(project)
        except ObjectExists:
            raise _taken(body.name) from None
        self._moved()
        return made

    async def change(self, name: str, patch: Mapping[str, Any], principal: Principal) -> Project:
        """Apply a merge patch; with a ``resource_version`` only to exactly that version.

        Raises ``PermissionDenied`` where it moves to a department in which the caller makes no
        projects.
        """
        for _ in range(ATTEMPTS):
            old = await self.get(name)
            before = old.spec.department
            project = self._patched(old, patch)
            if project.spec.department != before:
                _check_move(project.spec.department, principal)
                await self._check_department(project.spec)
            try:
                changed = await self._deps.ledger.update(project)
            except VersionConflict:
                continue
            self._moved()
            return changed
        raise _changed_meanwhile(name)

    def _moved(self) -> None:
        """Drop cached rights, because a project moved to another department."""
        self._deps.access_rules.forget()

    async def preview(self, name: str, patch: Mapping[str, Any]) -> ProjectImpact:
        """The work that a patch would start and preempt at once."""
        project = self._patched(await self.get(name), patch)
        return self._deps.live.preview_project(name, msgspec.json.encode(project.spec))

    async def preview_many(
        self, names: Sequence[str], patch: Mapping[str, Any], principal: Principal
    ) -> ProjectImpact:
        """The work that a patch of several projects would start and preempt at once."""
        wanted = [new for _, new in await self._all_patched(names, patch, principal)]
        specs = {one.meta.name: msgspec.json.encode(one.spec) for one in wanted}
        return self._deps.live.preview_projects(specs)

    async def change_many(
        self, names: Sequence[str], patch: Mapping[str, Any], principal: Principal
    ) -> Sequence[Project]:
        """Apply a patch to all of these projects, or to none.

        All are checked before one is written; where one cannot be written, those that were get
        their rules back. Raises ``Conflicting`` then.
        """
        pairs = await self._all_patched(names, patch, principal)
        written: list[tuple[Project, ProjectSpec]] = []
        for old, new in pairs:
            try:
                written.append((await self._deps.ledger.update(new), old.spec))
            except StoreError as error:
                await self._put_back(written)
                if isinstance(error, VersionConflict | ObjectNotFound):
                    raise _changed_meanwhile(new.meta.name) from error
                raise
        self._moved()
        return [project for project, _ in written]

    async def _put_back(self, written: Sequence[tuple[Project, ProjectSpec]]) -> None:
        """Restore projects' rules, unless somebody has changed them since."""
        for project, before in written:
            project.spec = before
            with contextlib.suppress(VersionConflict, ObjectNotFound):
                await self._deps.ledger.update(project)

    async def _all_patched(
        self, names: Sequence[str], patch: Mapping[str, Any], principal: Principal
    ) -> list[tuple[Project, Project]]:
        """The projects before and after the patch; nothing is written."""
        if len(set(names)) < len(names):
            raise problems.invalid_field("projects", Code.INVALID, list(names), "each name once")
        if not patch or "resource_version" in patch:
            right = "fields of a project, at least one, without `resource_version`"
            raise problems.invalid_field("changes", Code.INVALID, dict(patch), right)
        try:
            validators.patch_of(ProjectChanges).model_validate_json(msgspec.json.encode(patch))
        except ValidationError as error:
            raise _of_changes(refusals.from_validation(error, patch)) from error
        pairs = []
        for name in names:
            if not principal.may_in(name, "projects:update"):
                raise problems.not_permitted("projects:update", f"project/{name}")
            old, new = await self.get(name), await self.get(name)
            try:
                new = self._patched(new, patch)
                if new.spec.department != old.spec.department:
                    _check_move(new.spec.department, principal)
                    await self._check_department(new.spec)
            except problems.InvalidRequest as error:
                raise _of_changes(error) from error
            pairs.append((old, new))
        return pairs

    def _patched(self, project: Project, patch: Mapping[str, Any]) -> Project:
        changes = dict(patch)
        expected = changes.pop("resource_version", None)
        if expected is not None and expected != project.meta.resource_version:
            raise _changed_meanwhile(project.meta.name)
        old = project.spec
        try:
            complete = convert.patched(old, changes)
        except ValidationError as error:
            raise refusals.from_validation(error) from error
        project.spec = convert.to_project_spec(complete, old.members_group, old.color)
        check_groups(self._deps.live, project.spec, old)
        if project.spec.quota != old.quota:
            self._check_guarantee(project.spec)
        return project

    def _check_guarantee(self, spec: ProjectSpec) -> None:
        """Refuse a guarantee of more GPUs than there are: it could never be kept."""
        nodes = self._deps.live.nodes()
        there = sum(node.gpu_milli for node in nodes)
        asked = spec.quota.gpu_milli
        if nodes and asked is not None and asked > there:
            expected = f"at most {there / MILLI:g}, the GPUs that there are"
            raise problems.invalid_field(
                "quota.gpus", Code.QUOTA_NEVER_MET, asked / MILLI, expected
            )

    async def _check_department(self, spec: ProjectSpec) -> None:
        """Refuse an unknown department."""
        if not spec.department:
            return
        try:
            await self._deps.ledger.get(Department, spec.department)
        except ObjectNotFound:
            raise problems.invalid_field(
                "department",
                Code.UNKNOWN_DEPARTMENT,
                spec.department,
                "a department that exists, or null for none",
            ) from None

    async def delete(self, name: str) -> None:
        """Delete a project without workloads, and its Hub group."""
        await self.get(name)
        if name in self._closing:
            raise _changed_meanwhile(name)
        self._closing.add(name)
        try:
            page = await self._deps.ledger.list(Workload, projects=[name], limit=1)
            if page.items or self._submitting[name]:
                raise problems.Conflicting(
                    Code.PROJECT_IN_USE, f"`{name}` has workloads; delete them first"
                )
            self._known_until.pop(name, None)
            await self._hub_group(name, exists=False)
            await self._deps.ledger.delete(Project, name)
            await self._deps.ledger.scoped.remove_scope(Scope("project", name))
            self._moved()
        finally:
            self._closing.discard(name)

    async def members(self, name: str) -> Sequence[str]:
        """Users of a project."""
        await self.get(name)
        with asking_the_hub():
            return await self._deps.membership.users(name)

    async def members_of_shared(self, projects: Collection[Project]) -> dict[str, int]:
        """The number of members of each project whose users share it, as far as the Hub tells."""
        found: dict[str, int] = {}
        for one in projects:
            if one.spec.user_order == "fair-share":
                with contextlib.suppress(IdentityUnavailable):
                    found[one.meta.name] = len(await self._deps.membership.users(one.meta.name))
        return found

    async def add_member(self, name: str, user: str) -> Sequence[str]:
        """Make a user a member; returns all."""
        await self.get(name)
        try:
            with asking_the_hub():
                await self._deps.membership.add(name, user)
        except UnknownHubUser as error:
            raise problems.Missing(Code.UNKNOWN_USER, f"JupyterHub has no user `{user}`") from error
        self._deps.identity.forget(user)
        return await self.members(name)

    async def remove_member(self, name: str, user: str) -> None:
        """End a membership."""
        await self.get(name)
        with asking_the_hub():
            await self._deps.membership.remove(name, user)
        self._deps.identity.forget(user)

    async def _hub_group(self, name: str, *, exists: bool) -> None:
        membership = self._deps.membership
        with asking_the_hub():
            if exists:
                await membership.create_group(name)
            else:
                await membership.delete_group(name)


def check_groups(
    live: Live, spec: ProjectSpec | DepartmentSpec, old: ProjectSpec | DepartmentSpec | None = None
) -> None:
    """Refuse groups of nodes that no node is in, where the old rules do not name them already."""
    lists, before = spec.node_groups, ProjectSpec() if old is None else old
    for field, names, known in (
        ("node_groups.training", lists.training, before.node_groups.training),
        ("node_groups.interactive", lists.interactive, before.node_groups.interactive),
        ("node_group_limits", spec.node_group_limits, before.node_group_limits),
        ("node_group_quotas", spec.node_group_quotas, before.node_group_quotas),
    ):
        _check_group_names(live, field, set(names) - set(known))
    if (spec.quota, spec.node_group_quotas) != (before.quota, before.node_group_quotas):
        _check_group_quotas(spec)


def _check_group_quotas(spec: ProjectSpec | DepartmentSpec) -> None:
    """Refuse quotas in node groups that together exceed the total quota."""
    quota, asked = spec.quota.gpu_milli, sum(spec.node_group_quotas.values())
    if quota is not None and round(asked * MILLI) > quota:
        expected = f"at most `quota.gpus` in all groups together, which is {quota / MILLI:g}"
        raise problems.invalid_field(
            "node_group_quotas", Code.GROUP_QUOTAS_ABOVE_QUOTA, asked, expected
        )


def _check_group_names(live: Live, field: str, names: Collection[str]) -> None:
    """Refuse node groups without nodes; ``field`` names them."""
    there = {node.group for node in live.nodes()} - {""}
    unknown = sorted(set(names) - there)
    if unknown:
        known = ", ".join(f"`{name}`" for name in sorted(there)) or "none, there is no group"
        raise problems.invalid_field(field, Code.UNKNOWN_NODE_GROUP, unknown[0], known)


def _of_changes(error: problems.InvalidRequest) -> problems.InvalidRequest:
    """The same check for fields below ``changes`` in a request."""
    errors = [msgspec.structs.replace(one, field=f"changes.{one.field}") for one in error.errors]
    return problems.InvalidRequest(error.code, error.detail, errors=errors)


def _check_move(department: str, principal: Principal) -> None:
    scope = Scope("department", department) if department else PLATFORM
    if not principal.may("projects:create", scope):
        raise problems.not_permitted("projects:create", str(scope))


def _unknown(name: str) -> problems.InvalidRequest:
    return problems.invalid_field("project", Code.UNKNOWN_PROJECT, name, "a project that exists")


def _taken(name: str) -> problems.Conflicting:
    return problems.Conflicting(Code.ALREADY_EXISTS, f"A project `{name}` exists")


def _changed_meanwhile(name: str) -> problems.Conflicting:
    return problems.Conflicting(
        Code.CONFLICT, f"`{name}` was changed meanwhile: read it again, then decide again"
    )
