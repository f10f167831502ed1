"""People: listed, invited, changed, disabled and removed; and groups of the directory."""

from typing import Annotated, Final, Literal

import msgspec

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.principals.authentication import asking_the_hub
from carrel_scheduler.api.principals.identity import SPAWN
from carrel_schema.constraints import NO_NUL, Constraint
from carrel_schema.governance.people import (
    MOST_USERS,
    DirectoryGroupFields,
    DirectoryGroupList,
    DirectoryGroupOut,
    GroupName,
    Invitation,
    InvitationFields,
    PasswordChange,
    PosixIdentity,
    UserAction,
    UserFields,
    UserOut,
    UserPage,
    UserProjects,
    UserSort,
    UserState,
)

USERS: Final = "/users"
USER: Final = f"{USERS}/{{user}}"
GROUPS: Final = "/directory-groups"


class UserQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of people: ``search`` is part of a name or of a project's name."""

    search: Annotated[str, Constraint(max_length=255, pattern=NO_NUL)] = ""
    state: UserState | Literal[""] = ""
    sort: UserSort = "name"
    order: Literal["ascending", "descending"] = "ascending"
    limit: Annotated[int, Constraint(ge=1, le=MOST_USERS)] = 50
    first: Annotated[int, Constraint(ge=0, le=10_000_000)] = 0


class UserActionFields(msgspec.Struct, frozen=True, kw_only=True):
    """The action on a user."""

    action: UserAction


class GroupSource(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of the table alone, or of the file alone."""

    source: Literal["", "table", "file"] = ""


class NamedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of the directory, as the directory spells it."""

    group: GroupName


@Operation(
    "GET",
    USERS,
    access=AdmittedCallers.ADMIN,
    permission="users:read",
    query=UserQuery,
    answers={200: UserPage},
)
async def list_users(call: Call) -> Response:
    """List the users who may sign in, page by page."""
    query: UserQuery = call.query
    found = await call.services.users.page(
        search=query.search,
        state=query.state,
        sort=query.sort,
        descending="true" if query.order == "descending" else "",
        limit=str(query.limit),
        offset=str(query.first),
    )
    return Response(found)


@Operation(
    "GET", f"{USERS}/me", access=AdmittedCallers.USER, answers={200: UserOut}, problems=(404,)
)
async def read_own_user(call: Call) -> Response:
    """Read the caller's account."""
    return Response(await call.services.users.get(call.visitor.person.name))


@Operation(
    "POST",
    f"{USERS}/me/password",
    access=AdmittedCallers.USER,
    body=PasswordChange,
    answers={204: None},
    problems=(403, 422),
)
async def change_own_password(call: Call) -> Response:
    """Change the caller's password, given the present one; all sessions and tokens end."""
    await call.services.users.change_password(call.body, call.visitor.person)
    return Response(status=204)


@Operation(
    "GET",
    USER,
    access=AdmittedCallers.ADMIN,
    permission="users:read",
    answers={200: UserOut},
    problems=(404,),
)
async def read_user(call: Call) -> Response:
    """One person: state, projects and what brought them, when they were last seen."""
    return Response(await call.services.users.get(call.path["user"]))


@Operation(
    "PUT",
    f"{USER}/invitation",
    access=AdmittedCallers.ADMIN,
    permission="users:update",
    body=InvitationFields,
    answers={200: Invitation},
    problems=(409, 422),
)
async def invite_user(call: Call) -> Response:
    """Invite a user: create a link to choose a password, once; earlier links become invalid."""
    made = await call.services.users.invite(call.path["user"], call.body, call.visitor.person)
    return Response(made)


@Operation(
    "POST",
    f"{USER}/update",
    access=AdmittedCallers.ADMIN,
    permission="users:update",
    body=UserFields,
    answers={200: UserOut},
    problems=(404, 409, 422),
)
async def update_user(call: Call) -> Response:
    """Change the projects given to a user by hand, and whether the user is an administrator."""
    changed = await call.services.users.update(call.path["user"], call.body, call.visitor.person)
    return Response(changed)


@Operation(
    "POST",
    f"{USER}/actions",
    access=AdmittedCallers.ADMIN,
    permission="users:update",
    body=UserActionFields,
    answers={204: None},
    problems=(404, 409, 422),
)
async def act_on_user(call: Call) -> Response:
    """Disable or enable a user, end the user's sessions, or revoke an invitation."""
    await call.services.users.act(call.path["user"], call.body.action, call.visitor.person)
    return Response(status=204)


@Operation(
    "DELETE",
    USER,
    access=AdmittedCallers.ADMIN,
    permission="users:update",
    answers={204: None},
    problems=(404, 409),
)
async def delete_user(call: Call) -> Response:
    """Delete a user with sessions, tokens and memberships; files, jobs and history stay."""
    await call.services.users.remove(call.path["user"], call.visitor.person)
    return Response(status=204)


@Operation("GET", f"{USER}/identity", access=AdmittedCallers.HUB, answers={200: PosixIdentity})
async def read_user_identity(call: Call) -> Response:
    """Read the uid and gids that a user's work runs under; uid 0: the engine's choice."""
    return Response(await call.services.users.identity(call.path["user"]))


@Operation("GET", f"{USER}/projects", access=AdmittedCallers.HUB, answers={200: UserProjects})
async def list_user_projects(call: Call) -> Response:
    """List the projects in which a user may start a workspace, as a member or by an access rule."""
    with asking_the_hub():
        found = await call.services.deps.access_rules.projects_to_submit_to(call.path["user"])
    return Response(UserProjects(items=found))


@Operation(
    "PUT",
    f"{USER}/identity",
    access=AdmittedCallers.HUB,
    body=PosixIdentity,
    answers={200: PosixIdentity},
    audited=False,
)
async def put_user_identity(call: Call) -> Response:
    """Record the uid and gids that the directory gives a user, or none; only the Hub calls it."""
    return Response(await call.services.users.put_identity(call.path["user"], call.body))


@Operation(
    "GET",
    GROUPS,
    access=AdmittedCallers.ADMIN,
    permission="directory-groups:read",
    also_scope=SPAWN,
    query=GroupSource,
    answers={200: DirectoryGroupList},
)
async def list_directory_groups(call: Call) -> Response:
    """List the rules for members of groups of the directory."""
    return Response(DirectoryGroupList(items=await call.services.groups.list(call.query.source)))


@Operation(
    "PUT",
    GROUPS,
    access=AdmittedCallers.ADMIN,
    permission="directory-groups:update",
    query=NamedGroup,
    body=DirectoryGroupFields,
    answers={200: DirectoryGroupOut},
    problems=(409,),
)
async def put_directory_group(call: Call) -> Response:
    """Set the rule for members of a group of the directory."""
    made = await call.services.groups.put(call.query.group, call.body, call.visitor.person)
    return Response(made)


@Operation(
    "DELETE",
    GROUPS,
    access=AdmittedCallers.ADMIN,
    permission="directory-groups:update",
    query=NamedGroup,
    answers={204: None},
    problems=(404,),
)
async def delete_directory_group(call: Call) -> Response:
    """Delete the rule of a group of the directory; its members lose what the rule gave them."""
    await call.services.groups.delete(call.query.group)
    return Response(status=204)


OPERATIONS: Final = (
    list_users,
    read_own_user,
    change_own_password,
    read_user,
    invite_user,
    update_user,
    act_on_user,
    delete_user,
    read_user_identity,
    list_user_projects,
    put_user_identity,
    list_directory_groups,
    put_directory_group,
    delete_directory_group,
)
