"""Server-sent events: first what is, then what changes, for as long as the caller may see it.

The subscription begins before the snapshot is read and what the snapshot already says is left out,
so nothing falls between. The caller is looked up again every few seconds: a revoked token ends the
stream, a changed membership changes what it shows. A place in the queue moves without a change of
the object: what waits is sent again then, as the version that it was.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, get_args

from carrel_scheduler.api import problems, redact
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.encoding import server_sent_event
from carrel_scheduler.api.principals.identity import IdentityUnavailable, Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.workloads.contract import LiveEvent, Subscription
from carrel_scheduler.workloads.state.phases import AT_REST
from carrel_schema.objects import Phase, Workload

log = logging.getLogger(__name__)
PAGE: Final = 200
GREETING: Final = b": events of Carrel\n\n"
TOLD: Final = "told"
KEEP_ALIVE: Final = b": still here\n\n"
MOST_WAITING: Final = 200
"""The pending workloads of a stream whose places in the queue are followed."""
MOST_MOVED: Final = 20
"""How many of them are sent again at once."""
NOT_AT_REST: Final = tuple(phase for phase in get_args(Phase) if phase not in AT_REST)


@dataclass(frozen=True, slots=True)
class Filter:
    """The workloads that a listener wants; empty sets do not restrict.

    Attributes:
        routed: only what has routes; such a stream says when what is there has been told.
        after: the last event id that a returning listener has seen: its stream begins with all that
            changed since, work at rest included.
    """

    project: str = ""
    kind: str = ""
    uid: str = ""
    routed: bool = False
    after: int | None = None

    def wants(self, workload: Workload) -> bool:
        """Whether a workload passes."""
        meta = workload.meta
        return (
            self.project in ("", meta.project)
            and self.kind in ("", workload.spec.kind)
            and self.uid in ("", meta.uid)
            and (not self.routed or (bool(workload.spec.routes) and not workload.spec.owner))
        )


class Watcher:
    """A caller that is authenticated again and again while a stream lasts."""

    def __init__(self, deps: ApiDependencies, principal: Principal, token: str) -> None:
        self._deps, self._token = deps, token
        self.principal = principal
        self._looked_at = self._verified_at = deps.clock()

    async def still_there(self) -> bool:
        """Look the caller up if it is time; false once its token is nobody's."""
        timing, now = self._deps.timing, self._deps.clock()
        if now - self._looked_at < timing.verify:
            return True
        self._looked_at = now
        try:
            principal = await self._deps.identity.user_for_token(self._token)
        except IdentityUnavailable:
            return now - self._verified_at < timing.verify_timeout
        if principal is None:
            return False
        self._verified_at, self.principal = now, principal
        return True


class PlacesInQueue:
    """The pending workloads that a stream has sent, and the places that were sent with them."""

    def __init__(self, positions: Callable[[], Mapping[str, int]]) -> None:
        self._positions = positions
        self._sent: dict[str, tuple[Workload, int | None]] = {}

    def sent(self, workload: Workload, *, gone: bool = False) -> Mapping[str, int]:
        """Note that a workload is being sent; returns the positions to send it with."""
        positions, uid = self._positions(), workload.meta.uid
        self._sent.pop(uid, None)
        follows = workload.status.phase == "pending" and not gone
        if follows and len(self._sent) < MOST_WAITING:
            self._sent[uid] = (workload, positions.get(uid))
        return positions

    def moved(self) -> list[Workload]:
        """Some workloads that have another place by now, those that come first at first."""
        positions = self._positions()
        found = [
            (place, workload)
            for uid, (workload, before) in self._sent.items()
            if (place := positions.get(uid)) is not None and place != before
        ]
        found.sort(key=itemgetter(0))
        return [workload for _, workload in found[:MOST_MOVED]]


class EventStreams:
    """Opens event streams, and counts them for each user."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps
        self._open: Counter[str] = Counter()

    @contextmanager
    def counted(self, principal: Principal) -> Iterator[None]:
        """Count one of the user's open streams inside the block."""
        key = f"{principal.kind}:{principal.name}"
        if self._open[key] >= self._deps.timing.per_user:
            raise problems.TooMany(
                Code.TOO_MANY_STREAMS,
                f"{principal.name} holds {self._open[key]} streams open; close some",
            )
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    async def events(
        self, principal: Principal, token: str, wanted: Filter
    ) -> AsyncGenerator[bytes, None]:
        """Server-sent events until the listener, the token or the service ends."""
        watcher = Watcher(self._deps, principal, token)
        with self.counted(principal):
            subscription = self._deps.live.events()
            places = PlacesInQueue(self._deps.live.positions)
            try:
                yield GREETING
                version = 0
                async with aclosing(self._snapshot(principal, wanted)) as snapshot:
                    async for event in snapshot:
                        version = event.version
                        if event.workload is not None:
                            yield _encoded(event.workload, watcher.principal, places)
                if wanted.routed:
                    yield server_sent_event(TOLD, version, {})
                async with aclosing(
                    self._changes(subscription, watcher, wanted, version, places)
                ) as changes:
                    async for piece in changes:
                        yield piece
            except ObjectNotFound:
                # Deleted while its stream began: it ends, and who asks again is told so.
                log.debug("workload %s is gone", wanted.uid)
            finally:
                subscription.close()

    async def _snapshot(
        self, principal: Principal, wanted: Filter
    ) -> AsyncGenerator["_SnapshotEntry", None]:
        """The present objects; the last item has the version after which changes follow."""
        if wanted.uid:
            workload = await self._deps.ledger.get_by_uid(Workload, wanted.uid)
            version = workload.meta.resource_version
            yield _SnapshotEntry(version, workload if version > (wanted.after or -1) else None)
            return
        projects = [wanted.project] if wanted.project else principal.visible_projects()
        if projects == []:
            yield _SnapshotEntry(0)
            return
        first_version, after = None, ""
        while True:
            page = await self._deps.ledger.list(
                Workload,
                projects=projects,
                phases=NOT_AT_REST if wanted.after is None else None,
                workload_kind=wanted.kind or None,
                limit=PAGE,
                after=after,
            )
            first_version = page.version if first_version is None else first_version
            for workload in page.items:
                version = workload.meta.resource_version
                news = wanted.after is None or version > wanted.after
                user, kind = workload.spec.user, workload.spec.kind
                seen = principal.sees_work(workload.meta.project, user, kind)
                if news and seen and wanted.wants(workload):
                    yield _SnapshotEntry(version, workload)
            after = page.next
            if not after:
                break
        yield _SnapshotEntry(first_version)

    async def _changes(
        self,
        subscription: Subscription,
        watcher: Watcher,
        wanted: Filter,
        version: int,
        places: PlacesInQueue,
    ) -> AsyncGenerator[bytes, None]:
        coming = asyncio.ensure_future(subscription.next())
        timing, now = self._deps.timing, asyncio.get_running_loop().time
        heard = looked = now()
        try:
            while True:
                await asyncio.wait({coming}, timeout=min(timing.places, timing.keep_alive))
                if not await watcher.still_there():
                    return
                pieces: list[bytes] = []
                if coming.done():
                    event = coming.result()
                    if event is None:
                        return
                    coming = asyncio.ensure_future(subscription.next())
                    known = event.type != "report" and event.version <= version
                    if not known and wanted.wants(event.workload):
                        pieces += _shown(event, watcher, places)
                if now() - looked >= timing.places:
                    looked = now()
                    pieces += _moved(places, watcher)
                if not pieces and now() - heard >= timing.keep_alive:
                    pieces.append(KEEP_ALIVE)
                for piece in pieces:
                    heard = now()
                    yield piece
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _SnapshotEntry:
    """A workload of the snapshot (or none), at a version of the store."""

    version: int
    workload: Workload | None = None


def _moved(places: PlacesInQueue, watcher: Watcher) -> list[bytes]:
    return [
        _encoded(workload, watcher.principal, places)
        for workload in places.moved()
        if _sees(watcher, workload)
    ]


def _shown(event: LiveEvent, watcher: Watcher, places: PlacesInQueue) -> list[bytes]:
    """The event for its watcher; nothing if it is about work that the watcher may not see."""
    if not _sees(watcher, event.workload):
        return []
    positions = places.sent(event.workload, gone=event.type == "deleted")
    shown = redact.event(event, watcher.principal, positions)
    return [server_sent_event(event.type, event.version, shown)]


def _sees(watcher: Watcher, workload: Workload) -> bool:
    return watcher.principal.sees_work(
        workload.meta.project, workload.spec.user, workload.spec.kind
    )


def _encoded(workload: Workload, viewer: Principal, places: PlacesInQueue) -> bytes:
    version = workload.meta.resource_version
    event = LiveEvent(type="workload", version=version, workload=workload)
    return server_sent_event(
        event.type, version, redact.event(event, viewer, places.sent(workload))
    )
