"""Which workloads have routes, who may use them, and where their servers are: in memory.

Filled by the scheduler's events and by nothing else, so a request asks nobody. Whoever holds a
request until a server is there waits for the next change of its workload.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from carrel.models import Reason, Workload
from carrel.models.sections import Route
from carrel_hub.gateway.origins import MAIN, label


@dataclass(frozen=True, slots=True)
class Target:
    """A server. ``uid`` tells it apart from earlier runs of the same task."""

    uid: str
    host: str
    port: int

    @property
    def base(self) -> str:
        """Its address without a path."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Place:
    """One workload with routes, as requests see it.

    Attributes:
        targets: by the name of the route, servers that take requests.
        comes_by_itself: requests may be held: an endpoint that may sleep comes when asked for.
        at_once: requests that one server should have.
        most_servers: so many of them may come; 0: it has what it has.
        coming: more are being started.
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
    targets: dict[str, tuple[Target, ...]]
    comes_by_itself: bool = False
    startup_seconds: float = 0.0
    at_once: int = 0
    most_servers: int = 0
    coming: bool = False

    @property
    def labels(self) -> Iterator[tuple[str, str]]:
        """Of each route the label of its origin, and its name."""
        for name in {MAIN, *self.routes}:
            yield label(self.project, self.name, name), name


@dataclass(slots=True)
class Table:
    """Places by project and name."""

    _places: dict[tuple[str, str], Place] = field(default_factory=dict)
    _labels: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    _waiters: dict[str, set[asyncio.Future[None]]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Place]:
        """All places."""
        return iter(self._places.values())

    def find(self, project: str, name: str) -> Place | None:
        """The place of that name."""
        return self._places.get((project, name))

    def at_origin(self, of_route: str) -> tuple[Place | None, str]:
        """The place and the route whose origin has this label."""
        project, name, route = self._labels.get(of_route, ("", "", ""))
        return self.find(project, name), route

    def put(self, place: Place) -> bool:
        """A place is new or has changed; false for old news."""
        key = place.project, place.name
        known = self._places.get(key)
        if known is not None and known.uid == place.uid and known.version > place.version:
            return False
        self._forget(known)
        self._places[key] = place
        for of_route, route in place.labels:
            self._labels[of_route] = (place.project, place.name, route)
        self.tell(place.uid)
        return True

    def remove(self, project: str, name: str, uid: str) -> None:
        """A workload is gone; another one of its name stays."""
        known = self._places.get((project, name))
        if known is not None and known.uid == uid:
            del self._places[project, name]
            self._forget(known)
            self.tell(uid)

    def keep_only(self, uids: set[str]) -> None:
        """All places but these have gone while nobody told us."""
        for place in [one for one in self if one.uid not in uids]:
            self.remove(place.project, place.name, place.uid)

    def _forget(self, place: Place | None) -> None:
        for of_route, _ in place.labels if place is not None else ():
            self._labels.pop(of_route, None)

    async def changed(self, uid: str) -> None:
        """Wait for the next change of a place."""
        waiters = self._waiters.setdefault(uid, set())
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.add(mine)
        try:
            await mine
        finally:
            waiters.discard(mine)
            if not waiters:
                self._waiters.pop(uid, None)

    def tell(self, uid: str) -> None:
        """Something about a place has changed."""
        for waiter in tuple(self._waiters.get(uid, ())):
            if not waiter.done():
                waiter.set_result(None)


def place_of(workload: Workload, node_host: str) -> Place | None:
    """What requests need to know of a workload; ``None`` for parts and work without routes."""
    spec, status = workload.spec, workload.status
    if spec.owner or not spec.routes:
        return None
    names = [route.name or MAIN for route in spec.routes]
    inference = spec.inference
    stopped = spec.suspend or spec.delete or status.phase in ("stopped", "failed", "succeeded")
    return Place(
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
        comes_by_itself=inference is not None and inference.min_replicas == 0 and not stopped,
        startup_seconds=0.0 if inference is None else inference.startup_seconds,
        at_once=0 if inference is None else inference.in_flight_per_replica,
        most_servers=0 if inference is None or stopped else inference.max_replicas,
        coming=status.endpoint is not None and status.endpoint.starting > 0,
    )


def _targets(workload: Workload, name: str, node_host: str) -> Iterator[Target]:
    status = workload.status
    if status.endpoint is not None:
        for target in status.endpoint.targets:
            if target.state == "ready" and name in target.ports:
                yield Target(target.uid, target.host or node_host, target.ports[name])
        return
    if status.phase != "running":
        return
    for task in status.tasks[:1]:
        if task.ended_at is None and name in task.ports:
            host = task.address or node_host
            yield Target(f"{workload.uid}-{task.attempt}", host, task.ports[name])
