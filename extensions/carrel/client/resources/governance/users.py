"""People and groups of the directory: shown, invited, changed, disabled, removed."""

from collections.abc import Sequence

from carrel.client.transport import Transport, segment
from carrel_schema.governance.people import (
    DirectoryGroupList,
    DirectoryGroupOut,
    Invitation,
    PosixIdentity,
    UserAction,
    UserOut,
    UserPage,
    UserProjects,
)


class UserMethods:
    """Users, for administrators, and the caller's own data."""

    _transport: Transport

    async def list_users(
        self,
        search: str = "",
        *,
        state: str = "",
        sort: str = "name",
        descending: bool = False,
        limit: int = 50,
        first: int = 0,
    ) -> UserPage:
        """Users who may sign in, without the first ``first`` of them."""
        parameters = {
            "search": search or None,
            "state": state or None,
            "sort": sort,
            "order": "descending" if descending else None,
            "limit": limit,
            "first": first,
        }
        return await self._transport.ask("GET", "/users", UserPage, parameters=parameters)

    async def user(self, name: str = "me") -> UserOut:
        """Read a user; by default the caller."""
        return await self._transport.ask("GET", f"/users/{segment(name)}", UserOut)

    async def invite_user(
        self, name: str, *, projects: Sequence[str] = (), admin: bool = False, days: float = 3.0
    ) -> Invitation:
        """Create a link by which a user chooses a password, once; it is shown only now."""
        body = {"projects": list(projects), "admin": admin, "days": days}
        path = f"/users/{segment(name)}/invitation"
        return await self._transport.ask("PUT", path, Invitation, body=body)

    async def update_user(
        self, name: str, *, admin: bool | None = None, projects: Sequence[str] | None = None
    ) -> UserOut:
        """Change what is given: who administers, and projects that were given by hand."""
        body: dict[str, object] = {}
        if admin is not None:
            body["admin"] = admin
        if projects is not None:
            body["projects"] = list(projects)
        return await self._transport.ask(
            "POST", f"/users/{segment(name)}/update", UserOut, body=body
        )

    async def act_on_user(self, name: str, action: UserAction) -> None:
        """``enable`` or ``disable`` somebody, ``end-sessions``, or ``revoke-invitation``."""
        path = f"/users/{segment(name)}/actions"
        await self._transport.send("POST", path, body={"action": action})

    async def delete_user(self, name: str) -> None:
        """Remove a user; files, jobs and history stay."""
        await self._transport.send("DELETE", f"/users/{segment(name)}")

    async def change_password(self, old: str, new: str) -> None:
        """Choose a new password of one's own; ends all sessions and tokens, also this one."""
        await self._transport.send("POST", "/users/me/password", body={"old": old, "new": new})

    async def user_identity(self, name: str) -> PosixIdentity:
        """The numbers that somebody's work runs under; for the Hub. uid 0: the engine's."""
        return await self._transport.ask("GET", f"/users/{segment(name)}/identity", PosixIdentity)

    async def user_projects(self, name: str) -> Sequence[str]:
        """The projects that somebody may start a workspace in (the Hub)."""
        path = f"/users/{segment(name)}/projects"
        return (await self._transport.ask("GET", path, UserProjects)).items

    async def put_user_identity(self, name: str, identity: PosixIdentity) -> PosixIdentity:
        """Report the numbers that the directory gives somebody; for the Hub."""
        body = {
            "uid": identity.uid,
            "gid": identity.gid,
            "gids": list(identity.gids),
            "problem": identity.problem,
        }
        path = f"/users/{segment(name)}/identity"
        return await self._transport.ask("PUT", path, PosixIdentity, body=body)

    async def list_directory_groups(self, source: str | None = None) -> Sequence[DirectoryGroupOut]:
        """The projects and rights by groups of the directory; ``source``: ``table``, ``file``."""
        parameters = {"source": source}
        found = await self._transport.ask(
            "GET", "/directory-groups", DirectoryGroupList, parameters=parameters
        )
        return found.items

    async def map_directory_group(
        self,
        group: str,
        *,
        projects: Sequence[str] = (),
        admin: bool = False,
        role: str = "",
        scope: str = "",
    ) -> DirectoryGroupOut:
        """Replace the projects and roles that a directory group brings."""
        body = {"projects": list(projects), "admin": admin, "role": role, "scope": scope}
        return await self._transport.ask(
            "PUT", "/directory-groups", DirectoryGroupOut, parameters={"group": group}, body=body
        )

    async def unmap_directory_group(self, group: str) -> None:
        """Take from the members of a group what its rule in the table gave them."""
        await self._transport.send("DELETE", "/directory-groups", parameters={"group": group})
