"""Service accounts: those of scopes that the reader administers, and their tokens.

A token is shown in the answer to the form that makes it and nowhere else: that answer is not
stored, and no address leads to it.
"""

from typing import Any, Final
from urllib.parse import urlencode

from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.governance.service_accounts import MOST_DAYS, NewToken

USUAL_DAYS: Final = 90
DONE: Final = {
    "save": "The service account {} is saved.",
    "revoke": "The token of {} is revoked: requests with it are refused.",
    "delete": "The service account {} is deleted, with its tokens and roles.",
}


class ServiceAccountsPage(SignedInPage):
    """The list; makes and deletes accounts and tokens."""

    @override
    async def get(self) -> None:
        """Show it."""
        await self._show(Form({}), note=self.get_query_argument("note", ""))

    @override
    async def post(self) -> None:
        """Change one."""
        form = Form(self.typed())
        name, action = form.required("name"), form.value("action")
        made: NewToken | None = None
        if not form.refused:
            try:
                made = await self._do(name, action, form)
            except ApiError as error:
                if error.status not in SHOWN_BACK:
                    raise
                form.take(error, {one: one for one in ("name", "scope", "description", "days")})
        if form.refused:
            self.set_status(422)
            await self._show(form)
        elif made is not None:
            await self._show(Form({}), made=made, owner=name)
        else:
            note = urlencode({"note": DONE[action].format(name)})
            self.see_other(f"{self.console.urls.page('service-accounts')}?{note}")

    async def _do(self, name: str, action: str, form: Form) -> NewToken | None:
        """Carry out the requested action; returns a new token, if there is one."""
        if action == "save":
            scope = form.required("scope")
            if not form.refused:
                await self.client.put_service_account(name, scope, form.value("description"))
        elif action == "token":
            days = form.whole("days", empty=USUAL_DAYS)
            if not form.refused and days is not None:
                return await self.client.create_service_token(name, days)
        elif action == "revoke":
            await self.client.revoke_service_token(name, form.required("token"))
        elif action == "delete":
            await self.client.delete_service_account(name)
        else:
            raise HTTPError(400, "action is unknown")
        return None

    async def _show(self, form: Form, **more: Any) -> None:
        await self.show_managed(
            "admin/service_accounts.html",
            section="service-accounts",
            accounts=await self.client.list_service_accounts(),
            form=form,
            usual_days=USUAL_DAYS,
            most_days=MOST_DAYS,
            **({"note": "", "made": None, "owner": ""} | more),
        )
