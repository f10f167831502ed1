"""Retention: how long what is kept is kept, with what a change would free before it is saved."""

from typing import Any, Final
from urllib.parse import urlencode

from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.governance.retention import RetentionReport

FIELDS: Final = {
    "audit_days": "Audit log, days",
    "decision_days": "Decisions, days",
    "sample_days": "Means of five minutes, days",
    "hourly_sample_days": "Means of an hour, days",
}
FOR_EVER: Final = ("audit_days", "decision_days")
"""An empty field of these is no bound."""


class RetentionPage(SignedInPage):
    """The retention settings: shows, previews and saves them."""

    @override
    async def get(self) -> None:
        """Show it."""
        report = await self.client.retention()
        await self._show(_typed(report), report, note=self.get_query_argument("note", ""))

    @override
    async def post(self) -> None:
        """Preview or save the input."""
        form, action = Form(self.typed()), self.get_body_argument("action", "")
        if action not in ("preview", "save"):
            raise HTTPError(400, "action is preview or save")
        report: RetentionReport | None = None
        settings = _settings(form)
        if not form.refused:
            try:
                report = await self.client.put_retention(settings, dry_run=action == "preview")
            except ApiError as error:
                if error.status not in SHOWN_BACK:
                    raise
                form.take(error, {one: one for one in FIELDS})
        if form.refused or report is None:
            self.set_status(422)
            await self._show(form, await self.client.retention())
        elif action == "preview":
            await self._show(form, report, preview=True)
        else:
            note = urlencode({"note": "Saved. What is too old is removed within an hour."})
            self.see_other(f"{self.console.urls.page('retention')}?{note}")

    async def _show(self, form: Form, report: RetentionReport, **more: Any) -> None:
        await self.show_managed(
            "admin/retention.html",
            section="retention",
            form=form,
            report=report,
            fields=FIELDS,
            for_ever=FOR_EVER,
            freed_rows=sum(one.freed_rows for one in report.kinds),
            freed_bytes=sum(one.freed_bytes for one in report.kinds),
            **({"note": "", "preview": False} | more),
        )


def _typed(report: RetentionReport) -> Form:
    values = {one: getattr(report.settings, one) for one in FIELDS}
    return Form({one: "" if days is None else str(days) for one, days in values.items()})


def _settings(form: Form) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for name in FIELDS:
        found[name] = form.whole(name)
        if found[name] is None and name not in FOR_EVER and name not in form.errors:
            form.errors[name] = "Please fill this in."
    return found
