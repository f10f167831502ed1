"""Our own work goes where its volumes can be reached.

A volume may lie on some nodes only; one that a single node may use (``ReadWriteOnce``) is there
for pods of the node where it is in use. What waits is told anew when either changes. A claim that
is missing or has no volume yet binds nobody: the engine sees to it when the work starts. So it is
with the claim of a project's checkpoints, which all its tasks use.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from carrel_scheduler.core.events import WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import Places
from carrel_schema.names import namespace_of
from carrel_schema.objects import Workload, WorkloadSpec

Claims = tuple[str, ...]


def asked_claims(spec: WorkloadSpec) -> Claims:
    """The claims that work asks for; on one machine its volumes are folders."""
    found = (source.partition("/")[0] for source, _ in spec.volumes)
    return tuple(dict.fromkeys(claim for claim in found if claim))


class OwnVolumes:
    """Who of our own work has volumes, and where these can be reached.

    Args:
        places: asked where volumes can be reached.
        storage: claim of every project that all its tasks use but workspaces; empty: none.
    """

    def __init__(self, places: Places, storage: str = "") -> None:
        self._storage = storage
        self._places = places
        self._claims: dict[str, Claims] = {}
        self._seen = (-1, -1)

    def claims_of(self, workload: Workload) -> Claims:
        """The claims that say where work may run."""
        found, storage = asked_claims(workload.spec), self._storage
        if not storage or storage in found or workload.spec.kind == "workspace":
            return found
        # One of many nodes is reached from all: nobody needs to follow what becomes of it.
        tied = self._places.is_of_one_node(namespace_of(workload.meta.project), storage)
        return (*found, storage) if tied else found

    def confined(self, event: WorkloadQueued, claims: Claims) -> WorkloadQueued:
        """The event with the nodes from which its volumes can be reached, as things are."""
        if not claims:
            return event
        nodes = self._places.reach(namespace_of(event.project), claims)
        gang = None if event.gang is None else _gang(event.gang, nodes)
        return replace(event, request=_request(event.request, nodes), gang=gang)

    def follow(self, uid: str, claims: Claims) -> None:
        """Work waits from now on: it is told of changes as long as it is there."""
        if claims:
            self._claims[uid] = claims

    def tell(self, state: State) -> None:
        """Have what waits and holds nothing ask for the nodes that its volumes are at now."""
        seen = self._places.volumes_version
        if seen == self._seen or not self._claims:
            return
        self._seen = seen
        for uid, claims in list(self._claims.items()):
            job = state.jobs.by_uid.get(uid)
            if job is None:
                del self._claims[uid]
                continue
            if not job.queued or job.rows or job.out:
                continue
            event = self.confined(job.spec, claims)
            if event != job.spec:
                state.apply(replace(event, evicted_at=job.evicted_at))


def _gang(group: Group, nodes: Collection[str] | None) -> Group:
    return replace(
        group,
        requests=_requests(group.requests, nodes),
        groups=tuple(_gang(one, nodes) for one in group.groups),
    )


def _requests(requests: Iterable[Request], nodes: Collection[str] | None) -> tuple[Request, ...]:
    return tuple(_request(one, nodes) for one in requests)


def _request(request: Request, nodes: Collection[str] | None) -> Request:
    found = None if nodes is None else frozenset(nodes)
    return replace(request, where=replace(request.where, nodes=found))
