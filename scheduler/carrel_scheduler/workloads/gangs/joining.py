"""Whether the members of a gang find each other: one that never comes ends the gang, by name.

A member has met the others when its process listens at the gang's rendezvous or is connected to it.
A gang whose first member listens there uses it, so everybody has to come within the time that was
given for that, counted from when all of them ran. A gang that meets elsewhere is left alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.gangs import membership, shape
from carrel_scheduler.workloads.lifecycle import reasons
from carrel_scheduler.workloads.reconcile.events import MembersMet
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges

if TYPE_CHECKING:
    from carrel_scheduler.workloads.reconcile.reconciler import Reconciler

LOOK_SECONDS: Final = 1.0

MetAt = Callable[[CachedWorkload, int], Awaitable[frozenset[int]]]
"""From a gang and a port to the indices of those of its members who have met there."""


def expect_all(changes: PassChanges, entry: CachedWorkload) -> None:
    """All members run: from now on they are expected to meet."""
    spec = entry.workload.spec
    # Of an MPI gang, who meets when is the business of its launcher.
    expected = shape.is_gang(spec) and not shape.is_mpi(spec) and len(entry.alive) > 1
    if expected and entry.meet_until is None:
        entry.meet_until = changes.now + shape.rendezvous_of(spec).join_timeout_seconds


def met(entry: CachedWorkload, members: Collection[int]) -> None:
    """These were seen to have met."""
    entry.joined.update(members)
    if entry.alive <= entry.joined:
        entry.meet_until = None


def due(changes: PassChanges, entry: CachedWorkload) -> None:
    """End a gang whose time for meeting is over and that waits for somebody in vain."""
    if entry.meet_until is None or entry.meet_until > changes.now:
        return
    entry.meet_until = None
    missing = sorted(entry.alive - entry.joined - entry.leaving)
    if entry.workload.status.phase == "running" and 0 in entry.joined and missing:
        waited = shape.rendezvous_of(entry.workload.spec).join_timeout_seconds
        how = reasons.never_joined(missing, shape.port_of(entry.workload), waited)
        membership.lose(changes, entry, how)


async def pump_meetings(
    met_at: MetAt, loop: "Reconciler", look_seconds: float = LOOK_SECONDS
) -> None:
    """Look who has met, for as long as somebody is expected."""
    while True:
        for entry in tuple(loop.cache.holding):
            if entry.meet_until is None:
                continue
            with loop.quarantine.guard("task", f"meeting {entry.uid}"):
                seen = await met_at(entry, shape.port_of(entry.workload))
                if seen - entry.joined:
                    loop.enqueue(MembersMet(entry.uid, seen))
        await asyncio.sleep(look_seconds)
