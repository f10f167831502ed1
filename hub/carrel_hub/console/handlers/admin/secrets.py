"""Named secrets: the list, and a form that takes values and never shows one."""

from typing import Final
from urllib.parse import urlencode

from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.governance.secrets import KEYS_OF

ROWS: Final = 3
"""Keys that the form takes at once; more are added by sending it again."""


class SecretsPage(SignedInPage):
    """The secrets that the reader's work may use; writes one of them."""

    @override
    async def get(self) -> None:
        """Show the secrets and an empty form."""
        values = {"scope": f"user/{self.user}", "type": "generic"}
        values |= {name: self.get_query_argument(name, values.get(name, "")) for name in (
            "name", "scope", "type")}  # fmt: skip
        await self._show(Form(values), self.get_query_argument("note", ""))

    @override
    async def post(self) -> None:
        """Write or delete one."""
        form = Form(self.typed())
        name, scope = form.required("name"), form.required("scope")
        if form.value("action") != "delete":
            data = self._data(form)
        if not form.refused:
            try:
                if form.value("action") == "delete":
                    await self.client.delete_secret(name, scope)
                else:
                    await self.client.put_secret(
                        name,
                        scope,
                        data,
                        type=form.value("type") or "generic",
                        description=form.value("description"),
                        keep_others=True,
                    )
            except ApiError as error:
                if error.status not in SHOWN_BACK:
                    raise
                form.general = str(error)
        if not form.refused:
            done = "deleted" if form.value("action") == "delete" else "saved"
            note = urlencode({"note": f"{name} of {scope} was {done}."})
            self.see_other(f"{self.console.urls.page('secrets')}?{note}")
            return
        self.set_status(422)
        await self._show(form, "")

    def _data(self, form: Form) -> dict[str, str]:
        """Keys and values of the rows; a value stays as it was typed, blanks and all."""
        data: dict[str, str] = {}
        for number in range(ROWS):
            key, value = form.value(f"key-{number}"), form.values.get(f"value-{number}", "")
            if key:
                data[key] = value
            elif value:
                form.errors[f"key-{number}"] = "Name the key of this value."
        if not data and not form.errors:
            form.errors["key-0"] = "Name at least one key."
        return data

    async def _show(self, form: Form, note: str) -> None:
        for number in range(ROWS):
            form.values.pop(f"value-{number}", None)  # never shown again, not even to who typed it
        await self.show_managed(
            "admin/secrets.html",
            section="secrets",
            form=form,
            secrets=await self.client.list_secrets(),
            types=KEYS_OF,
            rows=range(ROWS),
            note=note,
        )
