"""Projects and their members."""

from collections.abc import Mapping
from typing import Any, Final

from carrel_scheduler.api import convert
from carrel_scheduler.api.models import answers, queries
from carrel_scheduler.api.models.projects import ProjectChanges, ProjectsChange
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import anywhere, of_new_project
from carrel_scheduler.api.operations.paths import PROJECT, PROJECTS
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.answers import Members, ProjectCreate, ProjectImpact, ProjectOut
from carrel_schema.objects import Project

MEMBERS: Final = f"{PROJECT}/members"
MEMBER: Final = f"{MEMBERS}/{{user}}"


def _shown(call: Call, project: Project) -> ProjectOut:
    name = project.meta.name
    return convert.project_out(project, call.services.deps.live.project_use(name).get(name))


@Operation("GET", PROJECTS, access=AdmittedCallers.USER, answers={200: answers.ProjectList})
async def list_projects(call: Call) -> Response:
    """List the projects that the caller sees, with what they use now."""
    use = call.services.deps.live.project_use()
    found = await call.services.projects.visible(call.visitor.person)
    items = [convert.project_out(project, use.get(project.meta.name)) for project in found]
    return Response(answers.ProjectList(items=items))


@Operation(
    "GET",
    PROJECT,
    access=AdmittedCallers.MEMBER,
    permission="projects:read",
    answers={200: ProjectOut},
)
async def read_project(call: Call) -> Response:
    """Read one project."""
    return Response(_shown(call, await call.services.projects.get(call.path["project"])))


@Operation(
    "POST",
    PROJECTS,
    access=AdmittedCallers.ADMIN,
    permission="projects:create",
    scope=of_new_project,
    body=ProjectCreate,
    answers={201: ProjectOut},
    problems=(409,),
)
async def create_project(call: Call) -> Response:
    """Create a project and its Hub group."""
    body: ProjectCreate = call.body
    project = await call.services.projects.create(body, call.visitor.person)
    location = call.address("projects", project.meta.name)
    return Response(_shown(call, project), 201, {"Location": location})


@Operation(
    "PATCH",
    PROJECT,
    access=AdmittedCallers.ADMIN,
    permission="projects:update",
    query=queries.DryRun,
    body=ProjectChanges,
    answers={200: (ProjectOut, ProjectImpact)},
    problems=(409,),
)
async def change_project(call: Call) -> Response:
    """Change a project; a dry run answers which workloads would start and which be preempted."""
    patch: Mapping[str, Any] = call.body
    name = call.path["project"]
    if call.query.dry_run:
        return Response(await call.services.projects.preview(name, patch))
    return Response(
        _shown(call, await call.services.projects.change(name, patch, call.visitor.person))
    )


@Operation(
    "POST",
    "/project-changes",
    access=AdmittedCallers.ADMIN,
    permission="projects:update",
    scope=anywhere,
    query=queries.DryRun,
    body=ProjectsChange,
    answers={200: (answers.ProjectList, ProjectImpact)},
    problems=(404, 409),
)
async def change_projects(call: Call) -> Response:
    """Change several projects alike, all or none; a dry run answers the effect of all."""
    body: ProjectsChange = call.body
    projects, person = call.services.projects, call.visitor.person
    if call.query.dry_run:
        return Response(await projects.preview_many(body.projects, body.changes, person))
    changed = await projects.change_many(body.projects, body.changes, person)
    return Response(answers.ProjectList(items=[_shown(call, one) for one in changed]))


@Operation(
    "DELETE",
    PROJECT,
    access=AdmittedCallers.ADMIN,
    permission="projects:delete",
    answers={204: None},
    problems=(409,),
)
async def delete_project(call: Call) -> Response:
    """Delete a project that has no workloads."""
    await call.services.projects.delete(call.path["project"])
    return Response(status=204)


@Operation(
    "GET",
    MEMBERS,
    access=AdmittedCallers.MEMBER,
    permission="members:read",
    answers={200: Members},
)
async def list_members(call: Call) -> Response:
    """List the members of a project."""
    users = await call.services.projects.members(call.path["project"])
    return Response(Members(users=users))


@Operation(
    "PUT",
    MEMBER,
    access=AdmittedCallers.ADMIN,
    permission="members:update",
    answers={200: Members},
)
async def add_member(call: Call) -> Response:
    """Add a user to a project."""
    path = call.path
    users = await call.services.projects.add_member(path["project"], path["user"])
    return Response(Members(users=users))


@Operation(
    "DELETE", MEMBER, access=AdmittedCallers.ADMIN, permission="members:update", answers={204: None}
)
async def remove_member(call: Call) -> Response:
    """Remove a user from a project."""
    await call.services.projects.remove_member(call.path["project"], call.path["user"])
    return Response(status=204)


OPERATIONS: Final = (
    list_projects,
    create_project,
    read_project,
    change_project,
    change_projects,
    delete_project,
    list_members,
    add_member,
    remove_member,
)
