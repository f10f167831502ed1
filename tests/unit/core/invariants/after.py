"""The state that a plan leaves behind, recounted from its single decisions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from carrel_scheduler.core.changes.workloads import footprint_of
from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.plan import Eviction, Plan
from carrel_scheduler.core.work.jobs import JobInfo

Places = dict[int, Footprint]


@dataclass(slots=True)
class After:
    """The state after a plan, counted from its decisions one by one.

    Attributes:
        now: when it was made.
        starts: uid -> index -> place, of bindings.
        stops: uid -> indices, of evictions; ``evictions``: uid -> the decision.
        holds: uid -> index -> place, of all promises afterwards.
        fresh: the part of ``holds`` that the plan promises anew.
    """

    state: Columns
    plan: Plan
    now: float
    starts: dict[str, Places] = field(default_factory=dict)
    stops: dict[str, tuple[int, ...]] = field(default_factory=dict)
    evictions: dict[str, Eviction] = field(default_factory=dict)
    holds: dict[str, Places] = field(default_factory=dict)
    fresh: dict[str, Places] = field(default_factory=dict)

    @classmethod
    def of(cls, state: Columns, plan: Plan, now: float) -> "After":
        """Count a plan. Raises ``InvalidEvent`` for places that cannot be."""
        after = cls(state, plan, now)
        after.holds = {uid: dict(job.reservation) for uid, job in state.reserved.items()}
        for one in plan.bindings:
            place = (one.node, one.devices, one.slots)
            after.starts.setdefault(one.uid, {})[one.index] = after._at(one.uid, one.index, place)
            after.holds.pop(one.uid, None)
        for eviction in plan.evictions:
            after.evictions[eviction.uid] = eviction
            stops = eviction.indices or tuple(state.job(eviction.uid).running())
            after.stops[eviction.uid] = (*after.stops.get(eviction.uid, ()), *stops)
        for nomination in plan.nominations:
            after.holds.pop(nomination.uid, None)
            after.fresh.pop(nomination.uid, None)
            if nomination.places:
                indices = nomination.indices or tuple(range(len(nomination.places)))
                found = {
                    index: after._at(nomination.uid, index, place)
                    for index, place in zip(indices, nomination.places, strict=True)
                }
                after.holds[nomination.uid] = after.fresh[nomination.uid] = found
        return after

    def _at(self, uid: str, index: int, place: tuple[str, tuple[int, ...], int]) -> Footprint:
        state = self.state
        cls = state.job(uid).shape.classes[index]
        return footprint_of(state.nodes, state.classes, cls, place)

    def new_places(self) -> Iterator[tuple[JobInfo, int, Footprint]]:
        """The tasks that start or get capacity reserved by the plan."""
        for places in (self.starts, self.fresh):
            for uid in sorted(places):
                for index, place in sorted(places[uid].items()):
                    yield self.state.job(uid), index, place

    def members(self, job: JobInfo) -> Mapping[int, int]:
        """Index -> node of the tasks of a job that run on, start or have room held."""
        stopped = self.stops.get(job.uid, ())
        tasks = self.state.tasks
        nodes = {i: int(tasks.node[job.rows[i]]) for i in job.running() if i not in stopped}
        for places in (self.starts.get(job.uid, {}), self.holds.get(job.uid, {})):
            nodes.update({index: place.node for index, place in places.items()})
        return nodes
