"""Policies and templates: the list, and for who may write them an editor with a check.

They and assets are documents of the same form, so one editor serves all; whether somebody may
write is decided by the scheduler.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import yaml
from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.governance.assets import FIELDS_OF, AssetOut, AssetType
from carrel_schema.governance.policies import PolicyOut
from carrel_schema.governance.templates import TemplateOut

_EXAMPLES: Final = {
    "policies": "description: \nkinds: [training]\nrules:\n  gpus: {max: 4}\n",
    "templates": "description: \nkinds: [training]\nfields:\n  gpus: 1\n",
}
_ASSETS: Final[Mapping[AssetType, str]] = {
    "environment": "description: \nfields:\n  image: \n",
    "compute": "description: \nfields:\n  gpus: 1\n  cpu_millicores: 4000\n",
    "data-source": "description: \ndata:\n  kind: folder\n  source: /data\n  read_only: true\n",
}
_WRITTEN: Final = ("description", "kinds", "default", "rules", "fields", "data")
_SECTIONS: Final = {"policies": "policies", "templates": "policies", "assets": "assets"}


class PoliciesPage(SignedInPage):
    """The page of all policies and templates that the reader may see."""

    @override
    async def get(self) -> None:
        """Show them."""
        identity, policies, templates = await asyncio.gather(
            self.client.whoami(), self.client.list_policies(), self.client.list_templates()
        )
        self.show(
            "admin/policies.html",
            section="policies",
            policies=policies,
            templates=templates,
            permissions=identity.permissions,
            note=self.get_query_argument("note", ""),
        )


class DocumentPage(SignedInPage):
    """The page of one policy, template or asset as YAML: checked, saved, deleted."""

    @override
    async def get(self, sort: str) -> None:
        """Show the policy, or an empty one."""
        name = self.get_query_argument("name", "")
        scope = self.get_query_argument("scope", "")
        kind = self._type(self.get_query_argument("type", "")) if sort == "assets" else ""
        text, version = _ASSETS[kind] if kind else _EXAMPLES[sort], 0
        if name:
            found = await self._read(sort, kind, name, scope)
            text, version = _text(found), found.version
        own = "platform" if sort == "policies" else f"user/{self.user}"
        values = {"name": name, "scope": scope or own, "text": text, "version": str(version)}
        values["type"] = kind
        await self._show(sort, Form(values), existing=bool(name))

    @override
    async def post(self, sort: str) -> None:
        """Check, save or delete the policy."""
        form = Form(self.typed())
        name, scope, action = form.required("name"), form.required("scope"), form.value("action")
        checked: PolicyOut | None = None
        body = _body(form)
        if not form.refused:
            try:
                if sort == "assets":
                    await self._write_asset(form, action, body)
                else:
                    checked = await self._act(sort, action, name, scope, body)
            except ApiError as error:
                if error.status not in SHOWN_BACK:
                    raise
                form.general = str(error)
        if action != "check" and not form.refused:
            done = "deleted" if action == "delete" else "saved"
            note = urlencode({"note": f"{name} of {scope} was {done}."})
            self.see_other(f"{self.console.urls.page(_SECTIONS[sort])}?{note}")
            return
        if form.refused:
            self.set_status(422)
        await self._show(sort, form, existing=form.value("version") != "0", checked=checked)

    def _type(self, text: str) -> AssetType:
        for one in _ASSETS:
            if one == text:
                return one
        raise HTTPError(400, "%s is no type of assets", text[:20])

    async def _write_asset(self, form: Form, action: str, body: dict[str, Any]) -> None:
        key = (self._type(form.value("type")), form.value("name"), form.value("scope"))
        if action == "delete":
            await self.client.delete_asset(*key)
        elif action == "save":
            await self.client.put_asset(*key, body)
        else:
            raise HTTPError(400, "unknown action %s", action[:20])

    async def _read(
        self, sort: str, kind: str, name: str, scope: str
    ) -> PolicyOut | TemplateOut | AssetOut:
        if sort == "assets":
            return await self.client.get_asset(kind, name, scope)
        if sort == "policies":
            return await self.client.get_policy(name, scope)
        return await self.client.get_template(name, scope)

    async def _act(
        self, sort: str, action: str, name: str, scope: str, body: dict[str, Any]
    ) -> PolicyOut | None:
        if action not in ("check", "save", "delete"):
            raise HTTPError(400, "unknown action %s", action[:20])
        if sort == "policies":
            if action == "delete":
                await self.client.delete_policy(name, scope)
                return None
            return await self.client.put_policy(name, scope, body, dry_run=action == "check")
        if action == "delete":
            await self.client.delete_template(name, scope)
        else:
            await self.client.put_template(name, scope, body)
        return None

    async def _show(self, sort: str, form: Form, *, existing: bool, checked: Any = None) -> None:
        await self.show_managed(
            "admin/document.html",
            section=_SECTIONS[sort],
            sort=sort,
            form=form,
            existing=existing,
            checked=checked,
            known=FIELDS_OF,
        )


def _text(found: PolicyOut | TemplateOut | AssetOut) -> str:
    shown: dict[str, Any] = msgspec.to_builtins(found)
    written = {name: shown[name] for name in _WRITTEN if shown.get(name)}
    if "data" in written:
        written["data"] = {
            name: one for name, one in written["data"].items() if one not in ("", None)
        }
    return yaml.safe_dump(written, sort_keys=False, allow_unicode=True)


def _body(form: Form) -> dict[str, Any]:
    """The body of a request: the text, with the version that it was written from."""
    try:
        found = yaml.safe_load(form.values.get("text", ""))
    except yaml.YAMLError as error:
        form.errors["text"] = f"This cannot be read: {error}"
        return {}
    if not isinstance(found, dict):
        form.errors["text"] = "This should be a mapping of fields to values."
        return {}
    version = form.value("version")
    if not version.isdecimal():
        form.general = "The form is incomplete; open the page again."
        return {}
    return {str(name): value for name, value in found.items()} | {"expected_version": int(version)}
