"""Pods of others in the one loop: heard of as news, queued in the core, placed by the same plans.

The API server is their record, nothing of them is in the ledger but rows of the past. A turn
gathers what is new (``hearing``), settles each team it concerns once (``settling``), decides
together with our own work, and leaves orders that are carried out after the turn. A place is taken
in the core the moment it is decided on; what the cluster then shows confirms it or takes it back.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from carrel_scheduler.core.events import Outcome, TaskPlaced
from carrel_scheduler.core.plan import Binding, Eviction, Nomination
from carrel_scheduler.core.reasons import Reason, ReasonClass
from carrel_scheduler.engines.core_state import purge
from carrel_scheduler.engines.external import DeviceHolder, Disruption, NodeHealth, PodCounts
from carrel_scheduler.engines.kubernetes.external_pods import settling, words
from carrel_scheduler.engines.kubernetes.external_pods.counting import holder_of, pod_counts
from carrel_scheduler.engines.kubernetes.external_pods.hearing import Hearing
from carrel_scheduler.engines.kubernetes.external_pods.orders import Nominate, Orders
from carrel_scheduler.engines.kubernetes.external_pods.teams import GuestPlace, Team
from carrel_schema.objects import Workload

HELD_SECONDS: Final = 5.0
"""So long a place is held for a pod that its controller has not made again yet. Nobody makes a pod
again that has no controller."""


class ExternalPodReconciler(Hearing):
    """See the module."""

    def reconcile(self, now: float) -> bool:
        """Bring the core in line with what was heard; returns whether time alone asks for more."""
        self.now = now
        if not self.ready:
            return False
        due = self._due(now)
        self._clear_leaving_nodes()
        if self.book.touched or self.nodes.changed:
            self.stirred()
        self._settle_nodes()
        for team in self.asking.again(self.book.teams.values()):
            self.book.touch(team)
            for slot in team:
                self._say_what_is_missing(slot)
        while self.book.touched:
            touched, self.book.touched = self.book.touched, {}
            for team in touched.values():
                with self.quarantine.guard("pod", team.uid) as guard:
                    settling.settle(self, team)
                if guard.failed:
                    self._set_aside(team)
        self._settle_nodes()
        self.own_volumes.tell(self.state)
        return due

    def _set_aside(self, team: Team) -> None:
        """Its pods wait outside or count as strangers' until they change."""
        purge(self.state, team.uid)
        team.queued = False
        for slot in tuple(team):
            slot.place, slot.leaving = None, False
            self.book.close(team, slot)
            if slot.member is not None and slot.member.node:
                self.nodes.stranger(slot.member.pod)

    def _settle_nodes(self) -> None:
        if self.nodes.changed:
            for facts in self.nodes.settle(self.state, self.quarantine):
                self.facts(facts)

    @property
    def next_due(self) -> float | None:
        """When something falls due by itself."""
        timer = self.timers[0][0] if self.timers else None
        due = (timer, self.borrowing.due_at(self) if self.ready else None)
        return min((when for when in due if when is not None), default=None)

    def _due(self, now: float) -> bool:
        found = False
        while self.timers and self.timers[0][0] <= now:
            team = heapq.heappop(self.timers)[2]
            found = True
            if self.book.teams.get(team.uid) is team:
                self.book.touch(team)
        return found

    def _clear_leaving_nodes(self) -> None:
        """A node can leave the core once nothing is placed there."""
        for name in self.nodes.leaving(self.state) if self.nodes.changed else ():
            for team in list(self.book.teams.values()):
                for slot in team:
                    if slot.place is not None and slot.place.node == name:
                        settling.release(self, team, slot, Outcome.AGAIN)
                        self.book.touch(team)

    # What was decided

    def place(self, binding: Binding) -> bool:
        """Take a place that was decided on; returns whether it was for a guest."""
        team = self.book.teams.get(binding.uid)
        if team is None:
            return False
        slot = team.at(binding.index)
        self.stirred()
        self.state.apply(
            TaskPlaced(team.uid, binding.index, binding.node, binding.devices, self.now)
        )
        slot.place, slot.since = GuestPlace(binding.node, binding.devices), self.now
        self.row(team, slot, "running")
        if slot not in team.slots:
            settling.release(self, team, slot, Outcome.GONE)
        elif slot.member is None:
            slot.vacant_until = self.now + (HELD_SECONDS if team.grouping.controlled else 0.0)
            self.wake(slot.vacant_until, team)
        elif not self.asking.fits(slot, binding.node):
            settling.release(self, team, slot, Outcome.AGAIN)
            self.book.touch(team)
        else:
            settling.order(self, team, slot)
        return True

    def evict(self, eviction: Eviction) -> bool:
        """Have pods give way; returns whether they are guests."""
        team = self.book.teams.get(eviction.uid)
        if team is None:
            return False
        slots = [team.at(index) for index in eviction.indices] or team.slots
        told = words.evicted(eviction.reason, team.grouping.project)
        for slot in tuple(slots):
            self.give_way(team, slot, *told)
        return True

    def nominate(self, nomination: Nomination) -> bool:
        """Room is being freed for a guest; returns whether it was one."""
        team = self.book.teams.get(nomination.uid)
        if team is None:
            return False
        indices = nomination.indices or range(len(nomination.places))
        for index, place in zip(indices, nomination.places, strict=True):
            one = team.at(index).member
            if one is not None and not one.node:
                self.orders.nominations.append(Nominate(one.ref, place[0]))
        return True

    def explain(self, uid: str, reason: Reason) -> bool:
        """Say why a team waits; returns whether it was a guest that did not know yet."""
        team = self.book.teams.get(uid)
        if team is None:
            return False
        if reason.cls is ReasonClass.STARTING:
            return False  # its binding says so
        token, message = team.why = words.waits(reason, team.grouping.project)
        self.stirred()
        told = False
        for slot in team:
            if slot.member is not None and slot.place is None and not slot.waits:
                told |= self.say(slot.member, token, message)
        return told

    def act(self) -> None:
        """Have carried out what was decided."""
        if self.ready:
            self.borrowing.look(self)
        if self.orders:
            orders, self.orders = self.orders, Orders()
            self.hands(orders)

    def clock_set_back(self, seconds: float) -> None:
        """Move all timers with a clock that was set back."""
        self.timers = [(when - seconds, number, team) for when, number, team in self.timers]
        self.borrowing.mend(seconds)
        for team in self.book.teams.values():
            team.not_before -= seconds
            for slot in team:
                if slot.vacant_until is not None:
                    slot.vacant_until -= seconds

    # Views: see the contract

    def counts(self) -> PodCounts | None:
        """Figures, once the loop may turn."""
        return pod_counts(self.book.teams.values(), self.tried) if self.ready else None

    def holder(
        self, uid: str, gpu_milli: int, *, releasing: bool, color_of: Callable[[str], int | None]
    ) -> DeviceHolder | None:
        """A team as the holder of a device."""
        team = self.book.teams.get(uid)
        if team is None:
            return None
        color = color_of(team.grouping.project)
        return holder_of(team, gpu_milli, releasing=releasing, color=color)

    def node_health(self, name: str) -> NodeHealth:
        """The health of a node."""
        return self.nodes.health(name)

    def changed_nodes(self) -> Mapping[str, NodeHealth]:
        """The nodes whose health changed since the last call, and new ones."""
        return self.nodes.health_changes()

    def disruptions(self) -> Sequence[Disruption]:
        """Disruptions of workloads' tasks since the last call."""
        return self.own.disruptions()

    def is_short_of_gpus(self, name: str) -> bool:
        """Whether a node offers fewer GPUs than are in use there."""
        return self.nodes.short_of_gpus(self.state, name)

    def node_groups(self) -> frozenset[str]:
        """Names of all node groups."""
        return self.places.groups.names()

    def open_node_groups(self, project: str, *, interactive: bool) -> frozenset[str] | None:
        """The node groups that a project's work may use."""
        return self.places.groups.open_to(project, interactive=interactive)

    def claims_of(self, workload: Workload) -> tuple[str, ...]:
        """The volume claims that constrain where a workload may run."""
        return self.own_volumes.claims_of(workload)

    def follow_volumes(self, uid: str, claims: tuple[str, ...]) -> None:
        """Update the constraints of a queued workload when its volumes change."""
        self.own_volumes.follow(uid, claims)
