"""Projects and admin rights of a user, from their groups in the directory.

The Hub's groups stay the truth. A group remembers, in its ``properties``, which of its members the
directory brought, so that the directory takes back what it gave and leaves alone whom an admin
added by hand. Admins are exactly those whom the table, or the settings, name.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jupyterhub import orm
from sqlalchemy.orm import object_session

from carrel_hub.accounts.controller import GROUP_PREFIX, group_named
from carrel_hub.directory.group_rules import GroupRule
from carrel_hub.scopes import ADMIN_GROUP
from carrel_schema.governance.people import DIRECTORY_GROUP

BROUGHT: Final = "members_by_directory"
"""Property of a Hub group: the members that the directory brought, each with its groups there."""


@dataclass(frozen=True, slots=True)
class DirectoryMembership:
    """A user's projects and rights by the directory.

    Attributes:
        groups: names of groups of the Hub, each with the groups of the directory that bring it.
        admin: administers the platform.
        admin_groups: of the directory, that say so; empty: the settings do.
        complete: whether it is all; else rights that are there already stay, as some rules are
            not known now.
    """

    groups: Mapping[str, frozenset[str]]
    admin: bool
    admin_groups: frozenset[str] = frozenset()
    complete: bool = True


def membership(
    rules: Iterable[GroupRule], groups: Collection[str], *, admin: bool, complete: bool = True
) -> DirectoryMembership:
    """The union of what the rules give the members of these groups; ``admin``: is one anyway."""
    matching = [rule for rule in rules if rule.group in groups]
    found: defaultdict[str, set[str]] = defaultdict(set)
    for rule in matching:
        for project in rule.projects:
            found[f"{GROUP_PREFIX}{project}"].add(rule.group)
        if rule.role:
            found[f"{DIRECTORY_GROUP}{rule.group}"].add(rule.group)
    admin_groups = frozenset(rule.group for rule in matching if rule.admin)
    return DirectoryMembership(
        {name: frozenset(by) for name, by in found.items()},
        admin or bool(admin_groups),
        admin_groups,
        complete,
    )


def apply(user: Any, wanted: DirectoryMembership) -> None:
    """Make a user's row in the Hub equal to the directory. The caller commits."""
    database: Any = object_session(user)
    present = {group.name for group in user.groups}
    for group in database.query(orm.Group).all():
        brought = brought_by(group)
        if user.name not in brought or group.name == ADMIN_GROUP:
            continue
        if group.name in wanted.groups:
            _note(group, {**brought, user.name: sorted(wanted.groups[group.name])})
        elif wanted.complete:
            _note(group, _without(brought, user.name))
            _leave(user, group)
    for name in sorted(wanted.groups.keys() - present):
        group = group_named(database, name)
        user.groups.append(group)
        _note(group, {**brought_by(group), user.name: sorted(wanted.groups[name])})
    if wanted.complete or wanted.admin:
        _set_admin(user, database, wanted)
    database.commit()


def forget(user: Any) -> None:
    """Note of no group any more that the directory brought this user. Commit."""
    database: Any = object_session(user)
    for group in database.query(orm.Group).all():
        if user.name in brought_by(group):
            _note(group, _without(brought_by(group), user.name))
    database.commit()


def brought_by(group: Any) -> dict[str, list[str]]:
    """Members of a group of the Hub that the directory brought, and by which groups there.

    Earlier versions wrote down names alone.
    """
    noted = (group.properties or {}).get(BROUGHT, ())
    return dict(noted) if isinstance(noted, dict) else {str(name): [] for name in noted}


def _set_admin(user: Any, database: Any, wanted: DirectoryMembership) -> None:
    user.admin = wanted.admin
    group = group_named(database, ADMIN_GROUP)
    brought = _without(brought_by(group), user.name)
    if wanted.admin:
        _note(group, {**brought, user.name: sorted(wanted.admin_groups)})
        if group not in user.groups:
            user.groups.append(group)
    else:
        _note(group, brought)
        _leave(user, group)


def _leave(user: Any, group: Any) -> None:
    if group in user.groups:
        user.groups.remove(group)


def _without(brought: Mapping[str, list[str]], name: str) -> dict[str, list[str]]:
    return {one: groups for one, groups in brought.items() if one != name}


def _note(group: Any, brought: Mapping[str, list[str]]) -> None:
    """Replace the whole property: a change inside of it is not seen by the database's session."""
    if brought == brought_by(group):
        return
    rest = {key: value for key, value in (group.properties or {}).items() if key != BROUGHT}
    group.properties = {**rest, BROUGHT: dict(sorted(brought.items()))} if brought else rest
