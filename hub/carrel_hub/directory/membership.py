"""What groups of the directory make of one user: projects and the right to manage everything.

The Hub's groups stay the truth. A group remembers, in its ``properties``, which of its members the
directory brought, so that the directory takes back what it gave and leaves alone whom an admin
added by hand. Admins are exactly those whom the table, or the settings, name.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from jupyterhub import orm
from sqlalchemy.orm import object_session

from carrel_hub.accounts.controller import GROUP_PREFIX, group_named
from carrel_hub.directory.group_rules import GroupRule
from carrel_hub.scopes import ADMIN_GROUP

BROUGHT: Final = "members_by_directory"
"""Property of a Hub group: names of the members that the directory brought."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What a user is by the directory."""

    projects: frozenset[str]
    admin: bool


def membership(rules: Iterable[GroupRule], groups: Collection[str], *, admin: bool) -> Membership:
    """The union of what the rules give the members of these groups; ``admin``: is one anyway."""
    matching = [rule for rule in rules if rule.group in groups]
    projects = frozenset(project for rule in matching for project in rule.projects)
    return Membership(projects, admin or any(rule.admin for rule in matching))


def apply(user: Any, wanted: Membership) -> None:
    """Make a user's row what the directory says. Commit."""
    database: Any = object_session(user)
    names = {f"{GROUP_PREFIX}{project}" for project in wanted.projects}
    present = {group.name for group in user.groups}
    for group in database.query(orm.Group).all():
        if group.name not in names and user.name in _brought(group):
            _note(group, _brought(group) - {user.name})
            _leave(user, group)
    for name in sorted(names - present):
        group = group_named(database, name)
        user.groups.append(group)
        _note(group, _brought(group) | {user.name})
    _set_admin(user, database, admin=wanted.admin)
    database.commit()


def forget(user: Any) -> None:
    """Note of no group any more that the directory brought this user. Commit."""
    database: Any = object_session(user)
    for group in database.query(orm.Group).all():
        if user.name in _brought(group):
            _note(group, _brought(group) - {user.name})
    database.commit()


def _set_admin(user: Any, database: Any, *, admin: bool) -> None:
    user.admin = admin
    group = group_named(database, ADMIN_GROUP)
    if admin and group not in user.groups:
        user.groups.append(group)
    elif not admin:
        _leave(user, group)


def _leave(user: Any, group: Any) -> None:
    if group in user.groups:
        user.groups.remove(group)


def _brought(group: Any) -> set[str]:
    return set((group.properties or {}).get(BROUGHT, ()))


def _note(group: Any, names: set[str]) -> None:
    """Replace the whole property: a change inside of it is not seen by the database's session."""
    rest = {key: value for key, value in (group.properties or {}).items() if key != BROUGHT}
    group.properties = {**rest, BROUGHT: sorted(names)} if names else rest
