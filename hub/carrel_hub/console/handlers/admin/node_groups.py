"""Groups of nodes: the list, and a form that defines, changes and removes one."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.governance.node_groups import NodeGroupOut

FIELDS: Final = {
    "name": "name",
    "description": "description",
    "match_labels": "labels",
    "node_names": "nodes",
    "role": "role",
    "projects": "projects",
    "departments": "departments",
}
"""Fields of the API to fields of the form."""


class NodeGroupsPage(SignedInPage):
    """The page of all node groups; with ``name`` the form shows that one."""

    @override
    async def get(self) -> None:
        """Show the groups and the form."""
        groups = await self.client.list_node_groups()
        name = self.get_query_argument("name", "")
        chosen = next((one for one in groups if one.name == name and one.defined), None)
        await self._show(groups, _form_of(chosen), self.get_query_argument("note", ""))

    @override
    async def post(self) -> None:
        """Define, change or delete one."""
        form = Form(self.typed())
        name = form.required("name")
        body = _body(form)
        if not form.refused:
            try:
                await self._write(form, name, body)
            except ApiError as error:
                if error.status not in SHOWN_BACK:
                    raise
                form.take(error, _indexed(error))
        if not form.refused:
            done = "deleted" if form.value("action") == "delete" else "saved"
            note = urlencode({"note": f"{name} was {done}."})
            self.see_other(f"{self.console.urls.page('node-groups')}?{note}")
            return
        self.set_status(422)
        await self._show(await self.client.list_node_groups(), form, "")

    async def _write(self, form: Form, name: str, body: dict[str, Any]) -> None:
        version = form.value("version")
        if form.value("action") == "delete":
            await self.client.delete_node_group(name)
        elif version:
            await self.client.replace_node_group(name, body | {"expected_version": version})
        else:
            await self.client.create_node_group({"name": name, **body})

    async def _show(self, groups: Sequence[NodeGroupOut], form: Form, note: str) -> None:
        await self.show_managed(
            "admin/node_groups.html", section="node-groups", groups=groups, form=form, note=note
        )


def _form_of(group: NodeGroupOut | None) -> Form:
    if group is None:
        return Form({})
    return Form(
        {
            "name": group.name,
            "version": group.version,
            "description": group.description,
            "labels": ", ".join(f"{key}={value}" for key, value in group.match_labels.items()),
            "nodes": ", ".join(group.node_names),
            "role": group.role,
            "projects": ", ".join(group.projects),
            "departments": ", ".join(group.departments),
        }
    )


def _body(form: Form) -> dict[str, Any]:
    pairs = [one.partition("=") for one in form.names("labels")]
    if any(not equals for _, equals, _ in pairs):
        form.errors["labels"] = "This should be KEY=VALUE, with commas between several."
    return {
        "description": form.value("description"),
        "match_labels": {key.strip(): value.strip() for key, _, value in pairs},
        "node_names": form.names("nodes"),
        "role": form.value("role"),
        "projects": form.names("projects"),
        "departments": form.names("departments"),
    }


def _indexed(error: ApiError) -> dict[str, str]:
    """The form's fields by the API's, also of single items as ``projects.0``."""
    named = [str(one.get("field", "")) for one in error.errors]
    return {one: FIELDS[top] for one in named if (top := one.partition(".")[0]) in FIELDS}
