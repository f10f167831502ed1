"""Users: who may sign in, with which rights, and the rules for groups of the directory.

The Hub is the source of truth of people; the scheduler shows and changes them for administrators.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import NO_NUL, Constraint
from carrel_schema.governance.roles import RoleName

UserState = Literal["active", "invited", "disabled"]
SignInKind = Literal["local", "oidc", "ldap", "other"]
UserSort = Literal["name", "last_seen"]
UserAction = Literal["enable", "disable", "end-sessions", "revoke-invitation"]
USER_ACTIONS: Final[tuple[UserAction, ...]] = (
    "enable",
    "disable",
    "end-sessions",
    "revoke-invitation",
)
MOST_USERS: Final = 500
LEAST_ID: Final = 1000
"""Smaller numbers are those of systems, and of root."""
LARGEST_ID: Final = 2_147_483_647
AccountNumber = Annotated[int, Constraint(ge=0, le=LARGEST_ID)]
NO_IDS: Final = (65534, 65535)
"""The user and group id of nobody."""
DIRECTORY_GROUP: Final = "directory-"
"""The prefix of Hub groups that mirror groups of the directory."""
Password = Annotated[str, Constraint(min_length=1, max_length=1024)]
GroupName = Annotated[str, Constraint(min_length=1, max_length=200, pattern=NO_NUL)]


class PosixIdentity(Answer, frozen=True, kw_only=True):
    """The uid and gids of a user's account, from the directory.

    Attributes:
        uid: of the user; 0: the directory has none that can be used.
        gid: of their first group.
        gids: of further groups.
        problem: why their work cannot run; empty: it can.
    """

    uid: AccountNumber = 0
    gid: AccountNumber = 0
    gids: Annotated[tuple[AccountNumber, ...], Constraint(max_length=1000)] = ()
    problem: Annotated[str, Constraint(max_length=500, pattern=NO_NUL)] = ""


class UserProjects(Answer, frozen=True, kw_only=True):
    """The names of the projects in which a user may start a workspace, in order."""

    items: Sequence[str] = ()


class UserMembership(Answer, frozen=True, kw_only=True):
    """The membership of a user in a project.

    Attributes:
        project: its name.
        groups: of the directory, that brought the membership.
        by_directory: whether the directory takes it back; else it was given by hand.
    """

    project: str
    by_directory: bool = False
    groups: Sequence[str] = ()


class UserOut(Answer, frozen=True, kw_only=True):
    """A user who may sign in.

    Attributes:
        name: as they sign in.
        state: ``invited``: has not chosen a password yet.
        sign_in: by what.
        admin: administers the platform.
        admin_groups: of the directory, that make them an administrator; empty: by hand or settings.
        memberships: of projects.
        directory_groups: of the directory, that some rule names.
        created_at: epoch seconds; 0: unknown.
        last_seen_at: when the Hub last heard of them; 0: never.
        invited_until: epoch seconds; 0: no invitation counts.
        workspaces: how many of theirs run.
        posix: the numbers that their work runs under; ``None``: those that Carrel gives.
    """

    name: str
    state: UserState = "active"
    sign_in: SignInKind = "local"
    admin: bool = False
    admin_groups: Sequence[str] = ()
    memberships: Sequence[UserMembership] = ()
    directory_groups: Sequence[str] = ()
    created_at: float = 0.0
    last_seen_at: float = 0.0
    invited_until: float = 0.0
    workspaces: int = 0
    posix: PosixIdentity | None = None

    @property
    def projects(self) -> list[str]:
        """The names of the projects that the user is a member of."""
        return [one.project for one in self.memberships]


class UserPage(Answer, frozen=True, kw_only=True):
    """A page of people, and how many there are in all; ``sign_in``: the kind of sign-in."""

    items: Sequence[UserOut] = ()
    total: int = 0
    sign_in: SignInKind = "local"


class UserFields(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a user; fields left out stay.

    Attributes:
        admin: administers the platform; only where accounts are Carrel's own.
        projects: memberships given by hand; those that the directory brought stay besides.
    """

    admin: bool | None = None
    projects: Annotated[list[str], Constraint(max_length=1000)] | None = None


class InvitationFields(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation: a link to choose a password, valid once.

    Attributes:
        projects: of an account that is made.
        admin: of an account that is made.
        days: how long the link counts.
    """

    projects: Annotated[list[str], Constraint(max_length=1000)] = []
    admin: bool = False
    days: Annotated[float, Constraint(ge=0.01, le=90)] = 3.0


class Invitation(Answer, frozen=True, kw_only=True):
    """A new link, contained in this answer only: ``path`` below the address of Carrel."""

    user: str
    path: str
    expires_at: float


class PasswordChange(msgspec.Struct, frozen=True, kw_only=True):
    """A new password for the caller's own account, with the present one."""

    old: Password
    new: Password


class DirectoryGroupFields(msgspec.Struct, frozen=True, kw_only=True):
    """The rule for members of a group of the directory: their projects and roles.

    Attributes:
        projects: they are members of these.
        admin: they administer the platform.
        role: they have this role; empty: none.
        scope: where, as ``department/sciences``.
    """

    projects: Annotated[list[str], Constraint(max_length=1000)] = []
    admin: bool = False
    role: RoleName | Literal[""] = ""
    scope: Annotated[str, Constraint(max_length=200)] = ""
    expected_version: int | None = None


class DirectoryGroupOut(Answer, frozen=True, kw_only=True):
    """A rule of the table; ``source``: ``table``, or ``file`` where only the file changes it."""

    group: str
    projects: Sequence[str] = ()
    admin: bool = False
    role: str = ""
    scope: str = ""
    source: Literal["table", "file"] = "table"
    version: int = 0
    changed_at: float = 0.0
    changed_by: str = ""


class DirectoryGroupList(Answer, frozen=True, kw_only=True):
    """The rules of groups of the directory, by group."""

    items: Sequence[DirectoryGroupOut] = ()


def usable(found: PosixIdentity) -> PosixIdentity:
    """Check the uid and gids for running work, and set ``problem`` where they cannot be used.

    Further groups that are a system's are left out: the directory gives no rights over a machine.
    """
    for name, number in (("uid", found.uid), ("gid", found.gid)):
        if number < LEAST_ID or number in NO_IDS:
            return PosixIdentity(
                problem=f"the {name} of the directory is {number}; it should be {LEAST_ID} or "
                f"larger, and not {NO_IDS[0]} or {NO_IDS[1]}"
            )
    gids = {one for one in found.gids if one >= LEAST_ID and one not in (*NO_IDS, found.gid)}
    return PosixIdentity(uid=found.uid, gid=found.gid, gids=tuple(sorted(gids)))
