"""Server-sent events: first what is, then what changes, for as long as the caller may see it.

The subscription begins before the snapshot is read and what the snapshot already says is left out,
so nothing falls between. The caller is looked up again every few seconds: a revoked token ends the
stream, a changed membership changes what it shows.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
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
            try:
                yield GREETING
                version = 0
                async with aclosing(self._snapshot(principal, wanted)) as snapshot:
                    async for event in snapshot:
                        version = event.version
                        if event.workload is not None:
                            positions = self._deps.live.positions()
                            yield _encoded(event.workload, watcher.principal, positions)
                if wanted.routed:
                    yield server_sent_event(TOLD, version, {})
                async with aclosing(
                    self._changes(subscription, watcher, wanted, version)
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
        self, subscription: Subscription, watcher: Watcher, wanted: Filter, version: int
    ) -> AsyncGenerator[bytes, None]:
        coming = asyncio.ensure_future(subscription.next())
        try:
            while True:
                await asyncio.wait({coming}, timeout=self._deps.timing.keep_alive)
                if not await watcher.still_there():
                    return
                if not coming.done():
                    yield KEEP_ALIVE
                    continue
                event = coming.result()
                if event is None:
                    return
                coming = asyncio.ensure_future(subscription.next())
                known = event.type != "report" and event.version <= version
                work = event.workload
                seen = watcher.principal.sees_work(
                    work.meta.project, work.spec.user, work.spec.kind
                )
                if seen and not known and wanted.wants(event.workload):
                    positions = self._deps.live.positions()
                    shown = redact.event(event, watcher.principal, positions)
                    yield server_sent_event(event.type, event.version, shown)
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _SnapshotEntry:
    """A workload of the snapshot (or none), at a version of the store."""

    version: int
    workload: Workload | None = None


def _encoded(workload: Workload, viewer: Principal, positions: Mapping[str, int]) -> bytes:
    version = workload.meta.resource_version
    event = LiveEvent(type="workload", version=version, workload=workload)
    return server_sent_event(event.type, version, redact.event(event, viewer, positions))
