"""Alerts, and the settings that administrators make about them."""

from collections.abc import Sequence
from typing import Final, get_args
from uuid import uuid4

import msgspec

from carrel_scheduler.alerts.controller import (
    CHANNEL_KIND,
    RULE_KIND,
    SILENCE_KIND,
    AlertController,
    silence,
)
from carrel_scheduler.alerts.messages import NotDelivered
from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_schema.governance.alerts import (
    ABOUT,
    AlertOut,
    AlertRule,
    AlertRuleOut,
    ChannelFields,
    ChannelOut,
    RuleName,
    SilenceFields,
    SilenceOut,
)
from carrel_schema.scopes import PLATFORM, Scope

TEST: Final = AlertOut(rule="test", subject="platform", state="firing", severity="info")


class Alerts:
    """Reads alerts; writes rules, silences and channels."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    @property
    def _controller(self) -> AlertController:
        if self._deps.alerts is None:
            raise problems.Missing(Code.NOT_FOUND, "No alerts are looked for here")
        return self._deps.alerts

    async def visible(self, principal: Principal) -> Sequence[AlertOut]:
        """The alerts about the caller's own work and projects; all for a reader of faults."""
        everything = principal.may("alerts:read", PLATFORM)

        def seen(alert: AlertOut) -> bool:
            kind, _, name = alert.subject.partition("/")
            project = name.partition("/")[0]
            if kind in ("department", "user"):  # of budgets
                return everything or principal.may("usage:read", Scope.parse(alert.subject))
            return everything or (kind in ("project", "workload") and principal.sees(project))

        return [one for one in await self._controller.alerts() if seen(one)]

    async def rules(self) -> Sequence[AlertRuleOut]:
        """The rules in force."""
        return [_rule(name, rule) for name, rule in (await self._controller.rules()).items()]

    async def put_rule(self, name: str, rule: AlertRule, principal: Principal) -> AlertRuleOut:
        """Change a rule. Raises ``Missing`` for an unknown one."""
        if name not in get_args(RuleName):
            known = ", ".join(f"`{one}`" for one in ABOUT)
            raise problems.Missing(Code.NOT_FOUND, f"There is no rule `{name}`; there are {known}")
        await self._put(RULE_KIND, name, rule, principal)
        return _rule(name, rule)

    async def silences(self) -> Sequence[SilenceOut]:
        """Silences that have not ended."""
        return await self._controller.silences()

    async def add_silence(self, fields: SilenceFields, principal: Principal) -> SilenceOut:
        """Create a silence. Raises ``InvalidRequest`` for one in the past."""
        if fields.until <= self._deps.clock():
            raise problems.invalid_field("until", Code.INVALID, fields.until, "a time to come")
        await self._prune()
        return silence(await self._put(SILENCE_KIND, uuid4().hex[:8], fields, principal))

    async def _prune(self) -> None:
        """Remove ended silences."""
        now = self._deps.clock()
        for record in await self._deps.ledger.scoped.list(SILENCE_KIND):
            if silence(record).until <= now:
                await self._deps.ledger.scoped.remove(SILENCE_KIND, PLATFORM, record.name)

    async def channels(self) -> Sequence[ChannelOut]:
        """The channels, with the state of their deliveries."""
        found = await self._controller.channels()
        return [self._channel(name, channel) for name, channel in found.items()]

    async def put_channel(
        self, name: str, fields: ChannelFields, principal: Principal
    ) -> ChannelOut:
        """Make a channel, or replace it.

        Raises ``InvalidRequest`` for what does not fit its kind.
        """
        scheme = fields.url.partition(":")[0]
        if (fields.kind == "mail") != scheme.startswith("smtp"):
            right = "smtps://HOST or smtp://HOST" if fields.kind == "mail" else "an http(s) address"
            raise problems.invalid_field("url", Code.WRONG_FORM, fields.url, right)
        if "@" in fields.url:
            right = "an address without credentials: name a `secret` that has them"
            raise problems.invalid_field("url", Code.WRONG_FORM, "...", right)
        if fields.people_domains and fields.kind != "mail":
            right = "none: people are told through a channel of mail"
            raise problems.invalid_field(
                "people_domains", Code.INVALID, fields.people_domains, right
            )
        lacking = not fields.to and (fields.weekly_report or not fields.people_domains)
        if fields.kind == "mail" and lacking:
            raise problems.invalid_field("to", Code.MISSING_FIELD, None, "addresses to send to")
        if fields.weekly_report and fields.kind not in ("mail", "slack"):
            right = "false: mail and Slack-type hooks are sent reports"
            raise problems.invalid_field("weekly_report", Code.INVALID, True, right)  # noqa: FBT003 - the value
        await self._put(CHANNEL_KIND, name, fields, principal)
        return self._channel(name, fields)

    async def test_channel(self, name: str) -> ChannelOut:
        """Send a test message. Raises ``Missing``, or ``Conflicting`` with the channel's error."""
        channel = (await self._controller.channels()).get(name)
        if channel is None:
            raise problems.Missing(Code.NOT_FOUND, f"There is no channel `{name}`")
        now = self._deps.clock()
        told = msgspec.structs.replace(
            TEST, summary="Carrel reaches this channel.", since=now, fired_at=now
        )
        try:
            await self._controller.tell(name, channel, told)
        except NotDelivered as error:
            raise problems.Conflicting(Code.NOT_DELIVERED, f"`{name}`: {error}") from error
        return self._channel(name, channel)

    async def remove(self, kind: str, name: str) -> None:
        """Remove a rule's change, a silence or a channel. Raises ``Missing``."""
        try:
            await self._deps.ledger.scoped.remove(kind, PLATFORM, name)
        except ObjectNotFound:
            raise problems.Missing(Code.NOT_FOUND, f"There is no `{name}`") from None

    async def _put(
        self, kind: str, name: str, content: msgspec.Struct, principal: Principal
    ) -> ScopedRecord:
        record = ScopedRecord(
            kind=kind, scope=PLATFORM, name=name, content=msgspec.Raw(msgspec.json.encode(content))
        )
        return await self._deps.ledger.scoped.put(record, actor=principal.name)

    def _channel(self, name: str, channel: ChannelFields) -> ChannelOut:
        state = self._controller.delivery.state(name)
        return ChannelOut(
            name=name,
            kind=channel.kind,
            url=channel.url.partition("?")[0],
            secret=channel.secret,
            to=channel.to,
            sender=channel.sender,
            severities=channel.severities,
            send_resolved=channel.send_resolved,
            weekly_report=channel.weekly_report,
            people_domains=channel.people_domains,
            waiting=len(state.waiting),
            sent_at=state.sent_at,
            error=state.error,
            dropped=state.dropped,
        )


def _rule(name: str, rule: AlertRule) -> AlertRuleOut:
    about = ABOUT[name]  # type: ignore[index]  # one of its names
    return AlertRuleOut(
        **msgspec.structs.asdict(rule),
        name=name,
        description=about.description,
        unit=about.unit,
        action=about.action,
    )
