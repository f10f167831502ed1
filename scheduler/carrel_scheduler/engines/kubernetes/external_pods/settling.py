"""Bringing the core in line with the pods of one team.

Everything that happened to a team in a turn is looked at once, in this order: what is over gives
its room back, what is bound has its place, and a team that holds nothing asks for room if enough of
its pods are there.
"""

import logging
from typing import Final, Protocol

from carrel_scheduler.core.events import (
    Outcome,
    TaskReleased,
    TaskReleasing,
    TaskStuck,
    WorkloadGone,
)
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.contract import LATE_SECONDS
from carrel_scheduler.engines.kubernetes.external_pods import room
from carrel_scheduler.engines.kubernetes.external_pods.book import GuestBook
from carrel_scheduler.engines.kubernetes.external_pods.members import Member
from carrel_scheduler.engines.kubernetes.external_pods.queueing import queued_event
from carrel_scheduler.engines.kubernetes.external_pods.teams import GuestPlace, Slot, Team
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping

log = logging.getLogger(__name__)

RETURN_SECONDS: Final = 60.0
"""So long the next pod of an evicted one is awaited."""


class Turn(Protocol):
    """What settling needs of the turn it happens in."""

    now: float
    state: State
    book: GuestBook
    stale_grace_s: float

    def is_counted(self, slot: Slot) -> bool:
        """Whether the pod of a slot asks for no more than its place was held for."""
        ...

    def count_anew(self, team: Team, slot: Slot) -> None:
        """A pod asks for something else than was counted: it waits for room again."""
        ...

    def order_binding(self, member: Member, grouping: Grouping, place: GuestPlace) -> None:
        """Have a pod bound, counted for a project and user."""
        ...

    def row(self, team: Team, slot: Slot, phase: str) -> None:
        """Write down that a slot holds its place from now on, or none any more."""
        ...

    def left(self, slot: Slot) -> None:
        """A slot has no place any more."""
        ...

    def wake(self, when: float, team: Team) -> None:
        """Settle the team again at that time."""
        ...

    def queued(self, team: Team) -> None:
        """The team waits from now on."""
        ...

    def no_room(self, team: Team, slot: Slot) -> None:
        """A bound pod has no place in the core: it is to count as a stranger."""
        ...


def settle(turn: Turn, team: Team) -> None:
    """See the module."""
    for slot in team:
        _end(turn, team, slot)
    for slot in team:
        _leave(turn, team, slot)
    if team.uid not in turn.book.teams:
        _dequeue(turn, team)
        return
    if not team.holding:
        _ask(turn, team)
    if team.queued:
        for slot in team:
            _found(turn, team, slot)


def release(turn: Turn, team: Team, slot: Slot, outcome: Outcome) -> None:
    """The room of a slot is free."""
    if slot.place is None:
        return
    turn.state.apply(TaskReleased(team.uid, slot.index, outcome, turn.now))
    turn.row(team, slot, "pending" if outcome is Outcome.AGAIN else "ended")
    turn.left(slot)
    slot.place, slot.leaving, slot.sent, slot.gone_by = None, False, False, None
    if outcome is Outcome.AGAIN:
        team.evicted_at = turn.now
    else:
        team.reshaped = True
    if not team.loose and turn.stale_grace_s >= 0:
        turn.wake(turn.now + turn.stale_grace_s, team)


def give_up(turn: Turn, team: Team, slot: Slot) -> None:
    """The core is told that the room of a slot is being freed."""
    if slot.place is not None and not slot.leaving:
        turn.state.apply(TaskReleasing(team.uid, slot.index))
        slot.leaving = True
        grace_s = slot.member.grace_seconds if slot.member is not None else 0.0
        slot.gone_by = turn.now + grace_s + LATE_SECONDS
        turn.wake(slot.gone_by, team)


def order(turn: Turn, team: Team, slot: Slot) -> None:
    """Have the pod of a slot bound to the place that the slot holds."""
    if slot.member is None or slot.place is None or slot.sent or slot.member.node:
        return
    if not turn.is_counted(slot):
        turn.count_anew(team, slot)
        return
    slot.sent = True
    turn.order_binding(slot.member, team.grouping, slot.place)


def _end(turn: Turn, team: Team, slot: Slot) -> None:
    """A slot whose pod is over gives its room back; it waits for the next one or closes."""
    one = slot.member
    if one is not None and one.outcome is None and not (one.ending and not one.node):
        return
    if one is None and slot.vacant_until is not None:
        if turn.now >= slot.vacant_until:
            _close(turn, team, slot, Outcome.GONE)
        return
    outcome = one.outcome if one is not None else None
    if outcome is Outcome.SUCCEEDED:
        _close(turn, team, slot, outcome)
    elif _comes_again(team, slot):
        slot.evicted = False
        release(turn, team, slot, Outcome.AGAIN)
        if one is not None:
            turn.book.lose(one.ref.uid)
        if team.loose and turn.book.succeed(team, slot):
            return
        until = turn.now + RETURN_SECONDS
        turn.book.vacate(team, slot, until)
        turn.wake(until, team)
    else:
        _close(turn, team, slot, outcome or Outcome.GONE)
    slot.evicted = False


def _comes_again(team: Team, slot: Slot) -> bool:
    """Whether a controller will make the next pod of a slot that had a place."""
    if not team.grouping.controlled or not team.queued:
        return False
    return slot.evicted or (not team.loose and slot.place is not None)


def _close(turn: Turn, team: Team, slot: Slot, outcome: Outcome) -> None:
    release(turn, team, slot, outcome)
    turn.book.close(team, slot)
    team.reshaped = True


def _leave(turn: Turn, team: Team, slot: Slot) -> None:
    if slot.member is not None and slot.member.ending:
        give_up(turn, team, slot)
    if slot.leaving and slot.gone_by is not None and slot.gone_by <= turn.now:
        turn.state.apply(TaskStuck(team.uid, slot.index))
        slot.gone_by = None
        log.warning("a pod of %s was told to stop and is still there", team.uid)


def _ask(turn: Turn, team: Team) -> None:
    """A team that holds nothing: in the core's queue if it can start, else not."""
    unknown = any(
        slot.member is not None
        and slot.member.node
        and not room.knows_node(turn.state, slot.member.node)
        for slot in team.slots
    )
    bound = any(slot.member is not None and slot.member.node for slot in team.slots)
    if bound and not unknown and not team.complete():
        _await_the_missing(turn, team)
    elif unknown or not team.complete() or turn.now < team.not_before:
        _dequeue(turn, team)
        return
    wanted = team.asking()
    if team.queued and not team.reshaped and len(wanted) == len(team.asked):
        return
    _dequeue(turn, team)
    for index, slot in enumerate(wanted):
        slot.index, slot.counted = index, slot.request
    team.asked, team.reshaped = tuple(wanted), False
    turn.state.apply(queued_event(team, wanted, turn.stale_grace_s))
    team.queued = True
    turn.queued(team)


def _await_the_missing(turn: Turn, team: Team) -> None:
    """A gang that is found running in part: the core is to see that some of it is missing."""
    for role in team.grouping.roles:
        there = [slot for slot in team.slots if slot.role == role.name]
        alike = next(iter(there or team.slots)).request
        for _ in range(role.least - len(there)):
            until = turn.now + RETURN_SECONDS
            team.slots.append(Slot(role.name, vacant_until=until, request=alike))
            turn.wake(until, team)
            team.reshaped = True


def _dequeue(turn: Turn, team: Team) -> None:
    if team.queued:
        turn.state.apply(WorkloadGone(team.uid))
        team.queued = False


def _found(turn: Turn, team: Team, slot: Slot) -> None:
    """A pod is bound: as ordered, or by somebody else; one that is not takes a held place."""
    one = slot.member
    if one is None:
        return
    if not one.node:
        order(turn, team, slot)
        return
    if slot.place is not None and slot.place.node == one.node:
        return
    if slot not in team.asked:
        turn.no_room(team, slot)
        return
    if slot.place is not None:
        release(turn, team, slot, Outcome.AGAIN)
    at = min(one.started_at or turn.now, turn.now)
    devices = room.place_found(turn.state, team.uid, slot.index, one, slot.request, at)
    if devices is None:
        log.warning("no room is known on %s for pod %s, which is there", one.node, one.ref.name)
        turn.no_room(team, slot)
        return
    slot.place, slot.since = GuestPlace(one.node, devices), turn.now
    turn.row(team, slot, "running")
    _leave(turn, team, slot)
