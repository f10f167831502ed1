"""The routing table: which workloads have routes, who may use them, where their servers are.

It is kept in memory and filled by the scheduler's event stream and by nothing else, so a request
asks nobody. Each connection of the stream begins with all workloads there are, closed by an event
``told``; what was not among them has gone. Until then, and while the scheduler is away, the table
stays as it was, so endpoints serve on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from carrel.client.stream import QUIET_SECONDS, Message, Parser
from carrel.client.transport import Transport
from carrel.errors import CarrelError
from carrel.models import Reason, Workload
from carrel_hub.front.origins import MAIN, label
from carrel_schema.reading import read
from carrel_schema.sections import Route

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS: Final = 5.0
_SNAPSHOT_END: Final = "told"


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """A server. ``uid`` tells it apart from earlier runs of the same task."""

    uid: str
    host: str
    port: int

    @property
    def base(self) -> str:
        """The target's address without a path."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RoutedWorkload:
    """A workload with routes, as the gateway needs it.

    Attributes:
        targets: by the name of the route, servers that take requests.
        wakes: it has no server while nobody asks; a request is held until one has started.
        requests_per_server: so many one server should have at once.
        max_servers: so many of them may be started; 0: it has what it has.
        scaling_up: more servers are being started.
    """

    uid: str
    version: int
    project: str
    name: str
    user: str
    kind: str
    phase: str
    reason: Reason | None
    routes: dict[str, Route]
    targets: dict[str, tuple[RouteTarget, ...]]
    wakes: bool = False
    startup_seconds: float = 0.0
    requests_per_server: int = 0
    max_servers: int = 0
    scaling_up: bool = False

    @property
    def labels(self) -> Iterator[tuple[str, str]]:
        """The label and name of each route."""
        for name in {MAIN, *self.routes}:
            yield label(self.project, self.name, name), name

    @property
    def target_uids(self) -> set[str]:
        """The uids of all targets that accept requests."""
        return {target.uid for targets in self.targets.values() for target in targets}


@dataclass(slots=True)
class RoutingTable:
    """Workloads by project and name. Held requests wait for the next change of theirs."""

    _workloads: dict[tuple[str, str], RoutedWorkload] = field(default_factory=dict)
    _labels: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    _waiters: dict[str, set[asyncio.Future[None]]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[RoutedWorkload]:
        """All workloads."""
        return iter(self._workloads.values())

    def find(self, project: str, name: str) -> RoutedWorkload | None:
        """The workload of that name."""
        return self._workloads.get((project, name))

    def at_origin(self, of_route: str) -> tuple[RoutedWorkload | None, str]:
        """The workload and route whose origin has this label."""
        project, name, route = self._labels.get(of_route, ("", "", ""))
        return self.find(project, name), route

    def put(self, workload: RoutedWorkload) -> bool:
        """Add or replace a workload; false for an older version of it."""
        key = workload.project, workload.name
        known = self._workloads.get(key)
        if known is not None and known.uid == workload.uid and known.version > workload.version:
            return False
        self._forget_labels(known)
        self._workloads[key] = workload
        for of_route, route in workload.labels:
            self._labels[of_route] = (*key, route)
        self.notify(workload.uid)
        return True

    def remove(self, project: str, name: str, uid: str) -> None:
        """Remove a workload, unless another one has taken its name."""
        known = self._workloads.get((project, name))
        if known is not None and known.uid == uid:
            del self._workloads[project, name]
            self._forget_labels(known)
            self.notify(uid)

    def keep_only(self, uids: set[str]) -> None:
        """Remove all workloads except these."""
        for workload in [one for one in self if one.uid not in uids]:
            self.remove(workload.project, workload.name, workload.uid)

    def _forget_labels(self, workload: RoutedWorkload | None) -> None:
        for of_route, _ in workload.labels if workload is not None else ():
            self._labels.pop(of_route, None)

    async def changed(self, uid: str) -> None:
        """Wait for the next change of a workload."""
        waiters = self._waiters.setdefault(uid, set())
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.add(waiter)
        try:
            await waiter
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(uid, None)

    def notify(self, uid: str) -> None:
        """Wake requests that wait for a change of a workload."""
        for waiter in tuple(self._waiters.get(uid, ())):
            if not waiter.done():
                waiter.set_result(None)


class RoutingReflector:
    """Keeps a routing table up to date with the scheduler's event stream.

    ``changed`` is called with the uid of each workload that changes, ``listed`` when a connection
    has told of all there are.
    """

    def __init__(
        self,
        transport: Transport,
        table: RoutingTable,
        node_host: str,
        *,
        changed: Callable[[str], None],
        listed: Callable[[], None],
    ) -> None:
        self._transport, self._table, self._node_host = transport, table, node_host
        self._changed, self._listed = changed, listed
        self._seen: set[str] = set()
        self.ready = False

    async def run(self) -> None:
        """Follow the stream for ever; connect again after every break."""
        retry = 0
        while True:
            try:
                await self._follow()
                retry = 0
            except CarrelError as error:
                log.warning("no events from the scheduler: %s", error)
            await self._transport.pauses.before(retry, LONGEST_PAUSE_SECONDS)
            retry += 1

    async def _follow(self) -> None:
        self._seen = set()
        complete, parser = False, Parser()
        async with self._transport.stream(
            "/events",
            parameters={"routed": True},
            headers={"Accept": "text/event-stream"},
            quiet_seconds=QUIET_SECONDS,
        ) as response:
            async for piece in response.content.iter_any():
                for message in parser.feed(piece):
                    if message.event != _SNAPSHOT_END:
                        self._take(message)
                    elif not complete:
                        complete = self.ready = True
                        self._table.keep_only(self._seen)
                        self._listed()

    def _take(self, message: Message) -> None:
        """Apply an event. One that cannot be read is left out: another one follows every change."""
        try:
            workload = read(message.data, Workload)
        except msgspec.MsgspecError as error:
            log.warning("an event %r was not understood: %s", message.event, error)
            return
        if message.event == "report":
            return
        routed = routed_workload(workload, self._node_host)
        if message.event == "deleted" or routed is None:
            self._table.remove(workload.project, workload.name, workload.uid)
            self._seen.discard(workload.uid)
        else:
            self._seen.add(routed.uid)
            self._table.put(routed)
        self._changed(workload.uid)


def routed_workload(workload: Workload, node_host: str) -> RoutedWorkload | None:
    """The facts of a workload for requests; ``None`` for parts and work without routes."""
    spec, status = workload.spec, workload.status
    if spec.owner or not spec.routes:
        return None
    names = [route.name or MAIN for route in spec.routes]
    inference = spec.inference
    stopped = spec.suspend or spec.delete or status.phase in ("stopped", "failed", "succeeded")
    return RoutedWorkload(
        uid=workload.uid,
        version=workload.resource_version,
        project=workload.project,
        name=workload.name,
        user=spec.user,
        kind=spec.kind,
        phase=status.phase,
        reason=status.reason,
        routes=dict(zip(names, spec.routes, strict=True)),
        targets={name: tuple(_targets(workload, name, node_host)) for name in names},
        wakes=inference is not None and inference.min_replicas == 0 and not stopped,
        startup_seconds=0.0 if inference is None else inference.startup_seconds,
        requests_per_server=0 if inference is None else inference.in_flight_per_replica,
        max_servers=0 if inference is None or stopped else inference.max_replicas,
        scaling_up=status.endpoint is not None and status.endpoint.starting > 0,
    )


def _targets(workload: Workload, name: str, node_host: str) -> Iterator[RouteTarget]:
    status = workload.status
    if status.endpoint is not None:
        for target in status.endpoint.targets:
            if target.state == "ready" and name in target.ports:
                yield RouteTarget(target.uid, target.host or node_host, target.ports[name])
        return
    if status.phase != "running":
        return
    for task in status.tasks[:1]:
        if task.ended_at is None and name in task.ports:
            host = task.address or node_host
            yield RouteTarget(f"{workload.uid}-{task.attempt}", host, task.ports[name])
