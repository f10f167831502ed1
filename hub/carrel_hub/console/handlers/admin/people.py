"""People and groups of the directory, for administrators: found, invited, disabled, removed."""

from dataclasses import dataclass, fields
from typing import Any, Final, get_args
from urllib.parse import urlencode

from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import PageParameters, SignedInPage
from carrel_schema.governance.people import USER_ACTIONS, UserSort, UserState
from carrel_schema.governance.roles import ROLES

PAGE: Final = 50
STATES: Final = {"": "All", "active": "Active", "invited": "Invited", "disabled": "Disabled"}
SORTS: Final = {"name": "Name", "last_seen": "Last seen"}
DONE: Final = {
    "enable": "{} may sign in again.",
    "disable": "{} is disabled: sessions and tokens are over, workspaces stop, jobs go on.",
    "end-sessions": "{} has to sign in again.",
    "revoke-invitation": "The link of {} counts no more.",
    "promote": "{} administers the platform.",
    "demote": "{} is no administrator any more.",
    "remove": "{} is removed; files, jobs and history stay.",
    "projects": "The projects of {} are changed.",
}


@dataclass(frozen=True, slots=True)
class UserFilters(PageParameters):
    """The filters of the list: the parameters of the address."""

    search: str = ""
    state: str = ""
    sort: str = ""
    first: str = ""

    @property
    def start(self) -> int:
        """The number of users on earlier pages."""
        return int(self.first or "0")


class PeoplePage(SignedInPage):
    """The people who may sign in, the sources of their rights, and the changes of them."""

    @override
    async def get(self) -> None:
        """Show a page of users."""
        await self._show(Form({}), note=self.get_query_argument("note", ""))

    @override
    async def post(self) -> None:
        """Invite or change a user."""
        form = Form(self.typed())
        name, action, link = form.required("user"), form.value("action"), ""
        if not form.refused:
            try:
                link = await self._do(name, action, form)
            except ApiError as error:
                if error.status not in SHOWN_BACK:
                    raise
                form.take(error, {"user": "user", "projects": "projects"})
        if form.refused:
            self.set_status(422)
            await self._show(form)
        elif link:  # it is shown this once: no redirect, and no address that has it
            self.set_header("Cache-Control", "no-store")
            await self._show(Form({}), invited=name, link=link)
        else:
            note = DONE[action].format(name)
            choice = self._choice()
            self.see_other(choice.address(self.console.urls.page("people"), note=note))

    async def _do(self, name: str, action: str, form: Form) -> str:
        """Carry out the requested action; returns the link of an invitation."""
        if action == "invite":
            projects = form.names("projects")
            made = await self.client.invite_user(name, projects=projects)
            here = f"{self.request.protocol}://{self.request.host}"
            return f"{here}{self.console.urls.hub('').removesuffix('hub/')}{made.path}"
        if action in ("promote", "demote"):
            await self.client.update_user(name, admin=action == "promote")
        elif action == "projects":
            await self.client.update_user(name, projects=form.names("projects"))
        elif action == "remove":
            await self.client.delete_user(name)
        elif action in USER_ACTIONS:
            await self.client.act_on_user(name, action)
        else:
            raise HTTPError(400, "action is unknown")
        return ""

    def _choice(self) -> UserFilters:
        asked = {
            one.name: self.get_query_argument(one.name, "").strip() for one in fields(UserFilters)
        }
        first = asked["first"]
        known = asked["state"] in ("", *get_args(UserState)) and asked["sort"] in (
            "",
            *get_args(UserSort),
        )
        if not known or (first and not (first.isdecimal() and len(first) < 8)):
            raise HTTPError(400)
        return UserFilters(**asked)

    async def _show(self, form: Form, **more: Any) -> None:
        choice = self._choice()
        sort = choice.sort or "name"
        found = await self.client.list_users(
            choice.search,
            state=choice.state,
            sort=sort,
            descending=sort == "last_seen",
            limit=PAGE,
            first=choice.start,
        )
        await self.show_managed(
            "admin/people.html",
            section="people",
            found=found,
            choice=choice,
            form=form,
            states=STATES,
            sorts=SORTS,
            page_size=PAGE,
            **({"note": "", "link": "", "invited": ""} | more),
        )


class GroupsPage(SignedInPage):
    """The rules for groups of the directory."""

    @override
    async def get(self) -> None:
        """Show the table and an empty form."""
        await self._show(Form({}), self.get_query_argument("note", ""))

    @override
    async def post(self) -> None:
        """Add or replace a rule, or remove one."""
        form = Form(self.typed())
        group, note = form.required("group"), ""
        if not form.refused:
            try:
                note = await self._do(group, form)
            except ApiError as error:
                if error.status not in SHOWN_BACK:
                    raise
                form.take(error, {one: one for one in ("group", "projects", "role", "scope")})
        if not form.refused:
            where = self.console.urls.page("directory-groups")
            self.see_other(f"{where}?{urlencode({'note': note})}")
            return
        self.set_status(422)
        await self._show(form, "")

    async def _do(self, group: str, form: Form) -> str:
        if form.value("action") == "unmap":
            await self.client.unmap_directory_group(group)
            return f"The rule of {group} is removed: its members lose what it gave within minutes."
        await self.client.map_directory_group(
            group,
            projects=form.names("projects"),
            admin=form.checked("admin"),
            role=form.value("role"),
            scope=form.value("scope"),
        )
        return f"The rule of {group} counts within minutes."

    async def _show(self, form: Form, note: str) -> None:
        rules = await self.client.list_directory_groups()
        await self.show_managed(
            "admin/directory_groups.html",
            section="people",
            rules=rules,
            roles=list(ROLES),
            form=form,
            note=note,
        )
