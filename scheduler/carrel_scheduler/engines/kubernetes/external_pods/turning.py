"""The turn that teams are settled in: what is at hand, and what is left behind to be done."""

import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from carrel_scheduler.core.events import Outcome, WorkloadQueued
from carrel_scheduler.engines.external import ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods import rows, settling
from carrel_scheduler.engines.kubernetes.external_pods.asking import Asking, asks_for
from carrel_scheduler.engines.kubernetes.external_pods.book import GuestBook
from carrel_scheduler.engines.kubernetes.external_pods.borrowing import Borrowing
from carrel_scheduler.engines.kubernetes.external_pods.confining import confined
from carrel_scheduler.engines.kubernetes.external_pods.counting import EVICTED, UNSCHEDULABLE
from carrel_scheduler.engines.kubernetes.external_pods.members import Member
from carrel_scheduler.engines.kubernetes.external_pods.nodes import Nodes
from carrel_scheduler.engines.kubernetes.external_pods.orders import Bind, Evict, Orders, Tell
from carrel_scheduler.engines.kubernetes.external_pods.own_pods import OwnPods
from carrel_scheduler.engines.kubernetes.external_pods.own_volumes import Claims, OwnVolumes
from carrel_scheduler.engines.kubernetes.external_pods.teams import GuestPlace, Slot, Team
from carrel_scheduler.engines.kubernetes.pods import labels
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import Places
from carrel_scheduler.quarantine import Quarantine

log = logging.getLogger(__name__)

STALE_SECONDS: Final = 60.0
SAME_TOLD_SECONDS: Final = 30.0


def _nobody() -> None:
    """Nobody wants to hear that something changed."""


def _no_hands(orders: Orders) -> None:
    raise RuntimeError(f"nobody carries out {orders}")


class Turning:
    """See the module.

    Args:
        access: to the reconciler.
        stale_grace_s: so long a gang may run with too few of its pods.
        places: what decides where pods may run beside the core.
        storage_claim: claim of every project that all its tasks use but workspaces; empty: none.
    """

    def __init__(
        self,
        access: ReconcilerAccess,
        *,
        stale_grace_s: float = STALE_SECONDS,
        places: Places | None = None,
        storage_claim: str = "",
    ) -> None:
        self.state = access.state
        self.book = GuestBook()
        self.own = OwnPods()
        self.orders = Orders()
        self.places = places or Places()
        self.nodes = Nodes(self.places.groups, access.withheld)
        self.asking = Asking(self.places)
        self.own_volumes = OwnVolumes(self.places, storage_claim)
        self.quarantine = access.quarantine or Quarantine(lambda: self.now)
        self.draining = access.draining
        self.now = 0.0
        self.epoch = 0
        self.ready = False
        self.stale_grace_s = stale_grace_s
        self.stirred: Callable[[], None] = _nobody
        self.hands: Callable[[Orders], None] = _no_hands
        self.tried: Counter[str] = Counter()
        self.told: dict[str, tuple[str, float]] = {}
        self.facts, self._queued = access.node_changed, access.queued
        self.borrowing = Borrowing()
        self.timers: list[tuple[float, int, Team]] = []
        self.numbers = itertools.count()

    def row(self, team: Team, slot: Slot, phase: str) -> None:
        """Write down what a slot holds from now on."""
        self.orders.rows.append(rows.row(team, slot, phase, now=self.now, epoch=self.epoch))

    def is_counted(self, slot: Slot) -> bool:
        """Whether the pod of a slot asks for no more than its place was held for."""
        return slot.member is not None and asks_for(slot.member.pod, slot.counted)

    def count_anew(self, team: Team, slot: Slot) -> None:
        """A pod asks for something else than was counted: it waits for room again.

        The core learns what a gang asks for only while the gang holds nothing: one that grew while
        others run goes by itself.
        """
        settling.release(self, team, slot, Outcome.AGAIN)
        if not team.loose and team.holding:
            until = self.now + settling.RETURN_SECONDS
            self.wake(until, team)
            home = self.book.part_from_gang(team, slot, until)
            if home is not None:
                self.asking.read(*home)
        else:
            team.reshaped = True
            self.asking.read(team, slot)
        self.book.touch(team)

    def order_binding(self, member: Member, grouping: Grouping, place: GuestPlace) -> None:
        """Have a pod bound; from now on others see it there."""
        self.places.put_pod(member.pod, place.node)
        first = self.places.decide(member.pod, place.node)
        whom = labels.counted_annotation(grouping)
        self.orders.binds.append(
            Bind(member.ref, place.node, place.devices, member.pod, first, whom)
        )

    def left(self, slot: Slot) -> None:
        """A slot has no place any more."""
        one = slot.member
        if one is not None and not one.node:
            self.places.drop_pod(one.ref.uid)

    def wake(self, when: float, team: Team) -> None:
        """Settle the team again at that time."""
        heapq.heappush(self.timers, (when, next(self.numbers), team))

    def queued(self, team: Team) -> None:
        """The team waits from now on."""
        self._queued(team.uid)

    def no_room(self, team: Team, slot: Slot) -> None:
        """A bound pod has no place in the core: it counts as a stranger."""
        one = slot.member
        self.book.close(team, slot)
        if one is not None:
            self.nodes.stranger(one.pod)

    def constrained(self, event: WorkloadQueued, claims: Claims = ()) -> WorkloadQueued:
        """Our own work with the nodes that are open to it, and where its volumes are."""
        return self.own_volumes.confined(confined(event, self.places.groups), claims)

    def give_way(self, team: Team, slot: Slot, reason: str, message: str) -> None:
        """Have the pod of a slot give its place up; a place without a pod is free at once."""
        if slot.place is None or slot.leaving:
            return
        settling.give_up(self, team, slot)
        slot.evicted = True
        if slot.member is None:
            settling.release(self, team, slot, Outcome.AGAIN)
            return
        one = slot.member
        self.tried[EVICTED] += 1
        self.orders.evictions.append(Evict(one.ref, reason, message, one.grace_seconds))

    def say(self, member: Member, token: str, message: str) -> bool:
        """Tell a waiting pod why it waits; returns whether it did not know.

        The same kind of reason with other amounts is told again after a while only.
        """
        before, at = self.told.get(member.ref.uid, ("", 0.0))
        again = before == token and 0.0 <= self.now - at < SAME_TOLD_SECONDS
        if member.told == message or again:
            return False
        self.told[member.ref.uid] = (token, self.now)
        self.tried[UNSCHEDULABLE] += 1
        self.orders.tells.append(Tell(member.ref, token, message))
        return True
