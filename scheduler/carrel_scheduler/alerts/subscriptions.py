"""Notifications of users about their own work, where they subscribed: by mail or webhook.

Ends and preemptions are read from the ledger, as far as was read before, so that nothing is told
twice; long waiting and idle GPUs are alerts of the work. It runs beside the scheduler, and each
person has a queue as channels have, which holds up nobody else. Mail goes through the server of a
channel of the administrators; hooks of people reach the public network alone.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp
import msgspec

from carrel_scheduler.alerts.delivery import ChannelState, Delivery
from carrel_scheduler.alerts.messages import NotDelivered, post, send_mail
from carrel_scheduler.alerts.public_network import NotPublic, PublicResolver, check_literal
from carrel_scheduler.ledger.records import Ledger, Transition
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.periodic import run_periodically
from carrel_schema.governance.alerts import AlertOut, ChannelFields, SubscriptionFields, WorkEvent
from carrel_schema.kinds import PARTS
from carrel_schema.objects import Workload
from carrel_schema.scopes import Scope

log = logging.getLogger(__name__)
KIND: Final = "work-subscription"
NAME: Final = "own"
READ: Final = "work_events_read"
PAUSE_SECONDS: Final = 10.0
OVERLAP_SECONDS: Final = 60.0
"""Rows may be some seconds out of order."""
AT_ONCE: Final = 5000
MOST_EACH: Final = 5
"""The most messages of one kind at a time; more are sent as one."""
MOST_ALERTS: Final = 1000
SILENT: Final = PARTS | {"tensorboard", "schedule"}
PHASES: Final[Mapping[str, WorkEvent]] = {
    "succeeded": "finished",
    "failed": "failed",
    "preempting": "preempted",
}
RULES: Final[frozenset[str]] = frozenset({"long-pending", "idle-gpu"})
WORDS: Final[Mapping[str, str]] = {
    "finished": "has finished",
    "failed": "has failed",
    "preempted": "is being preempted",
    "long-pending": "has been pending for long",
    "idle-gpu": "holds a GPU that does nothing",
}
Message = tuple[str, AlertOut]
"""The recipient and the message: ``rule`` is the event, ``subject`` the work."""


class WorkSubscriptions:
    """See the module.

    Args:
        ledger: has subscriptions, and what became of work.
        channels: of the administrators, by name.
        secret: the values of a channel's secret; raises ``NotDelivered``.
        clock: epoch seconds.
        console: address of the console, without a final slash; empty: not known.
        public: whether hooks are held to the public network; tests have none.
    """

    def __init__(
        self,
        ledger: Ledger,
        channels: Callable[[], Awaitable[dict[str, ChannelFields]]],
        secret: Callable[[ChannelFields], Awaitable[Mapping[str, str]]],
        clock: Callable[[], float],
        console: str = "",
        *,
        public: bool = True,
    ) -> None:
        self._ledger, self._channels, self._secret = ledger, channels, secret
        self._clock, self._console, self._public = clock, console, public
        self._session: aiohttp.ClientSession | None = None
        self._alerts: deque[AlertOut] = deque(maxlen=MOST_ALERTS)
        self._delivery = Delivery(self.tell, clock)

    async def run(self) -> None:
        """Send messages periodically until cancelled."""
        try:
            await run_periodically(
                self.once, PAUSE_SECONDS, log, "people were not told of their work"
            )
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def alerted(self, alert: AlertOut) -> None:
        """Handle an alert that fired; alerts that are not about work are ignored."""
        if alert.state == "firing" and alert.rule in RULES:
            self._alerts.append(alert)

    def state(self, user: str) -> ChannelState:
        """The state of deliveries to a user."""
        return self._delivery.state(user)

    async def of(self, user: str) -> SubscriptionFields | None:
        """The subscription of a user; ``None`` without one."""
        try:
            record = await self._ledger.scoped.get(KIND, Scope("user", user), NAME)
        except (ObjectNotFound, ValueError):
            return None
        return read(record)

    async def mail_channel(self) -> ChannelFields | None:
        """The channel for mail to users; ``None`` without one."""
        found = (await self._channels()).values()
        return next((one for one in found if one.kind == "mail" and one.people_domains), None)

    async def once(self) -> None:
        """Read new events, queue them for their users, and send."""
        wanted = {
            record.scope.name: read(record) for record in await self._ledger.scoped.list(KIND)
        }
        happened = [*await self._transitions(wanted), *await self._alerted(wanted)]
        targets = {user: target(one) for user, one in wanted.items()}
        for user, message in _few(happened):
            if user in targets and message.rule in wanted[user].events:
                self._delivery.put({user: targets[user]}, message)
        await self._delivery.flush(targets)

    async def _transitions(self, wanted: Mapping[str, SubscriptionFields]) -> list[Message]:
        """The changes of work since the last look; the position read up to is written first."""
        stored: dict[str, Any] = (await self._ledger.settings()).get(READ) or {}
        if not wanted:
            if stored:  # whoever asks later is told of what comes after that
                await self._ledger.put_setting(READ, {})
            return []
        now = self._clock()
        since = stored.get("at", now)
        rows = await self._ledger.transitions(since=since - OVERLAP_SECONDS, limit=AT_ONCE)
        fresh = [row for row in rows if row.id > stored.get("id", 0)]
        if fresh or not stored:
            last = {"id": rows[-1].id, "at": rows[-1].at} if rows else {"id": 0, "at": now}
            await self._ledger.put_setting(READ, last)
        if not stored:
            return []  # what was before nobody asked for
        return [
            (row.user, _of_row(row))
            for row in fresh
            if row.user in wanted and row.to_phase in PHASES and row.kind not in SILENT
        ]

    async def _alerted(self, wanted: Mapping[str, SubscriptionFields]) -> list[Message]:
        found = []
        while self._alerts:
            alert = self._alerts.popleft()
            _, project, name = alert.subject.split("/", 2)
            try:
                work = await self._ledger.get(Workload, name, project)
            except ObjectNotFound:
                continue
            if work.spec.user in wanted and work.spec.kind not in SILENT:
                told = msgspec.structs.replace(alert, summary=_own_part(alert))
                found.append((work.spec.user, told))
        return found

    async def tell(self, user: str, channel: ChannelFields, message: AlertOut) -> None:
        """Send one event to a user now. Raises ``NotDelivered``."""
        page = self._page(message)
        text = text_of(message)
        if channel.kind == "mail":
            await self._mail(channel.to[0], text, page)
            return
        if channel.kind == "slack":
            body: Any = {"text": f"{text}\n{page}".strip()}
        else:
            body = {
                "event": message.rule,
                "work": message.subject.partition("/")[2],
                "user": user,
                "text": text,
                "at": message.fired_at,
                "address": page,
            }
        try:
            if self._public:
                check_literal(channel.url)
            await post(self._connected(), channel.url, body, {})
        except NotPublic as error:
            raise NotDelivered(str(error)) from None
        except NotDelivered as error:
            cause = getattr(error.__cause__, "os_error", None)
            raise (NotDelivered(str(cause)) if isinstance(cause, NotPublic) else error) from None

    async def _mail(self, address: str, text: str, page: str) -> None:
        through = await self.mail_channel()
        if through is None or domain_of(address) not in through.people_domains:
            raise NotDelivered("administrators allow no mail to its domain")
        secret = await self._secret(through)
        channel = msgspec.structs.replace(through, to=[address])
        first = text.partition("\n")[0]
        await asyncio.to_thread(
            send_mail, channel, f"Carrel: {first}", f"{text}\n\n{page}\n", secret
        )

    def _page(self, message: AlertOut) -> str:
        """The URL of the work's page in the console."""
        kind, _, name = message.subject.partition("/")
        if not self._console:
            return ""
        return f"{self._console}/jobs/{name}" if kind == "workload" else f"{self._console}/jobs"

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            resolver = PublicResolver() if self._public else None
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class StoredSubscription(msgspec.Struct, frozen=True):
    """A subscription as it is stored: the audit log hides what stands under ``data``."""

    data: SubscriptionFields


def read(record: ScopedRecord) -> SubscriptionFields:
    """The subscription of a record."""
    return msgspec.json.decode(record.content, type=StoredSubscription).data


def record_of(user: str, fields: SubscriptionFields) -> ScopedRecord:
    """A user's subscription as a record. Raises ``ValueError`` for a name that is no user's."""
    content = msgspec.Raw(msgspec.json.encode(StoredSubscription(fields)))
    return ScopedRecord(kind=KIND, scope=Scope("user", user), name=NAME, content=content)


def domain_of(address: str) -> str:
    """The domain of an address of mail, in small letters."""
    return address.rpartition("@")[2].lower()


def text_of(message: AlertOut) -> str:
    """The event as a sentence with its reason."""
    if message.subject == "platform":
        return message.summary
    named = message.subject.partition("/")[2]
    why = f"\n{message.summary}" if message.summary else ""
    return f"{named} {WORDS[message.rule]}.{why}"


def target(subscription: SubscriptionFields) -> ChannelFields:
    """The subscription as a target of delivery queues."""
    return ChannelFields(
        kind=subscription.kind,
        url=subscription.url or "smtp://of-the-administrators",
        to=[subscription.address] if subscription.kind == "mail" else [],
    )


def _own_part(alert: AlertOut) -> str:
    """The summary for the owner: of long waiting the first sentence, which names no other work."""
    return f"{alert.summary.partition('.')[0]}." if alert.rule == "long-pending" else alert.summary


def _of_row(row: Transition) -> AlertOut:
    """The reason of an eviction is left out: it may name work that the owner may not see."""
    event = PHASES[row.to_phase]
    told = "" if row.reason is None or event != "failed" else row.reason.sentence
    return AlertOut(
        rule=event,
        subject=f"workload/{row.project}/{row.workload}",
        severity="info",
        state="firing",
        summary=told,
        since=row.at,
        fired_at=row.at,
    )


def _few(messages: Sequence[Message]) -> list[Message]:
    """Many of one kind for one person become one message."""
    counts = Counter((user, message.rule) for user, message in messages)
    found: list[Message] = []
    told: set[tuple[str, str]] = set()
    for user, message in messages:
        key = (user, message.rule)
        if counts[key] <= MOST_EACH:
            found.append((user, message))
        elif key not in told:
            told.add(key)
            summary = f"{counts[key]} pieces of your work: each {WORDS[message.rule]}."
            found.append(
                (user, msgspec.structs.replace(message, subject="platform", summary=summary))
            )
    return found
