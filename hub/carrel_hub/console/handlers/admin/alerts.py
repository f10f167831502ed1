"""Alerts: the present ones, and for administrators rules, silences and channels."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlencode

from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import SHOWN_BACK, Form, parse_duration
from carrel_hub.console.handlers.base import LiveRegions, SignedInPage

KINDS: Final = {
    "webhook": "Webhook (JSON)",
    "slack": "Slack-type hook",
    "alertmanager": "Alertmanager",
    "mail": "Mail",
}
FIELDS: Final = {
    name: name for name in ("url", "secret", "to", "sender", "people_domains", "name", "until")
}


class AlertsPage(SignedInPage):
    """Shows alerts; creates silences and channels."""

    @override
    async def get(self) -> None:
        """Show the alerts and empty forms."""
        values = {"kind": "webhook", "lasts": "2 h", "rule": "*", "subject": "*"}
        for name in ("rule", "subject"):
            values[name] = self.get_query_argument(name, values[name])
        await self._show(Form(values), self.get_query_argument("note", ""))

    @override
    async def post(self) -> None:
        """Carry out one of the page's forms."""
        form = Form(self.typed())
        actions: dict[str, Callable[[Form], Awaitable[str]]] = {
            "silence": self._silence,
            "unsilence": self._unsilence,
            "channel": self._channel,
            "test": self._test,
            "delete-channel": self._delete_channel,
            "rule": self._rule,
        }
        act, note = actions.get(form.value("action")), ""
        if act is None:
            raise HTTPError(400, "action is one of %s", ", ".join(actions))
        try:
            note = await act(form)
        except ApiError as error:
            if error.status not in SHOWN_BACK:
                raise
            form.take(error, FIELDS)
        if not form.refused:
            self.see_other(f"{self.console.urls.page('alerts')}?{urlencode({'note': note})}")
            return
        self.set_status(422)
        await self._show(form, "")

    async def _silence(self, form: Form) -> str:
        seconds = parse_duration(form.value("lasts"))
        if seconds is None:
            form.errors["lasts"] = "This should be a time, as 2 h or 30 min."
            return ""
        rule, subject = form.value("rule") or "*", form.value("subject") or "*"
        until = self.console.clock() + seconds
        await self.client.create_silence(until, rule, subject, form.value("comment"))
        return f"Nobody is told of {rule} of {subject} for {form.value('lasts')}."

    async def _unsilence(self, form: Form) -> str:
        await self.client.delete_silence(form.required("name"))
        return "The silence is over."

    async def _channel(self, form: Form) -> str:
        name, url = form.required("name"), form.required("url")
        if form.refused:
            return ""
        fields = {
            "kind": form.value("kind"),
            "url": url,
            "secret": form.value("secret"),
            "to": [one.strip() for one in form.value("to").split(",") if one.strip()],
            "sender": form.value("sender"),
            "people_domains": form.names("people_domains"),
        }
        await self.client.put_channel(name, fields)
        return f"{name} is told of alerts."

    async def _test(self, form: Form) -> str:
        await self.client.test_channel(form.required("name"))
        return f"{form.value('name')} took a message."

    async def _delete_channel(self, form: Form) -> str:
        await self.client.delete_channel(form.required("name"))
        return f"{form.value('name')} is told of nothing any more."

    async def _rule(self, form: Form) -> str:
        name = form.required("name")
        rules = {one.name: one for one in await self.client.list_alert_rules()}
        old = rules.get(name)
        if old is None:
            raise HTTPError(404, "there is no rule %s", name)
        fields = {
            "enabled": not old.enabled,
            "severity": old.severity,
            "threshold": old.threshold,
            "for_seconds": old.for_seconds,
        }
        await self.client.put_alert_rule(name, fields)
        return f"{name} is {'looked for again' if fields['enabled'] else 'not looked for'}."

    async def _show(self, form: Form, note: str) -> None:
        identity, alerts, rules = await asyncio.gather(
            self.client.whoami(), self.client.list_alerts(), self.client.list_alert_rules()
        )
        governs = "alerts:update" in identity.permissions
        faults = await self.client.faults() if identity.admin else None
        silences: Any = ()
        channels: Any = ()
        if governs:
            silences, channels = await asyncio.gather(
                self.client.list_silences(), self.client.list_channels()
            )
        self.show(
            "admin/alerts.html",
            section="alerts",
            live=LiveRegions(("set-aside-notice", "alerts"), 15),
            faults=faults,
            permissions=identity.permissions,
            governs=governs,
            alerts=[one for one in alerts if one.state != "resolved"],
            over=[one for one in alerts if one.state == "resolved"][:50],
            rules=rules,
            silences=silences,
            channels=channels,
            kinds=KINDS,
            form=form,
            note=note,
        )
