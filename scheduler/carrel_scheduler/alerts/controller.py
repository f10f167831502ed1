"""The alert controller: looks every few seconds, keeps the states in the ledger, tells channels.

The states are written before anybody is told, with what is still to be told, so that after a kill
nothing fires twice; at worst one message is lost or sent twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import aiohttp
import msgspec

from carrel_scheduler.alerts.conditions import Facts, Rules, find
from carrel_scheduler.alerts.delivery import Delivery
from carrel_scheduler.alerts.health import LedgerFacts, report
from carrel_scheduler.alerts.messages import NotDelivered, post, send, send_mail, title
from carrel_scheduler.alerts.states import AlertStates, silenced_until
from carrel_scheduler.alerts.subscriptions import WorkSubscriptions
from carrel_scheduler.ledger.errors import SecretsUnreadable
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.periodic import run_periodically
from carrel_schema.governance.alerts import (
    ABOUT,
    AlertOut,
    AlertRule,
    ChannelFields,
    RuleName,
    SilenceOut,
)
from carrel_schema.governance.costs import BudgetOut, parts_of
from carrel_schema.governance.health import DIRECTORY_SETTING, DirectorySync, HealthCheck
from carrel_schema.scopes import PLATFORM

log = logging.getLogger(__name__)
STATES: Final = "alert_states"
RULE_KIND: Final = "alert-rule"
SILENCE_KIND: Final = "alert-silence"
CHANNEL_KIND: Final = "notification-channel"
PAUSE_SECONDS: Final = 10.0


class AlertController:
    """See the module.

    Args:
        ledger: has rules, silences and channels, and keeps the states.
        facts: the state of now.
        clock: epoch seconds.
        address: of the page that shows alerts.
        budgets: what of budgets is used; ``None``: there are none.

    Attributes:
        subscriptions: tell people of their own work; run beside it.
    """

    def __init__(
        self,
        ledger: Ledger,
        facts: Callable[[], Facts],
        clock: Callable[[], float],
        address: str = "",
        budgets: Callable[[], Awaitable[Sequence[BudgetOut]]] | None = None,
    ) -> None:
        self._ledger, self._facts, self._clock, self._address = ledger, facts, clock, address
        self._states: AlertStates | None = None
        self._session: aiohttp.ClientSession | None = None
        self._budgets = budgets
        self.delivery = Delivery(self.tell, clock)
        self.subscriptions = WorkSubscriptions(
            ledger, self.channels, self._secret, clock, address.removesuffix("/alerts")
        )

    async def run(self) -> None:
        """Evaluate the rules periodically until cancelled."""
        try:
            await run_periodically(self.once, PAUSE_SECONDS, log, "alerts were not looked for")
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.subscriptions.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def once(self) -> None:
        """Evaluate the rules once, write what changed, and queue messages."""
        rules, channels = await self.rules(), await self.channels()
        book = await self._opened()
        facts = await self._gathered(channels)
        changed = book.step(find(facts, rules), rules, self._clock())
        if changed:
            kept = [one for one in book.alerts if one.state != "pending"]
            await self._ledger.put_setting(STATES, msgspec.to_builtins(kept))
            silences = await self.silences()
            for alert in changed:
                log.info("alert %s of %s is %s", alert.rule, alert.subject, alert.state)
                if not silenced_until(alert, silences, self._clock()):
                    self.delivery.put(channels, alert)
                    self.subscriptions.alerted(alert)
        await self.delivery.flush(channels)

    async def _gathered(self, channels: Mapping[str, ChannelFields]) -> Facts:
        """The present state, with stored alerts and the state of channels."""
        errors = self.delivery.errors
        stored = (await self._ledger.settings()).get(DIRECTORY_SETTING)
        facts = replace(
            self._facts(),
            channels={name: errors.get(name, "") for name in channels},
            directory=None if stored is None else msgspec.convert(stored, DirectorySync),
        )
        if self._budgets is None:
            return facts
        found = await self._budgets()
        used = {one.scope: parts_of(one) for one in found}
        return replace(facts, budgets=used)

    async def health(self) -> Sequence[HealthCheck]:
        """The present checks, by the part of the platform."""
        facts = await self._gathered(await self.channels())
        decisions = await self._ledger.decisions(limit=1)
        known = LedgerFacts(
            size_bytes=await self._ledger.size_bytes(),
            decided_at=decisions[-1].at if decisions else None,
        )
        return report(facts, await self.rules(), known)

    async def alerts(self) -> Sequence[AlertOut]:
        """The present alerts, with their silences."""
        book, silences, now = await self._opened(), await self.silences(), self._clock()
        return [
            msgspec.structs.replace(one, silenced_until=silenced_until(one, silences, now))
            for one in book.alerts
        ]

    async def rules(self) -> Rules:
        """The rules in force: the built-in ones with administrators' changes."""
        stored = {
            one.name: msgspec.json.decode(one.content, type=AlertRule)
            for one in await self._ledger.scoped.list(RULE_KIND)
        }
        found: dict[RuleName, AlertRule] = {
            name: stored.get(name, about.default) for name, about in ABOUT.items()
        }
        return found

    async def silences(self) -> Sequence[SilenceOut]:
        """Silences that have not ended."""
        found = [silence(one) for one in await self._ledger.scoped.list(SILENCE_KIND)]
        return [one for one in found if one.until > self._clock()]

    async def channels(self) -> dict[str, ChannelFields]:
        """The channels, by name."""
        return {
            one.name: msgspec.json.decode(one.content, type=ChannelFields)
            for one in await self._ledger.scoped.list(CHANNEL_KIND)
        }

    async def tell(self, _name: str, channel: ChannelFields, alert: AlertOut) -> None:
        """Send one alert to one channel now. Raises ``NotDelivered``."""
        secret = await self._secret(channel)
        if channel.kind == "mail":
            text = f"{alert.summary}\n\n{self._address}\n"
            await asyncio.to_thread(send_mail, channel, title(alert), text, secret)
            return
        await send(self._connected(), channel, alert, secret, self._address)

    async def tell_text(self, _name: str, channel: ChannelFields, subject: str, text: str) -> None:
        """Send mail or a Slack-type hook a text now. Raises ``NotDelivered``."""
        secret = await self._secret(channel)
        if channel.kind == "mail":
            await asyncio.to_thread(send_mail, channel, subject, f"{text}\n", secret)
            return
        await post(self._connected(), channel.url, {"text": f"{subject}\n```{text}```"}, secret)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session

    async def _secret(self, channel: ChannelFields) -> Mapping[str, str]:
        if not channel.secret:
            return {}
        try:
            found = await self._ledger.named_secrets.values(channel.secret, PLATFORM)
        except SecretsUnreadable:
            found = None
        if found is None:
            raise NotDelivered(f"its secret `{channel.secret}` is not there on the platform")
        return found

    async def _opened(self) -> AlertStates:
        if self._states is None:
            stored = (await self._ledger.settings()).get(STATES) or []
            if self._states is None:  # nobody else read them meanwhile
                self._states = AlertStates(msgspec.convert(stored, list[AlertOut]))
        return self._states


def silence(record: ScopedRecord) -> SilenceOut:
    """The silence of a record."""
    stored = msgspec.json.decode(record.content)
    return msgspec.convert(
        {**stored, "name": record.name, "created_by": record.created_by}, SilenceOut
    )
