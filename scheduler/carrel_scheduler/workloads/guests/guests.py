"""Pods of others in the one loop: heard of as news, queued in the core, placed by the same plans.

The API server is their record, nothing of them is in the ledger but rows of the past. A turn
gathers what is new (``hearing``), settles each team it concerns once (``settling``), decides
together with our own work, and leaves orders that are carried out after the turn. A place is taken
in the core the moment it is decided on; what the cluster then shows confirms it or takes it back.
"""

import heapq
from typing import Final

from carrel_scheduler.core.events import Outcome, TaskPlaced
from carrel_scheduler.core.plan import Binding, Eviction, Nomination
from carrel_scheduler.core.reasons import Reason, ReasonClass
from carrel_scheduler.workloads.faults.purging import purge
from carrel_scheduler.workloads.guests import settling, words
from carrel_scheduler.workloads.guests.hearing import Hearing
from carrel_scheduler.workloads.guests.orders import Nominate, Orders
from carrel_scheduler.workloads.guests.teams import GuestPlace, Team

HELD_SECONDS: Final = 5.0
"""So long a place is held for a pod that its controller has not made again yet. Nobody makes a pod
again that has no controller."""


class Guests(Hearing):
    """See the module."""

    def settle(self, now: float) -> bool:
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

    def take(self, binding: Binding) -> bool:
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

    def tell(self, uid: str, reason: Reason) -> bool:
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
