"""Disabled people: members of one group of the Hub, whatever they sign in with.

Who is disabled cannot sign in and holds no session and no token; memberships stay for the day when
they are enabled again.
"""

from typing import Any

from jupyterhub import orm

from carrel_hub.accounts.controller import group_named
from carrel_hub.scopes import DISABLED_GROUP


def is_disabled(row: Any) -> bool:
    """Whether a user's row is that of a disabled account; ``None`` is not."""
    return row is not None and any(group.name == DISABLED_GROUP for group in row.groups)


def disable(database: Any, row: Any) -> None:
    """Mark the account as disabled. The caller commits."""
    group = group_named(database, DISABLED_GROUP)
    if group not in row.groups:
        row.groups.append(group)
    database.commit()


def enable(database: Any, row: Any) -> None:
    """Remove the mark. The caller commits."""
    row.groups = [group for group in row.groups if group.name != DISABLED_GROUP]
    database.commit()


def row_of(database: Any, name: str) -> Any:
    """The row of a user; ``None``: the Hub has not met them."""
    return database.query(orm.User).filter_by(name=name).first()
