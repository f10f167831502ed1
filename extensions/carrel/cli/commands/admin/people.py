"""``carrel people``, ``carrel group`` and ``carrel password``: who may sign in, and as what."""

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from carrel.cli.commands.admin.documents import read_unseen
from carrel.cli.common import NoHeaders, Output, OutputOption, connected, say, show
from carrel.errors import BadSetting
from carrel_schema.governance.people import MOST_USERS, UserAction, UserOut

Name = Annotated[str, typer.Argument(metavar="USER", help="Their user name.")]
Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group, as the directory spells it.")
]
Projects = Annotated[
    list[str] | None, typer.Option("--project", "-p", help="A project; repeat for several.")
]


def list_people(
    search: Annotated[
        str, typer.Argument(metavar="[TEXT]", help="Part of a user name or of a project's name.")
    ] = "",
    *,
    state: Annotated[
        str, typer.Option("--state", help="active, invited or disabled; by default all.")
    ] = "",
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the people who may sign in (administrators)."""
    found: list[UserOut] = []
    with connected() as client:
        while True:
            page = client.list_users(search, state=state, limit=MOST_USERS, first=len(found))
            found += page.items
            if not page.items or len(found) >= page.total:
                break
    rows = (
        [
            one.name,
            one.state,
            one.sign_in,
            "yes" if one.admin else "",
            ", ".join(one.projects),
            _moment(one.last_seen_at),
        ]
        for one in found
    )
    headers = ["USER", "STATE", "SIGN-IN", "ADMIN", "PROJECTS", "LAST SEEN"]
    show(found, output, headers, rows, no_headers=no_headers)


def describe(name: Name = "me", *, output: OutputOption = Output.TABLE) -> None:
    """Show one person and where their rights come from; yourself, unless you name somebody."""
    with connected() as client:
        found = client.user(name)
    rows = [
        ["State", found.state],
        ["Sign-in", found.sign_in],
        ["Administrator", _by(found.admin_groups) if found.admin else "no"],
        ["Created", _moment(found.created_at)],
        ["Last seen", _moment(found.last_seen_at)],
        ["Running workspaces", str(found.workspaces)],
        *(
            [f"Project {one.project}", _by(one.groups) if one.by_directory else "by hand"]
            for one in found.memberships
        ),
    ]
    if found.posix is not None:
        own = found.posix
        numbers = f"uid {own.uid}, gid {own.gid}, groups {', '.join(map(str, own.gids)) or 'none'}"
        rows.append(["Numbers", own.problem or numbers])
    if found.invited_until:
        rows.append(["Invited until", _moment(found.invited_until)])
    show(found, output, [found.name, ""], rows)


def invite(
    name: Name,
    *,
    project: Projects = None,
    admin: Annotated[bool, typer.Option("--admin", help="Administers the platform.")] = False,
    days: Annotated[
        float, typer.Option("--days", min=0.01, max=90, help="How long the link counts.")
    ] = 3.0,
) -> None:
    """Print a link by which somebody chooses a password, once; an earlier link counts no more."""
    with connected() as client:
        made = client.invite_user(name, projects=project or [], admin=admin, days=days)
        root = client.aio.settings.url.partition("/services/")[0]
    say(f"{root}/{made.path}")
    say(f"The link is shown this once and counts once, until {_moment(made.expires_at)}.")


def revoke_invitation(name: Name) -> None:
    """Let the link of an invitation count no more."""
    _act(name, "revoke-invitation")
    say(f"The invitation of {name} counts no more.")


def disable(name: Name) -> None:
    """Let somebody sign in no more, end sessions and tokens, stop workspaces; jobs go on."""
    _act(name, "disable")
    say(f"{name} is disabled; projects and files stay.")


def enable(name: Name) -> None:
    """Enable a disabled account again."""
    _act(name, "enable")
    say(f"{name} may sign in again.")


def end_sessions(name: Name) -> None:
    """End somebody's sessions and tokens; running workspaces go on."""
    _act(name, "end-sessions")
    say(f"{name} has to sign in again.")


def update(
    name: Name,
    *,
    project: Projects = None,
    no_projects: Annotated[
        bool, typer.Option("--no-projects", help="No project by hand any more.")
    ] = False,
    admin: Annotated[
        bool | None, typer.Option("--admin/--no-admin", help="Administers the platform, or not.")
    ] = None,
) -> None:
    """Replace the projects that were assigned to a user by hand, or the administrator's right."""
    projects = [] if no_projects else project
    if projects is None and admin is None:
        raise BadSetting("What should change? --project, --no-projects, --admin or --no-admin.")
    with connected() as client:
        changed = client.update_user(name, admin=admin, projects=projects)
    say(f"{name}: {', '.join(changed.projects) or 'no project'}{_admin(changed)}.")


def delete(name: Name) -> None:
    """Remove somebody with sessions, tokens and memberships; files, jobs and history stay."""
    with connected() as client:
        client.delete_user(name)
    say(f"{name} is removed; files, jobs and history stay, workspaces stop.")


def password() -> None:
    """Change your own password; sessions and tokens of before end."""
    old, new = read_unseen("Present password"), read_unseen("New password")
    if sys.stdin.isatty() and new != read_unseen("New password again"):
        raise BadSetting("The two new passwords differ.")
    with connected() as client:
        client.change_password(old, new)
    say("Your password is changed; sign in again, also here: carrel login.")


def list_groups(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List what groups of the directory make of their members."""
    with connected() as client:
        found = client.list_directory_groups()
    rows = (
        [
            one.group,
            ", ".join(one.projects),
            f"{one.role} in {one.scope}" if one.role else "",
            "yes" if one.admin else "",
            one.changed_by or one.source,
        ]
        for one in found
    )
    headers = ["GROUP", "PROJECTS", "ROLE", "ADMIN", "BY"]
    show(found, output, headers, rows, no_headers=no_headers)


def map_group(
    group: Group,
    *,
    project: Projects = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="Members administer the platform.")
    ] = False,
    role: Annotated[str, typer.Option("--role", help="Members have this role in --scope.")] = "",
    scope: Annotated[
        str, typer.Option("--scope", help="project/NAME, department/NAME or platform.")
    ] = "",
) -> None:
    """Replace the projects and roles that a directory group brings; takes effect within minutes."""
    with connected() as client:
        client.map_directory_group(
            group, projects=project or [], admin=admin, role=role, scope=scope
        )
    say(f"The rule of {group} counts within some minutes.")


def unmap_group(group: Group) -> None:
    """Take from members of a group what its rule gave them, within some minutes."""
    with connected() as client:
        client.unmap_directory_group(group)
    say(f"The rule of {group} is removed; its members lose what it gave within some minutes.")


def _act(name: str, action: UserAction) -> None:
    with connected() as client:
        client.act_on_user(name, action)


def _admin(one: UserOut) -> str:
    return ", administers the platform" if one.admin else ""


def _by(groups: object) -> str:
    names = ", ".join(groups) if isinstance(groups, list | tuple) else ""
    return f"by the directory ({names})" if names else "yes"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%MZ") if at else "-"
