"""Projects: the list, one project, and for admins its rules, members, creation and deletion.

Whether somebody is an admin only decides what is shown; the scheduler decides what is allowed.
"""

import asyncio
import re
from typing import Any

from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel.models import Identity, Project, ProjectImpact, by_department
from carrel_hub.console import project_columns, project_form
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import LiveRegions, SignedInPage
from carrel_hub.console.handlers.overview import ACTIVE, MOST_SHOWN
from carrel_hub.console.pictures.quota_line import in_all, scale_of

_USER = re.compile(r"(?!\.+$)[^\s/\\?#%]{1,255}")
NOTES = {
    "saved": "Saved.",
    "created": "Created.",
    "changed": "All of them were saved.",
    "same": "Nothing was different: not saved.",
}
_SHOWN_BACK = SHOWN_BACK - {403, 404}


class ProjectsPage(SignedInPage):
    """The page of all projects: a quota line each, to one scale."""

    @override
    async def get(self) -> None:
        """Show them."""
        identity, everything = await asyncio.gather(
            self.client.whoami(), self.client.list_projects()
        )
        search = searched(self)
        projects = project_columns.found(everything, search)
        groups = by_department(projects)
        known = await self.client.list_departments()
        departments = {one.name: in_all(one, dict(groups).get(one.name, [])) for one in known}
        self.show(
            "projects.html",
            section="projects",
            live=LiveRegions(("projects",), 15),
            projects=projects,
            groups=groups,
            departments=departments,
            scale=max(map(scale_of, (*projects, *departments.values())), default=1.0),
            empty_departments=[]
            if search
            else sorted(departments.keys() - {name for name, _ in groups}),
            search=search,
            note=NOTES.get(self.get_query_argument("note", ""), ""),
            columns=project_columns.COLUMNS,
            chosen=sum(column.chosen for column in project_columns.COLUMNS),
            permissions=identity.permissions,
            admin="projects:create" in identity.permissions,
        )


class ProjectsTable(SignedInPage):
    """The same projects as a CSV file, with all columns."""

    @override
    async def get(self) -> None:
        """Answer."""
        projects = project_columns.found(await self.client.list_projects(), searched(self))
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="projects.csv"')
        self.finish(project_columns.csv_text(projects))


def searched(page: SignedInPage) -> str:
    """The search in the address, in words."""
    return page.get_query_argument("search", "").strip()[:100]


class ProjectPage(SignedInPage):
    """The page of one project: use, members, work; for admins its rules, edited in place."""

    @override
    async def get(self, name: str) -> None:
        """Show it."""
        project = await self.client.get_project(name)
        await self._show(project, project_form.form_of(project))

    @override
    async def post(self, name: str) -> None:
        """Preview or save the rules."""
        project = await self.client.get_project(name)
        form = Form(self.typed())
        changes = project_form.changes_of(form, project)
        impact: ProjectImpact | None = None
        if changes and not form.refused:
            try:
                impact = await self.client.update_project(name, changes, dry_run=True)
                if form.value("action") == "save":
                    await self.client.update_project(name, changes)
            except ApiError as error:
                if error.status not in _SHOWN_BACK:
                    raise
                form.take(error, project_form.FIELDS)
        if form.value("action") == "save" and not form.refused:
            note = "saved" if changes else "same"
            self.see_other(f"{self.console.urls.project(name)}?note={note}#note")
            return
        if form.refused and "HX-Request" not in self.request.headers:
            self.set_status(422)
        await self._show(project, form, impact=impact, previewed=True)

    async def _may_change(self, identity: Identity, project: Project) -> bool:
        if identity.admin or "projects:update" not in identity.permissions:
            return identity.admin
        scope = f"project/{project.name}"
        return (await self.client.check_permission("projects:update", scope)).allowed

    async def _show(self, project: Project, form: Form, **more: Any) -> None:
        identity, members, running, waiting = await asyncio.gather(
            self.client.whoami(),
            self.client.members(project.name),
            self.client.workload_page(project.name, phases=ACTIVE, limit=MOST_SHOWN),
            self.client.workload_page(project.name, phases=("pending",), limit=MOST_SHOWN),
        )
        context = {"impact": None, "previewed": False} | more
        note = self.get_query_argument("note", "")
        self.show(
            "project.html",
            section="projects",
            live=LiveRegions(("use", "work"), 15),
            project=project,
            form=form,
            members=sorted(members),
            work=[*running.items, *waiting.items],
            more=running.next is not None or waiting.next is not None,
            alerts=await self.alerts_about(f"project/{project.name}"),
            admin=await self._may_change(identity, project),
            note=NOTES.get(note, ""),
            **context,
        )


class ProjectCreation(SignedInPage):
    """The form of a new project."""

    @override
    async def get(self) -> None:
        """Show it to who may create projects; of a department, in that department."""
        identity = await self.client.whoami()
        if "projects:create" not in identity.permissions:
            raise HTTPError(403, "your roles do not create projects")
        form = project_form.form_of(project_form.new_project(""))
        departments = () if identity.admin else await self.client.list_departments()
        if departments:
            form.values["department"] = departments[0].name
        self.show("project_new.html", section="projects", form=form)

    @override
    async def post(self) -> None:
        """Create the project and show it, or show the errors."""
        form = Form(self.typed())
        name = form.required("name")
        body = project_form.rules_of(form)
        if not form.refused:
            try:
                await self.client.create_project({"name": name, **body})
            except ApiError as error:
                if error.status not in _SHOWN_BACK:
                    raise
                form.take(error, project_form.FIELDS)
        if not form.refused:
            self.see_other(f"{self.console.urls.project(name)}?note=created")
            return
        self.set_status(422)
        self.show("project_new.html", section="projects", form=form)


class MemberForm(SignedInPage):
    """Adds and removes members."""

    @override
    async def post(self, project: str, verb: str) -> None:
        """Apply the change and show the project."""
        user = self.get_body_argument("user")
        if not _USER.fullmatch(user):
            raise HTTPError(400, "a user's name has no blanks and no slashes")
        if verb == "add":
            await self.client.add_member(project, user)
        else:
            await self.client.remove_member(project, user)
        self.see_other(f"{self.console.urls.project(project)}#members")


class ProjectDeletion(SignedInPage):
    """The question before a project's deletion, and the deletion."""

    @override
    async def get(self, name: str) -> None:
        """Ask for confirmation."""
        project = await self.client.get_project(name)
        self.show("project_delete.html", section="projects", project=project)

    @override
    async def post(self, name: str) -> None:
        """Delete the project and show the list."""
        await self.client.delete_project(name)
        self.see_other(self.console.urls.page("projects"))
