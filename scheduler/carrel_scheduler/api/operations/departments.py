"""Operations on departments, and the check of all quotas; for administrators."""

from collections import Counter
from typing import Final

from carrel_scheduler.api import convert
from carrel_scheduler.api.models import answers
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import anywhere, of_department
from carrel_scheduler.api.operations.paths import DEPARTMENT, DEPARTMENTS
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.policy.quota_check import quota_findings
from carrel_schema.answers import DepartmentFields, DepartmentOut, ProjectImpact, QuotaFinding
from carrel_schema.objects import Project
from carrel_schema.scopes import PLATFORM, Scope


@Operation("GET", DEPARTMENTS, access=AdmittedCallers.USER, answers={200: answers.DepartmentList})
async def list_departments(call: Call) -> Response:
    """List the departments that the caller may see."""
    person = call.visitor.person
    found = [
        one
        for one in await call.services.departments.all()
        if person.may("departments:read", Scope("department", one.meta.name))
    ]
    return Response(answers.DepartmentList(items=[convert.department_out(one) for one in found]))


@Operation(
    "PUT",
    DEPARTMENT,
    access=AdmittedCallers.ADMIN,
    permission="departments:update",
    scope=of_department,
    body=DepartmentFields,
    answers={200: DepartmentOut},
    problems=(409,),
)
async def put_department(call: Call) -> Response:
    """Create a department, or replace its rules."""
    body: DepartmentFields = call.body
    made = await call.services.departments.put(call.path["name"], body, call.visitor.person)
    return Response(convert.department_out(made))


@Operation(
    "POST",
    f"{DEPARTMENT}/preview",
    access=AdmittedCallers.ADMIN,
    permission="departments:update",
    scope=of_department,
    body=DepartmentFields,
    answers={200: ProjectImpact},
    audited=False,
)
async def preview_department(call: Call) -> Response:
    """Answer what a change of a department would start and preempt; nothing is written."""
    name, person = call.path["name"], call.visitor.person
    return Response(await call.services.departments.preview(name, call.body, person))


@Operation(
    "DELETE",
    DEPARTMENT,
    access=AdmittedCallers.ADMIN,
    permission="departments:delete",
    scope=of_department,
    answers={204: None},
    problems=(409,),
)
async def delete_department(call: Call) -> Response:
    """Delete a department that no project belongs to."""
    await call.services.departments.delete(call.path["name"])
    return Response(status=204)


@Operation(
    "GET",
    "/quota-findings",
    access=AdmittedCallers.ADMIN,
    permission="projects:update",
    scope=anywhere,
    answers={200: answers.QuotaFindings},
)
async def list_quota_findings(call: Call) -> Response:
    """List quotas that cannot all be met, and limits and weights without effect."""
    deps = call.services.deps
    projects = (await deps.ledger.list(Project)).items
    departments = await call.services.departments.all()
    nodes = deps.live.nodes()
    gpu_milli, groups = sum(node.gpu_milli for node in nodes), Counter[str]()
    for node in nodes:
        if node.group:
            groups[node.group] += node.gpu_milli
    person = call.visitor.person

    def seen(one: QuotaFinding) -> bool:
        if one.kind == "project":
            return person.may_in(one.name, "projects:update")
        if one.kind == "department":
            return person.may("departments:read", Scope("department", one.name))
        return person.may("projects:update", PLATFORM)

    members = await call.services.projects.members_of_shared(projects)
    found = quota_findings(projects, departments, gpu_milli, groups, members)
    return Response(answers.QuotaFindings(items=list(filter(seen, found))))


OPERATIONS: Final = (
    list_departments,
    put_department,
    preview_department,
    delete_department,
    list_quota_findings,
)
