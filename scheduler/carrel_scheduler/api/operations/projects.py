"""Projects and their members."""

from typing import Final

from carrel_scheduler.api import convert
from carrel_scheduler.api.access import Access
from carrel_scheduler.api.models import answers, queries
from carrel_scheduler.api.models.projects import ProjectCreate, ProjectPatch
from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.ledger.objects import Project
from carrel_scheduler.workloads.contract import ProjectImpact

ONE: Final = "/projects/{project}"
MEMBERS: Final = f"{ONE}/members"


def _shown(call: Call, project: Project) -> answers.ProjectOut:
    use = call.services.deps.live.project_use().get(project.meta.name)
    return convert.project_out(project, use)


async def find(call: Call) -> Answer:
    """Projects that the caller sees."""
    use = call.services.deps.live.project_use()
    found = await call.services.projects.visible(call.visitor.person)
    items = [convert.project_out(project, use.get(project.meta.name)) for project in found]
    return Answer(answers.ProjectList(items=items))


async def read(call: Call) -> Answer:
    """One project."""
    return Answer(_shown(call, await call.services.projects.get(call.path["project"])))


async def create(call: Call) -> Answer:
    """Make a project and its group."""
    body: ProjectCreate = call.body
    project = await call.services.projects.create(body, call.visitor.person)
    location = f"{call.services.deps.prefix}/api/v1/projects/{project.meta.name}"
    return Answer(_shown(call, project), 201, {"Location": location})


async def change(call: Call) -> Answer:
    """Apply a merge patch, or say what it would do."""
    patch: ProjectPatch = call.body
    name = call.path["project"]
    if call.query.dry_run:
        return Answer(await call.services.projects.preview(name, patch))
    return Answer(_shown(call, await call.services.projects.change(name, patch)))


async def delete(call: Call) -> Answer:
    """Remove an empty project."""
    await call.services.projects.delete(call.path["project"])
    return Answer(status=204)


async def members(call: Call) -> Answer:
    """Who belongs to it."""
    users = await call.services.projects.members(call.path["project"])
    return Answer(answers.Members(users=users))


async def add_member(call: Call) -> Answer:
    """Make a user a member."""
    path = call.path
    users = await call.services.projects.add_member(path["project"], path["user"])
    return Answer(answers.Members(users=users))


async def remove_member(call: Call) -> Answer:
    """End a membership."""
    await call.services.projects.remove_member(call.path["project"], call.path["user"])
    return Answer(status=204)


OPERATIONS: Final = (
    Operation(
        id="list_projects",
        method="GET",
        path="/projects",
        access=Access.USER,
        summary="Projects that the caller sees, with their use",
        answers={200: answers.ProjectList},
        run=find,
    ),
    Operation(
        id="create_project",
        method="POST",
        path="/projects",
        access=Access.ADMIN,
        summary="Create a project and its Hub group",
        body=ProjectCreate,
        answers={201: answers.ProjectOut},
        run=create,
        problems=(409,),
    ),
    Operation(
        id="read_project",
        method="GET",
        path=ONE,
        access=Access.MEMBER,
        summary="One project",
        answers={200: answers.ProjectOut},
        run=read,
    ),
    Operation(
        id="change_project",
        method="PATCH",
        path=ONE,
        access=Access.ADMIN,
        summary="Change a project; a dry run says who would start and who would give way",
        query=queries.DryRun,
        body=ProjectPatch,
        answers={200: (answers.ProjectOut, ProjectImpact)},
        run=change,
        problems=(409,),
    ),
    Operation(
        id="delete_project",
        method="DELETE",
        path=ONE,
        access=Access.ADMIN,
        summary="Delete a project that has no workloads",
        answers={204: None},
        run=delete,
        problems=(409,),
    ),
    Operation(
        id="list_members",
        method="GET",
        path=MEMBERS,
        access=Access.MEMBER,
        summary="Who belongs to a project",
        answers={200: answers.Members},
        run=members,
    ),
    Operation(
        id="add_member",
        method="PUT",
        path=f"{MEMBERS}/{{user}}",
        access=Access.ADMIN,
        summary="Make a user a member",
        answers={200: answers.Members},
        run=add_member,
    ),
    Operation(
        id="remove_member",
        method="DELETE",
        path=f"{MEMBERS}/{{user}}",
        access=Access.ADMIN,
        summary="End a membership",
        answers={204: None},
        run=remove_member,
    ),
)
