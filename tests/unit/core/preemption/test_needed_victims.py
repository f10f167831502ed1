"""Whoever gives way is needed for it, and what excuses a plan in which somebody seems not to be."""

import pytest

from carrel_scheduler.core.events import CapacityReserved, Event, TaskPlaced
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.plan import Nomination
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.reasons import Token
from unit.core.said_plans import complaints, full, hold, stop
from unit.core.situations import asking, node, queue, running, training

NEEDLESS = ["victims_are_needed"]


@pytest.mark.parametrize("token", [Token.RECLAIMED, Token.PREEMPTED])
def test_nobody_gives_way_for_what_there_is_room_for(token: Token) -> None:
    preemptor, needless = "b", ["victims_are_needed"]
    project = preemptor if token is Token.PREEMPTED else "a"
    evictions = [stop("v", token, "w")]
    events = [*full(project=project), queue("b", 4), node("n2", 2)]
    assert complaints(events, evictions=evictions, nominations=[hold("w", "n1", 0, 1)]) == []
    assert complaints(events, evictions=evictions, nominations=[hold("w", "n2", 0, 1)]) == needless
    moved = [stop("v", token, "w", moved=True)]
    places = [hold("w", "n1", 0, 1), hold("v", "n2", 0, 1)]
    assert complaints(events, evictions=moved, nominations=places) == []
    reserved = [*events, CapacityReserved("w", (("n2", (0, 1), 0),), (0,))]
    kept = complaints(reserved, evictions=evictions, nominations=[])
    assert "victims_are_needed" not in kept
    if token is Token.PREEMPTED:  # its leaving may be what the claim on others stands on
        events += [queue("b", 3)]
        assert complaints(events, evictions=evictions, nominations=[hold("w", "n2", 0, 1)]) == []


def test_a_limit_makes_a_victim_needed_wherever_it_lies() -> None:
    events = [
        node("n1", 2), node("n2", 2),
        queue("top", 2, limit=2), queue("a", 0, parent="top"), queue("b", 2, parent="top"),
        *running(training("v", "a", 2), "n1", 0, 1), training("w", "b", 2),
    ]  # fmt: skip
    evictions, places = [stop("v", Token.RECLAIMED, "w")], [hold("w", "n2", 0, 1)]
    assert complaints(events, evictions=evictions, nominations=places) == []
    events += [queue("top", 2, limit=4)]
    found = complaints(events, evictions=evictions, nominations=places)
    assert found == ["victims_are_needed"]


def at_the_limit(*more: Event) -> list[Event]:
    """A department holds three GPUs of three, `v` one and `x` two of them; two of `b` wait."""
    return [
        node("n1", 4), node("n2", 2),
        queue("top", 3, limit=3), queue("a", 0, parent="top"), queue("b", 3, parent="top"),
        *running(training("v", "a"), "n1", 0), *running(training("x", "a", 2), "n1", 1, 2),
        training("w", "b"), training("u", "b"),
        *more,
    ]  # fmt: skip


@pytest.mark.parametrize(("first", "expected"), [("v", []), ("x", NEEDLESS)])
def test_who_gave_way_to_an_earlier_claim_knew_of_no_later_one(
    first: str, expected: list[str]
) -> None:
    """`x` gives more than `u` takes of the limit, so `v` could stay, had `u` come first."""
    evictions = [stop("v", Token.RECLAIMED, "w"), stop("x", Token.RECLAIMED, "u")]
    if first == "x":
        evictions.reverse()
    places = [hold("w", "n2", 0), hold("u", "n2", 1)]
    assert complaints(at_the_limit(), evictions=evictions, nominations=places) == expected


def test_what_is_ended_for_no_claim_is_so_after_all_claims() -> None:
    """`y` leaves its node, which is drained: the limit has room then, but had not before."""
    drained = [
        node("n3", 1, draining=True), queue("top", 4, limit=4),
        *running(training("y", "a"), "n3", 0),
    ]  # fmt: skip
    evictions = [stop("v", Token.RECLAIMED, "w"), stop("y", Token.NODE_DRAINED)]
    events = at_the_limit(*drained)
    assert complaints(events, evictions=evictions, nominations=[hold("w", "n2", 0)]) == []


@pytest.mark.parametrize(("share", "expected"), [(NO_BOUND, NEEDLESS), (3000, [])])
def test_who_leaves_its_queue_may_be_needed_for_its_share(share: int, expected: list[str]) -> None:
    """Four GPUs would be more than the fair share of `b` allows."""
    events = [*full(project="b"), queue("b", 4), node("n2", 2)]
    found = complaints(
        events,
        evictions=[stop("v", Token.PREEMPTED, "w")],
        nominations=[hold("w", "n2", 0, 1)],
        fair_share={"a": NO_BOUND, "b": share},
    )
    assert found == expected


def test_others_may_get_the_room_that_is_left() -> None:
    events = [*full(), queue("b", 4), node("n2", 2), training("u", "b", 2)]
    evictions, places = [stop("v", Token.RECLAIMED, "w")], [hold("w", "n2", 0, 1)]
    assert complaints(events, evictions=evictions, nominations=places) == NEEDLESS
    places += [hold("u", "n1", 0, 1)]
    assert complaints(events, evictions=evictions, nominations=places) == []


def test_who_claims_step_by_step_is_not_judged() -> None:
    """The limit lets one of two members in once `v` has left, and `x` makes room for the other."""
    pair = Group(requests=(asking(1), asking(1)), min_tasks=1)
    grows: list[Event] = [queue("top", 3, limit=3), training("g", "b", gang=pair), node("n4", 1)]
    evictions = [stop("v", Token.RECLAIMED, "g"), stop("x", Token.RECLAIMED, "g")]
    one, both = (("n4", (0,), 0),), (("n4", (0,), 0), ("n1", (1,), 0))
    events = at_the_limit(*grows)
    found = complaints(events, evictions=evictions, nominations=[Nomination("g", one)])
    assert found == NEEDLESS
    assert complaints(events, evictions=evictions, nominations=[Nomination("g", both)]) == []


def test_a_claim_for_which_somebody_moves_is_not_judged() -> None:
    """Its room is needed too: one of two members of `v` goes on elsewhere."""
    pair = Group(requests=(asking(1), asking(1)), min_tasks=1)
    events: list[Event] = [
        node("n1", 2), node("n2", 2), node("n3", 1), queue("a", 0), queue("b", 4),
        training("v", "a", gang=pair),
        TaskPlaced("v", 0, "n1", (0,), at=1.0), TaskPlaced("v", 1, "n1", (1,), at=1.0),
        training("w", "b", 2),
    ]  # fmt: skip
    evictions, place = [stop("v", Token.RECLAIMED, "w", 0, 1)], hold("w", "n2", 0, 1)
    assert complaints(events, evictions=evictions, nominations=[place]) == NEEDLESS
    both = [place, Nomination("v", (("n3", (0,), 0),), (0,))]
    assert complaints(events, evictions=evictions, nominations=both) == []
