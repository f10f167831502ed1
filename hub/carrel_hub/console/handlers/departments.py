"""Departments: one department's rules with what they would do, its creation and deletion.

Whether somebody may change it only decides what is shown; the scheduler decides what is allowed.
"""

from typing import Any

import msgspec
from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel.models import Department, Project, ProjectImpact
from carrel_hub.console import project_form
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.answers import DepartmentFields


class DepartmentPage(SignedInPage):
    """The page of one department, or of a new one where no name is given."""

    @override
    async def get(self, name: str = "") -> None:
        """Show it."""
        found = await self._find(name) if name else None
        as_project = _as_project(found) if found is not None else project_form.new_project("")
        await self._show(name, project_form.form_of(as_project))

    @override
    async def post(self, name: str = "") -> None:
        """Preview, save or delete the department."""
        form = Form(self.typed())
        wanted = name or form.required("name")
        impact: ProjectImpact | None = None
        body = _rules_of(form)
        action = form.value("action")
        if not form.refused:
            try:
                impact = await self._act(action, wanted, body)
            except ApiError as error:
                if error.status not in SHOWN_BACK:
                    raise
                form.take(error, project_form.FIELDS)
        if action != "preview" and not form.refused:
            self.see_other(self.console.urls.page("projects"))
            return
        if form.refused and "HX-Request" not in self.request.headers:
            self.set_status(422)
        await self._show(name, form, impact=impact, previewed=True)

    async def _act(self, action: str, name: str, body: dict[str, Any]) -> ProjectImpact | None:
        if action == "preview":
            return await self.client.preview_department(name, body)
        if action == "delete":
            await self.client.delete_department(name)
        else:
            await self.client.put_department(name, body)
        return None

    async def _find(self, name: str) -> Department:
        for one in await self.client.list_departments():
            if one.name == name:
                return one
        raise HTTPError(404, "there is no department %s for you", name)

    async def _show(self, name: str, form: Form, **more: Any) -> None:
        identity = await self.client.whoami()
        if "departments:update" not in identity.permissions and not name:
            raise HTTPError(403, "your roles do not create departments")
        projects = await self.client.list_projects()
        context = {"impact": None, "previewed": False} | more
        self.show(
            "department.html",
            section="projects",
            name=name,
            form=form,
            inside=[one for one in projects if name and one.department == name],
            alerts=await self.alerts_about(f"department/{name}") if name else (),
            may_change="departments:update" in identity.permissions,
            **context,
        )


def _as_project(department: Department) -> Project:
    """A department as the form of projects takes it, without what only projects have."""
    given = {name: getattr(department, name) for name in DepartmentFields.__struct_fields__}
    return msgspec.structs.replace(project_form.new_project(department.name), **given)


def _rules_of(form: Form) -> dict[str, Any]:
    """The fields of the form that departments have."""
    found = project_form.rules_of(form)
    return {name: one for name, one in found.items() if name in DepartmentFields.__struct_fields__}
