"""The people of a Hub, in memory."""

from collections.abc import Mapping

import msgspec

from carrel_scheduler.api.principals.users import UserRefusal
from carrel_schema.governance.people import (
    DirectoryGroupOut,
    Invitation,
    InvitationFields,
    PasswordChange,
    UserFields,
    UserMembership,
    UserOut,
    UserPage,
)


class FakeUsers:
    """``Users``; everybody's password is ``old``."""

    def __init__(self) -> None:
        self.rules = [DirectoryGroupOut(group="it", admin=True, source="file")]
        self.actors: list[str] = []
        self.passwords: dict[str, str] = {}
        names = "ada bea carl dora nobody rae root spawner"
        self.people = {name: UserOut(name=name) for name in names.split()}
        self.people["root"] = UserOut(name="root", admin=True)

    async def page(self, query: Mapping[str, str]) -> UserPage:
        found = [one for one in self.people.values() if query["search"] in one.name]
        first = int(query["offset"])
        return UserPage(items=found[first : first + int(query["limit"])], total=len(found))

    async def get(self, name: str) -> UserOut:
        if name not in self.people:
            raise UserRefusal(404, f"There is nobody called {name}.")
        return self.people[name]

    async def update(self, name: str, fields: UserFields, actor: str) -> UserOut:
        self.actors.append(actor)
        found = await self.get(name)
        if fields.admin is not None:
            found = msgspec.structs.replace(found, admin=fields.admin)
        if fields.projects is not None:
            memberships = [UserMembership(project=one) for one in fields.projects]
            found = msgspec.structs.replace(found, memberships=memberships)
        self.people[name] = found
        return found

    async def remove(self, name: str, actor: str) -> None:
        if name == actor:
            raise UserRefusal(409, "Let another administrator remove your own account.")
        del self.people[name]

    async def invite(self, name: str, fields: InvitationFields, actor: str) -> Invitation:
        if not name.islower():
            raise UserRefusal(422, f"{name!r} cannot be a user name.")
        self.actors.append(actor)
        self.people.setdefault(name, UserOut(name=name, state="invited", admin=fields.admin))
        return Invitation(user=name, path=f"hub/invitation?user={name}&token=tt", expires_at=1.0)

    async def act(self, name: str, action: str, actor: str) -> None:
        self.actors.append(actor)
        found = await self.get(name)
        if action in ("enable", "disable"):
            state: str = "active" if action == "enable" else "disabled"
            self.people[name] = msgspec.structs.replace(found, state=state)

    async def change_password(self, name: str, change: PasswordChange) -> None:
        if change.old != self.passwords.get(name, "old"):
            raise UserRefusal(403, "The present password is another one.")

    async def file_rules(self) -> list[DirectoryGroupOut]:
        return self.rules
