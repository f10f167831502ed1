"""Entries of the audit log that the API writes; the ledger records changes of objects itself.

* Who acts, for every request that may change something: ``begin``.
* What has no object or leaves none changed: terminals, forwarded ports, files that are read from
  tasks, members, uploads: ``note``.
* Refusals, counted: the first of each kind is written after a moment and repetitions once a minute,
  at most ``MOST_KEYS`` different ones, so that whoever is refused cannot fill the disk.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from carrel_scheduler.api.principals.access import Visitor
from carrel_scheduler.ledger.audit import actor as actors
from carrel_scheduler.ledger.audit.actor import Actor
from carrel_scheduler.ledger.audit.contract import AuditStore
from carrel_scheduler.ledger.audit.differences import differences
from carrel_scheduler.ledger.store import StoreError
from carrel_schema.governance.audit import AuditEntry

log = logging.getLogger(__name__)
FIRST_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 60.0
MOST_KEYS: Final = 50
LONGEST: Final = 200
CHANNELS: Final = frozenset({"console", "cli", "notebook", "hub", "api"})
_Key = tuple[str, str, str, str]


class Origin(NamedTuple):
    """The origin of a request: see ``AuditEntry``."""

    address: str = ""
    channel: str = ""
    agent: str = ""


class AuditDetails(NamedTuple):
    """The details of an operation for the audit log.

    Attributes:
        path: the named parts of its path.
        more: what else it was given: query and body, as JSON can hold them.
    """

    path: Mapping[str, str]
    more: Mapping[str, Any]


def origin_of(headers: Mapping[str, str], peer: str) -> Origin:
    """The origin of a request, from its headers; ``peer`` is the address that connected.

    The last address of ``X-Forwarded-For`` is what our own proxy saw, or the console.
    """
    forwarded = headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
    channel = headers.get("X-Carrel-Channel", "api")
    return Origin(
        (forwarded or peer)[:LONGEST],
        channel if channel in CHANNELS else "api",
        headers.get("User-Agent", "")[:LONGEST],
    )


class AuditLog:
    """Writes entries for requests.

    Args:
        audit: of the ledger.
        clock: epoch seconds.
        pause: waits so many seconds.
    """

    def __init__(
        self,
        audit: AuditStore,
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._audit, self._clock, self._pause = audit, clock, pause
        self._refused: dict[_Key, AuditEntry] = {}
        self._writing: asyncio.Task[None] | None = None

    def begin(self, visitor: Visitor, origin: Origin, operation: str) -> Actor:
        """Make this visitor the actor of the present task."""
        principal, workload = visitor.principal, visitor.workload
        made = self._actor("" if principal is None else principal.name, origin, operation)
        if principal is None and workload is not None:
            made.user = workload.spec.user
            made.job = workload.meta.uid
        elif principal is not None:
            made.job = principal.job
            made.service = principal.kind == "service"
            if made.service and workload is not None:
                made.on_behalf_of = workload.spec.user
        actors.begin(made)
        return made

    def _actor(self, user: str, origin: Origin, operation: str) -> Actor:
        return Actor(
            at=self._clock(),
            user=user,
            address=origin.address,
            channel=origin.channel,
            agent=origin.agent,
            operation=operation,
        )

    async def note(self, actor: Actor, visitor: Visitor, details: AuditDetails) -> None:
        """Record that an operation was done, or begins. Raises ``StorageFull``."""
        entry = replace(actor.entry(actor.operation), **_object(visitor, details.path))
        rest = {k: v for k, v in details.path.items() if k not in ("project", "name")}
        _, after = differences(None, msgspec.json.encode(rest | dict(details.more)))
        await self._audit.add([replace(entry, after=after)])

    def refused(
        self, user: str, origin: Origin, operation: str, path: Mapping[str, str], reason: str
    ) -> None:
        """Count a refusal; it is written a moment later."""
        key: _Key = (user, origin.address, operation, reason)
        if key not in self._refused and len(self._refused) >= MOST_KEYS:
            key, path = ("", "", "", reason), {}
        found = self._refused.get(key)
        if found is None:
            actor = self._actor(key[0], origin._replace(address=key[1]), key[2])
            verb = "sign-in" if not user else operation
            found = replace(
                actor.entry(verb), **_named(path), outcome="refused", reason=reason, count=0
            )
        self._refused[key] = replace(found, count=found.count + 1)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_refusals())

    async def _write_refusals(self) -> None:
        with actors.acting(None):
            await self._pause(FIRST_SECONDS)
            while entries := self._taken():
                await self._add(entries)
                await self._pause(PAUSE_SECONDS)

    def _taken(self) -> Sequence[AuditEntry]:
        entries = list(self._refused.values())
        self._refused.clear()
        return entries

    async def _add(self, entries: Sequence[AuditEntry]) -> None:
        try:
            await self._audit.add(entries)
        except StoreError as error:
            log.warning("refusals were not recorded: %s", error)


def _object(visitor: Visitor, path: Mapping[str, str]) -> dict[str, str]:
    workload = visitor.workload
    if workload is None:
        return _named(path)
    return {
        "kind": "Workload",
        "scope": f"project/{workload.meta.project}",
        "name": workload.meta.name,
        "uid": workload.meta.uid,
    }


def _named(path: Mapping[str, str]) -> dict[str, str]:
    if "project" not in path:
        return {"name": path.get("name", "")}
    kind = "Workload" if "name" in path else "Project"
    name = path.get("name", path["project"])
    return {"kind": kind, "scope": f"project/{path['project']}", "name": name}
