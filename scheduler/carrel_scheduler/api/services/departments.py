"""Departments: rules for several projects together."""

from typing import Final

from carrel_scheduler.api import convert, problems
from carrel_scheduler.api.principals.access_rules import AccessRules
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.projects import check_groups
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_scheduler.workloads.contract import Live
from carrel_schema.answers import DepartmentFields, ProjectImpact
from carrel_schema.objects import Department, Project
from carrel_schema.scopes import Scope

ATTEMPTS: Final = 8


class Departments:
    """Reads and changes departments."""

    def __init__(self, ledger: Ledger, rules: AccessRules, live: Live) -> None:
        self._ledger, self._rules, self._live = ledger, rules, live

    async def all(self) -> list[Department]:
        """All departments, by name."""
        page = await self._ledger.list(Department)
        return sorted(page.items, key=lambda one: one.meta.name)

    async def put(self, name: str, body: DepartmentFields, principal: Principal) -> Department:
        """Create a department, or replace its rules."""
        wanted = convert.to_department(body, principal, name=name)
        for _ in range(ATTEMPTS):
            found = await self._found(name)
            check_groups(self._live, wanted.spec, None if found is None else found.spec)
            try:
                if found is None:
                    return await self._ledger.create(wanted)
                found.spec = wanted.spec
                return await self._ledger.update(found)
            except (ObjectExists, VersionConflict, ObjectNotFound):
                continue
        raise problems.Conflicting(
            Code.CONFLICT, f"`{name}` was changed meanwhile; look at it and try again"
        )

    async def preview(
        self, name: str, body: DepartmentFields, principal: Principal
    ) -> ProjectImpact:
        """The work that a department with these rules would start and preempt at once."""
        wanted, found = convert.to_department(body, principal, name=name), await self._found(name)
        check_groups(self._live, wanted.spec, None if found is None else found.spec)
        return self._live.preview_department(wanted)

    async def _found(self, name: str) -> Department | None:
        try:
            return await self._ledger.get(Department, name)
        except ObjectNotFound:
            return None

    async def delete(self, name: str) -> None:
        """Delete a department without projects."""
        projects = (await self._ledger.list(Project)).items
        inside = sorted(one.meta.name for one in projects if one.spec.department == name)
        if inside:
            raise problems.Conflicting(
                Code.DEPARTMENT_IN_USE,
                f"`{inside[0]}` belongs to `{name}`; move its projects first",
            )
        try:
            await self._ledger.delete(Department, name)
            await self._ledger.scoped.remove_scope(Scope("department", name))
            self._rules.forget()
        except ObjectNotFound:
            raise problems.Missing(
                Code.NOT_FOUND, f"There is no department `{name}` that you can see"
            ) from None
