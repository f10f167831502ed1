"""Lists of people: users of the Hub and accounts that it has not met yet, in a few queries.

Rows are read as columns, not as objects: a page of a list of thousands takes milliseconds.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jupyterhub import orm
from sqlalchemy import select

from carrel_hub.accounts.account import LocalAccount
from carrel_hub.accounts.controller import GROUP_PREFIX
from carrel_hub.directory.membership import brought_by
from carrel_hub.scopes import ADMIN_GROUP, DISABLED_GROUP
from carrel_hub.sign_in import Oidc
from carrel_schema.governance.people import (
    DIRECTORY_GROUP,
    SignInKind,
    UserMembership,
    UserOut,
    UserPage,
    UserState,
)


@dataclass(frozen=True, slots=True)
class PeopleQuery:
    """A query of people: ``text`` is part of a name or of a project's, ``state`` empty for all."""

    text: str = ""
    state: str = ""
    sort: str = "name"
    descending: bool = False
    limit: int = 50
    offset: int = 0


def sign_in_kind(authenticator: Any) -> SignInKind:
    """The kind of sign-in of this Hub."""
    if getattr(authenticator, "accounts", None) is not None:
        return "local"
    sign_in = getattr(authenticator, "sign_in", None)
    if sign_in is None:
        return "other"
    return "oidc" if isinstance(sign_in.provider, Oidc) else "ldap"


class People:
    """The users of a Hub, in their present state.

    Args:
        database: the Hub's session.
        authenticator: the Hub's.
        now: epoch seconds.
    """

    def __init__(self, database: Any, authenticator: Any, now: float) -> None:
        self._database, self._now = database, now
        self._kind = sign_in_kind(authenticator)
        accounts = getattr(authenticator, "accounts", None)
        self._accounts: Mapping[str, LocalAccount] = {} if accounts is None else accounts.all()

    def page(self, query: PeopleQuery) -> UserPage:
        """A page of users."""
        found = [one for one in self._all() if _matches(one, query)]
        if query.sort == "last_seen":
            found.sort(key=lambda one: (one.last_seen_at, one.name), reverse=query.descending)
        else:
            found.sort(key=lambda one: one.name, reverse=query.descending)
        shown = found[query.offset : query.offset + query.limit]
        return UserPage(items=shown, total=len(found), sign_in=self._kind)

    def find(self, name: str) -> UserOut | None:
        """Find a user."""
        return next((one for one in self._all(name) if one.name == name), None)

    def admins(self) -> list[str]:
        """Administrators who may sign in."""
        return [one.name for one in self._all() if one.admin and one.state != "disabled"]

    def _all(self, name: str = "") -> Sequence[UserOut]:
        wanted: Any = select(
            orm.User.id, orm.User.name, orm.User.admin, orm.User.created, orm.User.last_activity
        )
        rows = self._database.execute(wanted.where(orm.User.name == name) if name else wanted).all()
        groups = {one.id: one for one in self._database.query(orm.Group).all()}
        members: defaultdict[int, list[str]] = defaultdict(list)
        for user_id, group_id in self._database.execute(select(orm.user_group_map)).all():
            members[user_id].append(groups[group_id].name)
        origins = {one.name: brought_by(one) for one in groups.values()}
        spawners: Any = orm.Spawner
        of_servers = select(spawners.user_id).where(spawners.server_id.is_not(None))
        running = Counter(self._database.scalars(of_servers).all())
        found = [self._of_row(row, members[row.id], origins, running[row.id]) for row in rows]
        met = {row.name for row in rows}
        found += [self._of_account(one) for one in self._accounts if one not in met]
        return found

    def _of_row(
        self,
        row: Any,
        groups: Sequence[str],
        origins: Mapping[str, Mapping[str, Sequence[str]]],
        workspaces: int,
    ) -> UserOut:
        name = str(row.name)
        account = self._accounts.get(name)
        memberships = [
            UserMembership(
                project=group.removeprefix(GROUP_PREFIX),
                by_directory=name in origins[group],
                groups=origins[group].get(name, ()),
            )
            for group in sorted(groups)
            if group.startswith(GROUP_PREFIX)
        ]
        return UserOut(
            name=name,
            state=self._state(account, disabled=DISABLED_GROUP in groups),
            sign_in=self._kind,
            admin=bool(row.admin) if account is None else account.admin,
            admin_groups=origins.get(ADMIN_GROUP, {}).get(name, ()),
            memberships=memberships,
            directory_groups=[
                group.removeprefix(DIRECTORY_GROUP)
                for group in sorted(groups)
                if group.startswith(DIRECTORY_GROUP)
            ],
            created_at=_epoch(row.created),
            last_seen_at=_epoch(row.last_activity),
            invited_until=self._invited_until(account),
            workspaces=workspaces,
        )

    def _of_account(self, name: str) -> UserOut:
        account = self._accounts[name]
        return UserOut(
            name=name,
            state=self._state(account, disabled=False),
            admin=account.admin,
            memberships=[UserMembership(project=project) for project in account.joins],
            invited_until=self._invited_until(account),
        )

    def _state(self, account: LocalAccount | None, *, disabled: bool) -> UserState:
        if disabled:
            return "disabled"
        return "invited" if account is not None and not account.password else "active"

    def _invited_until(self, account: LocalAccount | None) -> float:
        counts = account is not None and account.invitation and self._now < account.invited_until
        return account.invited_until if counts and account is not None else 0.0


def _matches(one: UserOut, query: PeopleQuery) -> bool:
    if query.state and one.state != query.state:
        return False
    text = query.text.lower()
    return not text or text in one.name.lower() or any(text in name for name in one.projects)


def _epoch(moment: datetime | None) -> float:
    """The Hub's times have no zone and are in UTC."""
    return 0.0 if moment is None else moment.replace(tzinfo=UTC).timestamp()
