"""Notifications: where users are notified of their own work, and of which events."""

from typing import Final
from urllib.parse import urlencode

from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK, Form
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.governance.alerts import SubscriptionOut

KINDS: Final = {"mail": "Mail", "slack": "Slack-type hook", "webhook": "Webhook (JSON)"}
EVENTS: Final = {
    "finished": "has finished",
    "failed": "has failed",
    "preempted": "is preempted",
    "long-pending": "has been pending for long",
    "idle-gpu": "holds a GPU that does nothing",
}
DONE: Final = {
    "save": "Saved.",
    "test": "A message was taken.",
    "delete": "You are told of nothing any more.",
}


class NotificationsPage(SignedInPage):
    """The reader's own subscription: shows and changes it."""

    @override
    async def get(self) -> None:
        """Show it."""
        own = await self.client.own_notifications()
        ticked = own.events if own.kind else EVENTS
        values = {"kind": own.kind or ("mail" if own.mail_domains else "slack")}
        values |= {"address": own.address, **dict.fromkeys(ticked, "on")}
        self._show(Form(values), own, self.get_query_argument("note", ""))

    @override
    async def post(self) -> None:
        """Save, test or delete the subscription."""
        form = Form(self.typed())
        action = form.value("action")
        if action not in DONE:
            raise HTTPError(400, "action is one of %s", ", ".join(DONE))
        try:
            await self._do(action, form)
        except ApiError as error:
            if error.status not in SHOWN_BACK:
                raise
            form.take(error, {one: one for one in ("kind", "address", "url")})
        if form.refused:
            self.set_status(422)
            self._show(form, await self.client.own_notifications())
            return
        note = urlencode({"note": DONE[action]})
        self.see_other(f"{self.console.urls.page('notifications')}?{note}")

    async def _do(self, action: str, form: Form) -> None:
        if action == "test":
            await self.client.test_own_notifications()
        elif action == "delete":
            await self.client.delete_own_notifications()
        else:
            kind = form.value("kind")
            field = "address" if kind == "mail" else "url"
            events = [one for one in EVENTS if form.checked(one)]
            await self.client.put_own_notifications(
                {"kind": kind, "events": events, field: form.value(field)}
            )

    def _show(self, form: Form, own: SubscriptionOut, note: str = "") -> None:
        self.show(
            "notifications.html",
            section="notifications",
            form=form,
            own=own,
            kinds=KINDS,
            events=EVENTS,
            note=note,
        )
