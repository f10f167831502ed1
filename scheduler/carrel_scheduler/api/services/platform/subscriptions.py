"""Subscriptions of people to news of their own work, which only they read and change."""

import contextlib
from typing import Final
from urllib.parse import urlsplit

from carrel_scheduler.alerts.messages import NotDelivered
from carrel_scheduler.alerts.public_network import NotPublic, check_literal
from carrel_scheduler.alerts.subscriptions import (
    KIND,
    NAME,
    WorkSubscriptions,
    domain_of,
    record_of,
    target,
)
from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_schema.governance.alerts import AlertOut, SubscriptionFields, SubscriptionOut
from carrel_schema.scopes import Scope

TEST_PAUSE_SECONDS: Final = 30.0
MOST_TESTERS: Final = 10_000


class Subscriptions:
    """The caller's own subscription."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps
        self._tested: dict[str, float] = {}

    @property
    def _work(self) -> WorkSubscriptions:
        if self._deps.alerts is None:
            raise problems.Missing(Code.NOT_FOUND, "Nobody is told of anything here")
        return self._deps.alerts.subscriptions

    async def read(self, principal: Principal) -> SubscriptionOut:
        """The subscription; without a channel kind if there is none."""
        return await self._out(_person(principal))

    async def put(self, fields: SubscriptionFields, principal: Principal) -> SubscriptionOut:
        """Make theirs, or replace it. Raises ``InvalidRequest`` for what does not fit its kind."""
        name = _person(principal)
        if fields.kind == "mail":
            await self._check_mail(fields)
        else:
            _check_hook(fields)
        await self._deps.ledger.scoped.put(record_of(name, fields), actor=name)
        return await self._out(name)

    async def remove(self, principal: Principal) -> None:
        """Delete the subscription, if there is one."""
        name = _person(principal)
        with contextlib.suppress(ObjectNotFound):
            await self._deps.ledger.scoped.remove(KIND, Scope("user", name), NAME)

    async def test(self, principal: Principal) -> SubscriptionOut:
        """Send a test message. Raises ``Missing``, or ``Conflicting`` with the channel's error."""
        name, now = _person(principal), self._deps.clock()
        fields = await self._work.of(name)
        if fields is None:
            raise problems.Missing(Code.NOT_FOUND, "You are told of nothing: save how first")
        wait = TEST_PAUSE_SECONDS - (now - self._tested.get(name, 0.0))
        if wait > 0:
            detail = f"A test was sent a moment ago; try again in {wait:.0f} s"
            raise problems.Conflicting(Code.NOT_DELIVERED, detail)
        if len(self._tested) >= MOST_TESTERS:
            self._tested.clear()
        self._tested[name] = now
        told = AlertOut(
            rule="finished", subject="platform", summary="Carrel reaches you here.", fired_at=now
        )
        try:
            await self._work.tell(name, target(fields), told)
        except NotDelivered as error:
            raise problems.Conflicting(Code.NOT_DELIVERED, f"Not sent: {error}") from error
        return await self._out(name)

    async def _check_mail(self, fields: SubscriptionFields) -> None:
        channel = await self._work.mail_channel()
        if channel is None:
            right = "slack or webhook: administrators have set up no mail to people"
            raise problems.invalid_field("kind", Code.INVALID, fields.kind, right)
        if fields.url:
            raise problems.invalid_field("url", Code.INVALID, "...", "empty for mail")
        if domain_of(fields.address) not in channel.people_domains:
            right = f"an address at {', '.join(channel.people_domains)}"
            raise problems.invalid_field("address", Code.WRONG_FORM, fields.address, right)

    async def _out(self, name: str) -> SubscriptionOut:
        fields, channel = await self._work.of(name), await self._work.mail_channel()
        domains = () if channel is None else channel.people_domains
        if fields is None:
            return SubscriptionOut(mail_domains=domains)
        state = self._work.state(name)
        return SubscriptionOut(
            kind=fields.kind,
            address=fields.address,
            url=_shown(fields.url),
            events=fields.events,
            mail_domains=domains,
            waiting=len(state.waiting),
            sent_at=state.sent_at,
            error=state.error,
        )


def _person(principal: Principal) -> str:
    if principal.kind != "user":
        raise problems.PermissionDenied(Code.USER_EXPECTED, "Only a person is told of their work")
    return principal.name


def _check_hook(fields: SubscriptionFields) -> None:
    if fields.address:
        raise problems.invalid_field("address", Code.INVALID, fields.address, "empty for a hook")
    if not fields.url:
        raise problems.invalid_field("url", Code.MISSING_FIELD, None, "an https address")
    if "@" in fields.url:
        raise problems.invalid_field(
            "url", Code.WRONG_FORM, "...", "an address without credentials"
        )
    try:
        check_literal(fields.url)
    except NotPublic:
        right = "an https address in the public network"
        raise problems.invalid_field("url", Code.INVALID, _shown(fields.url), right) from None


def _shown(url: str) -> str:
    """The address of a hook without its path, which is secret."""
    return f"https://{urlsplit(url).netloc}/..." if url else ""
