"""Sign-ins, failed ones, sign-outs and changes of users, reported to the scheduler's audit log.

Reports are kept while the scheduler does not answer, and are sent when it does; a restart of the
Hub loses those that wait, but not what ``carrel user`` did: the accounts file keeps that. What
fails is counted by name, address and reason and sent twice a minute, at most ``MOST_KEYS``
different ones, so that whoever tries passwords cannot fill the disk. A name that nobody has is not
told: it may be a password that was typed into the wrong field.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from carrel.errors import ApiError, CarrelError
from carrel_hub.accounts.account import AccountChange
from carrel_hub.accounts.sources import source_of

log = logging.getLogger(__name__)
PAUSE_SECONDS: Final = 2.0
REFUSED_SECONDS: Final = 30.0
MOST_KEYS: Final = 50
MOST_WAITING: Final = 5000
AT_ONCE: Final = 200
LONGEST: Final = 200
WRONG: Final = frozenset({400, 413, 422})
Report = dict[str, Any]


class AuditReceiver(Protocol):
    """The scheduler."""

    async def add_audit_events(self, items: list[Report]) -> None:
        """Take some; raises ``CarrelError``."""
        ...


class AuditJournal(Protocol):
    """Changes of accounts that are kept until the audit log has them."""

    def changes(self) -> list[AccountChange]:
        """The changes that are not reported yet, the oldest first."""
        ...

    def told(self, changes: Sequence[AccountChange]) -> None:
        """Remove changes that were reported."""
        ...


class AuditReports:
    """Keeps audit reports until they are sent.

    Args:
        scheduler: gives the scheduler's client, inside the event loop.
        clock: epoch seconds.
        journal: changes that are kept until they were sent.
    """

    def __init__(
        self,
        scheduler: Callable[[], AuditReceiver],
        clock: Callable[[], float] = time.time,
        journal: AuditJournal | None = None,
    ) -> None:
        self._scheduler, self._clock, self._journal = scheduler, clock, journal
        self._waiting: deque[Report] = deque(maxlen=MOST_WAITING)
        self._refused: dict[tuple[str, str, str], Report] = {}
        self._refused_at = 0.0

    def add(self, verb: str, name: str, *, user: str = "", **more: str) -> None:
        """Report a change of an account: ``user`` made it, ``name`` is the account."""
        self._waiting.append(self._report(verb, name, user=user, **more))

    def refused(self, name: str, reason: str, *, address: str, agent: str) -> None:
        """Count a sign-in that failed; ``name`` is empty for one that nobody has."""
        key = (name, address, reason)
        if key not in self._refused and len(self._refused) >= MOST_KEYS:
            key, agent = ("", "", reason), ""
        found = self._refused.get(key)
        if found is None:
            found = self._report("sign-in", key[0], address=key[1], agent=agent, reason=reason)
            found |= {"outcome": "refused", "count": 0}
            self._refused[key] = found
        found["count"] += 1

    def _report(self, verb: str, name: str, **more: str) -> Report:
        told = {key: value[:LONGEST] for key, value in more.items() if value}
        return {"at": self._clock(), "verb": verb, "name": name[:LONGEST], **told}

    async def run(self) -> None:
        """Send again and again, until cancelled."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                await self.send()
            except Exception:
                log.exception("Reports for the audit log were not sent; trying again")

    async def send(self) -> None:
        """Send the waiting reports, as far as the scheduler accepts them."""
        if self._refused and self._clock() - self._refused_at >= REFUSED_SECONDS:
            self._waiting.extend(self._refused.values())
            self._refused.clear()
            self._refused_at = self._clock()
        if self._journal is not None and not await self._send_journal(self._journal):
            return
        while self._waiting:
            some = [self._waiting[n] for n in range(min(AT_ONCE, len(self._waiting)))]
            if not await self._taken(some):
                return
            self._drop(some)

    async def _send_journal(self, journal: AuditJournal) -> bool:
        """Send what is kept; sent twice if the Hub is killed before it is let go."""
        while changes := journal.changes()[:AT_ONCE]:
            if not await self._taken([_told(one) for one in changes]):
                return False
            journal.told(changes)
        return True

    async def _taken(self, some: list[Report]) -> bool:
        """Whether these reports are finished: accepted, or rejected for good."""
        try:
            await self._scheduler().add_audit_events(some)
        except ApiError as error:
            if error.status not in WRONG:
                return False
            # It would refuse these later, too.
            log.warning("the audit log refused %d reports: %s", len(some), error)
        except CarrelError as error:
            log.debug("the audit log does not answer: %s", error)
            return False
        return True

    def _drop(self, some: Sequence[Mapping[str, Any]]) -> None:
        for one in some:
            if self._waiting and self._waiting[0] is one:
                self._waiting.popleft()


def origin_of(authenticator: Any, handler: Any) -> dict[str, str]:
    """The origin of a request, for audit reports."""
    request = handler.request
    forwarded = ",".join(request.headers.get_list("X-Forwarded-For"))
    trusted = getattr(authenticator, "_trusted", ())
    return {
        "address": source_of(forwarded, request.remote_ip, trusted),
        "agent": request.headers.get("User-Agent", ""),
    }


def _told(change: AccountChange) -> Report:
    """A change of the accounts file, as the audit log is told."""
    return {
        "at": change.at,
        "verb": change.verb,
        "user": change.actor[:LONGEST],
        "name": change.name[:LONGEST],
        "channel": "cli",
        "agent": "carrel user",
        "before": change.before,
        "after": change.after,
    }
