"""One cycle's working memory: overlays of room and standings, and the plan as it grows.

Actions read the state, try moves on the overlays and commit them here; nothing outside changes.
"""

import numpy as np

from carrel_scheduler.core.barriers import barrier
from carrel_scheduler.core.layers import Bools, Footprint
from carrel_scheduler.core.order import job_key
from carrel_scheduler.core.plan import Binding, Eviction, Nomination
from carrel_scheduler.core.projects import Triple
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.room import Room
from carrel_scheduler.core.standings import RESOURCE_NAMES, RESOURCES, Standing, standings
from carrel_scheduler.core.state import State
from carrel_scheduler.core.tasks import NOBODY
from carrel_scheduler.core.workloads import Record


class Cycle:
    """What one call of ``decide`` works on.

    Attributes:
        queues: project slot -> all its waiting workloads in order; the projects by name.
        bound: uid -> places of workloads that start now.
        held: uid -> workload whose places are held while room is being freed.
        victims: uid -> the workloads evicted for it in this cycle.
        evicted: uids evicted in this cycle.
        evictable: (T,) project slot of each task that may still be evicted, else -1.
        changed: slots of projects whose work was evicted and not yet taken note of.
        touched: the nodes of all evictions and promises, in the order of the commitments.
    """

    def __init__(self, state: State, now: float) -> None:
        self.state, self.now = state, now
        self.room = Room(state.nodes)
        self.standings = standings(state.nodes, state.project_columns)
        self.queues = _queues(state)
        self.bound: dict[str, tuple[Footprint, ...]] = {}
        self.held: dict[str, Record] = {}
        self.victims: dict[str, tuple[Record, ...]] = {}
        self.evicted: set[str] = set()
        self.evictable = state.tasks.victim.copy()
        self.changed: set[int] = set()
        self.touched: list[int] = []
        self.bindings: list[Binding] = []
        self.evictions: list[Eviction] = []
        self.nominations: dict[str, Nomination] = {}
        self.promises: dict[str, tuple[Footprint, ...]] = {}
        self._eligible: dict[frozenset[str] | None, Bools] = {None: state.nodes.schedulable}

    # Looking

    def standing(self, record: Record) -> Standing:
        """How the workload's project stands."""
        found = self.standings[record.project]
        if found is None:
            raise KeyError(record.spec.project)
        return found

    def in_name_order(self) -> list[Standing]:
        """The standings of all projects by name."""
        found = [standing for standing in self.standings if standing is not None]
        return sorted(found, key=lambda standing: standing.rule.name)

    def barred(self, record: Record) -> bool:
        """Whether a limit or quota keeps it from starting now."""
        standing = self.standing(record)
        return barrier(standing, record.demand, preemptible=record.spec.preemptible) is not None

    def eligible(self, names: frozenset[str] | None) -> Bools:
        """(N,) the schedulable nodes among ``names``; ``None`` means all."""
        mask = self._eligible.get(names)
        if mask is None:
            nodes = self.state.nodes
            mask = np.zeros(len(nodes.schedulable), np.bool_)
            mask[[nodes.slots[name] for name in names or () if name in nodes.slots]] = True
            mask &= nodes.schedulable
            self._eligible[names] = mask
        return mask

    def open(self, record: Record) -> bool:
        """Whether it still looks for an answer."""
        return record.spec.uid not in self.bound and record.spec.uid not in self.held

    def pending(self) -> dict[int, list[Record]]:
        """The queues without those that have their answer."""
        left = {slot: [r for r in queue if self.open(r)] for slot, queue in self.queues.items()}
        return {slot: queue for slot, queue in left.items() if queue}

    # Moves that are tried and undone

    def count_out(self, record: Record) -> None:
        """Count a running workload's amounts out of its project."""
        preemptible = record.spec.preemptible
        self.standing(record).add(self.held_by(record), preemptible=preemptible, sign=-1)

    def count_in(self, record: Record) -> None:
        """The opposite of ``count_out``."""
        self.standing(record).add(self.held_by(record), preemptible=record.spec.preemptible)

    def keep(self, record: Record) -> None:
        """A victim whose room was cleared stays after all."""
        for row in record.rows.values():
            self.room.keep(self.state.tasks.footprint(row))
        self.count_in(record)

    def held_by(self, record: Record) -> Triple:
        """What a running workload's placed tasks hold."""
        tasks, (gpu, cpu, memory) = len(record.rows), record.spec.request.as_tuple()
        return gpu * tasks, cpu * tasks, memory * tasks

    # Commitments

    def bind(self, record: Record, places: tuple[Footprint, ...]) -> None:
        """It starts now; its promise must have been lifted."""
        names, uid = self.state.nodes.names, record.spec.uid
        for index, place in enumerate(places):
            self.room.bind(place)
            self.bindings.append(Binding(uid, index, names[place.node], place.devices))
        self.standing(record).add(record.demand, preemptible=record.spec.preemptible)
        self.bound[uid] = places
        self.nominations.pop(uid, None)
        self.promises.pop(uid, None)
        self.held.pop(uid, None)

    def hold(self, record: Record, places: tuple[Footprint, ...]) -> None:
        """Its places are held until they are free."""
        uid = record.spec.uid
        self.room.promise(places)
        self.touched += [place.node for place in places]
        self.standing(record).add(record.demand, preemptible=record.spec.preemptible)
        self.held[uid] = record
        self.promises[uid] = places
        if places != record.promise:
            self.nominations[uid] = Nomination(uid, self.named(places))

    def lift(self, record: Record) -> tuple[Footprint, ...]:
        """Take its held places back; returns them."""
        uid = record.spec.uid
        places = self.promises.pop(uid, record.promise)
        self.room.lift(places)
        preemptible = record.spec.preemptible
        self.standing(record).add(record.demand, preemptible=preemptible, sign=-1)
        self.held.pop(uid, None)
        self.nominations.pop(uid, None)
        return places

    def end_promise(self, record: Record) -> None:
        """Tell that places are not held for it any more; they must have been lifted."""
        self.nominations[record.spec.uid] = Nomination(record.spec.uid, ())

    def changed_promises(self) -> tuple[Nomination, ...]:
        """The ends of all promises that change, then the new ones."""
        changed = [n for n in self.nominations.values() if n.places]
        ends = []
        for uid in self.nominations:
            record = self.state.records.get(uid)
            if record is not None and record.promise:
                ends.append(Nomination(uid, ()))
        return (*ends, *changed)

    def give_way(self, victims: tuple[Record, ...], claimer: Record, token: Token) -> None:
        """Evictions, whose room is cleared already, become part of the plan.

        The claimer must not be counted yet. ``bound`` of the reason is its project's quota when
        it claims within it, 0 when it claims more.
        """
        reason = self._eviction_reason(claimer, token)
        for victim in victims:
            self.evictions.append(Eviction(victim.spec.uid, reason))
            self.evicted.add(victim.spec.uid)
            rows = list(victim.rows.values())
            self.evictable[rows] = NOBODY
            self.touched += self.state.tasks.node[rows].tolist()
            self.changed.add(victim.project)
        self.victims[claimer.spec.uid] = victims

    def _eviction_reason(self, claimer: Record, token: Token) -> Reason:
        standing, spec = self.standing(claimer), claimer.spec
        asked = next((r for r in RESOURCES if claimer.demand[r]), 0)
        guaranteed = standing.within(standing.quota, claimer.demand)
        return Reason(
            ReasonClass.EVICTED,
            token,
            resource=RESOURCE_NAMES[asked],
            requested=claimer.demand[asked],
            bound=standing.quota[asked] if guaranteed else 0,
            project=spec.project,
            workload=spec.name,
            workload_uid=spec.uid,
        )

    def named(self, places: tuple[Footprint, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Places as they leave the core."""
        names = self.state.nodes.names
        return tuple((names[place.node], place.devices) for place in places)


def _queues(state: State) -> dict[int, list[Record]]:
    waiting: dict[str, list[Record]] = {}
    for record in state.waiting_records():
        waiting.setdefault(record.spec.project, []).append(record)
    for queue in waiting.values():
        queue.sort(key=job_key)
    return {waiting[name][0].project: waiting[name] for name in sorted(waiting)}
