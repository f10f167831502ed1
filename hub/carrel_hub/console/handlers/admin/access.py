"""Access: the reader's roles, and for who administers a scope its access rules."""

import asyncio
from typing import Final
from urllib.parse import urlencode

from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import SignedInPage

SUBJECTS: Final = {"user": "A user", "group": "A group", "service-account": "A service account"}


class AccessPage(SignedInPage):
    """Access rules: shows, creates and deletes them."""

    @override
    async def get(self) -> None:
        """Show the rules, and a form that is filled from the address."""
        first = {"subject_kind": "user", "role": "viewer", "subject": "", "scope": ""}
        asked = {name: self.get_query_argument(name, text) for name, text in first.items()}
        await self._show(Form(asked), self.get_query_argument("note", ""))

    @override
    async def post(self) -> None:
        """Give a role, or take one."""
        form = Form(self.typed())
        note = ""
        try:
            if form.value("action") == "revoke":
                await self.client.revoke_role(form.required("rule"))
                note = f"{form.value('subject')} is no {form.value('role')} any more."
            else:
                note = await self._grant(form)
        except ApiError as error:
            if error.status not in SHOWN_BACK:
                raise
            form.take(error, {name: name for name in ("subject", "role", "scope")})
        if not form.refused:
            self.see_other(f"{self.console.urls.page('access')}?{urlencode({'note': note})}")
            return
        self.set_status(422)
        await self._show(form, "")

    async def _grant(self, form: Form) -> str:
        subject, scope = form.required("subject"), form.required("scope")
        role, kind = form.required("role"), form.value("subject_kind") or "user"
        if form.refused:
            return ""
        await self.client.grant_role(subject, role, scope, subject_kind=kind)
        return f"{subject} is {role} in {scope}."

    async def _show(self, form: Form, note: str) -> None:
        identity, rules, roles = await asyncio.gather(
            self.client.whoami(), self.client.list_access_rules(), self.client.list_roles()
        )
        self.show(
            "admin/access.html",
            section="access",
            permissions=identity.permissions,
            held=identity.roles,
            rules=rules,
            roles=roles,
            subjects=SUBJECTS,
            form=form,
            note=note,
        )
