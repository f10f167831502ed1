"""A reason names what really binds: change that, and the workload starts or waits for another."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CapacityReserved,
    Event,
    NodeSet,
    QueueSet,
    TaskPlaced,
    TaskReleasing,
    WorkloadQueued,
)
from carrel_scheduler.core.explaining.impossible import limiting_resource
from carrel_scheduler.core.messages.render import help_text, sentence
from carrel_scheduler.core.reasons import Reason, Token
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from unit.core.situations import node, queue, state_of, training, workspace

NAMES = ("gpu", "cpu", "memory")
PLENTY = 1 << 40
SEEDS = range(0, 60, 6)


def asks(queued: WorkloadQueued, cpu_milli: int, memory_mib: int = 1) -> WorkloadQueued:
    """The same workload with other amounts of CPU and memory."""
    request = replace(queued.request, cpu_milli=cpu_milli, memory_mib=memory_mib)
    return replace(queued, request=request)


def reason_of(uid: str, *events: Event) -> Reason:
    return decide(state_of(*events), 100.0).reasons[uid]


def placed(queued: WorkloadQueued, *devices: int) -> tuple[Event, Event]:
    return queued, TaskPlaced(queued.uid, 0, "n", devices, at=1.0)


def crowded_host(resource: str, speech: QueueSet) -> tuple[Event, ...]:
    """GPUs may be taken back from `vision`; what little it could free of the rest is not enough."""

    def amounts(value: int) -> tuple[int, int]:
        return (value, 0) if resource == "cpu" else (0, value)

    held: list[Event] = []
    for device in range(4):
        held += placed(asks(training(f"t{device}", "vision"), *amounts(100)), device)
    held += placed(asks(workspace("desk", "vision", 0), *amounts(1000)))
    claim = asks(workspace("claim", "speech"), *amounts(1000))
    total = (2000, 1 << 20) if resource == "cpu" else (1 << 20, 2000)
    return (NodeSet("n", 4, *total), queue("vision", 2), speech, *held, claim)


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_what_cannot_be_taken_back_is_named(resource: str) -> None:
    found = reason_of("claim", *crowded_host(resource, queue("speech", 2)))
    assert (found.token, found.resource) == (Token.WAITS_FOR_ROOM, resource)
    assert (found.requested, found.short, found.bound, found.kept) == (1000, 400, 2000, True)
    assert (found.holders[0].uid, found.holders[0].amount) == ("desk", 1000)
    text = sentence(found, "speech")
    assert "; `desk` of `vision` holds " in text
    assert text.endswith(", and too little of it can be taken back.")
    assert "quota" not in text
    assert help_text(found, "speech").startswith("It starts when work that holds it ends")


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_a_full_host_is_not_a_used_quota(resource: str) -> None:
    """One CPU core of an open quota: the machine is full, and a GPU quota has no part in it."""
    one = (1000, 1) if resource == "cpu" else (1, 1000)
    total = (2000, 100) if resource == "cpu" else (100_000, 2000)
    found = reason_of(
        "more",
        NodeSet("n", 4, *total),
        queue("vision", 1),
        *placed(asks(training("a", "vision"), *one), 0),
        *placed(asks(training("b", "vision"), *one), 1),
        asks(training("more", "vision"), *one),
    )
    assert (found.token, found.resource, found.short) == (Token.WAITS_FOR_ROOM, resource, 1000)


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_a_finite_quota_of_what_is_short_is_blamed(resource: str) -> None:
    one = (1000, 1) if resource == "cpu" else (1, 1000)
    total = (2000, 100) if resource == "cpu" else (100_000, 2000)
    bounds = (1500, UNLIMITED) if resource == "cpu" else (UNLIMITED, 1500)
    quota = ResourceVector(UNLIMITED, *bounds)
    found = reason_of(
        "more",
        NodeSet("n", 4, *total),
        QueueSet("vision", quota),
        *placed(asks(training("a", "vision"), *one), 0),
        *placed(asks(training("b", "vision"), *one), 1),
        asks(training("more", "vision"), *one),
    )
    assert (found.token, found.resource, found.bound) == (Token.QUOTA_USED, resource, 1500)


def test_nothing_else_comes_back_where_nothing_else_is_short() -> None:
    desk = asks(workspace("desk", "a", 0), 2000)
    claim = asks(workspace("claim", "a"), 1000)
    found = reason_of("claim", NodeSet("n", 4, 2000, 1 << 20), queue("a", 4), *placed(desk), claim)
    assert (found.resource, found.kept) == ("cpu", False)


def test_never_names_the_resource_that_no_node_combines() -> None:
    found = reason_of(
        "x",
        node("gpus", 4, memory_gib=8),
        node("memory", 0, memory_gib=256),
        queue("a", 4),
        training("x", "a", 1, memory_gib=64),
    )
    assert (found.token, found.resource) == (Token.NEVER_FITS, "memory")
    assert (found.requested, found.bound) == (64 * 1024, 8 * 1024)


def test_what_gives_way_is_told_in_what_was_short() -> None:
    """GPUs are free; the room that comes back is CPU."""
    found = reason_of(
        "claim",
        NodeSet("n", 4, 2000, 1 << 20),
        QueueSet("a", ResourceVector(0, 0, 0)),
        QueueSet("b", ResourceVector(4000, 2000, UNLIMITED)),
        *placed(asks(training("x", "a", 0), 2000)),
        asks(training("claim", "b"), 2000),
    )
    assert (found.resource, found.workload_uid) == ("cpu", "claim")
    assert [(holder.uid, holder.amount) for holder in found.holders] == [("x", 2000)]


def test_what_was_taken_by_those_before_is_named() -> None:
    found = reason_of(
        "second",
        NodeSet("n", 4, 1000, 1 << 20),
        queue("a", 4),
        asks(training("first", "a", created_at=1.0), 1000),
        asks(training("second", "a", created_at=2.0), 1000),
    )
    assert (found.token, found.resource) == (Token.QUEUED_BEHIND, "cpu")


@pytest.mark.parametrize(
    ("have", "blamed"),
    [((0, 9, 9), 0), ((9, 0, 9), 1), ((9, 9, 0), 2), ((0, 0, 9), 0), ((9, 0, 0), 1)],
)
def test_what_could_not_be_had_alone_is_to_blame(have: tuple[int, int, int], blamed: int) -> None:
    def can_be_had(these: Sequence[int]) -> bool:
        return all(have[resource] for resource in these)

    assert limiting_resource([0, 1, 2], can_be_had) == blamed


def _situation(seed: int) -> list[Any]:
    """A small crowded cluster in which all three resources may be what is short."""
    dice = random.Random(seed)
    events: list[Any] = [node(f"n{n}", 4, cpu=8, memory_gib=16) for n in range(2)]
    for name in "abc":
        quota = [dice.choice((UNLIMITED, most, most // 2)) for most in (4000, 8000, 16384)]
        limit = [dice.choice((UNLIMITED, UNLIMITED, most)) for most in (6000, 12000, 24576)]
        borrow = dice.random() < 0.8
        events.append(
            QueueSet(name, ResourceVector(*quota), ResourceVector(*limit), over_quota=borrow)
        )
    for number in range(14):
        make = workspace if dice.random() < 0.3 else training
        more = {"cpu": dice.choice((1, 2, 4)), "memory_gib": dice.choice((1, 2, 8))}
        owner, gpus = dice.choice("abc"), dice.choice((0, 1, 1, 2, 4))
        priority = dice.choice((40, 50, 60))
        events.append(
            make(f"w{number}", owner, gpus, priority=priority, created_at=float(number), **more)
        )
    return events


def _running(events: list[Any], dice: random.Random) -> list[Any]:
    """What of it gets room at once is placed; more is submitted afterwards."""
    plan = decide(state_of(*events), 100.0)
    starts = [TaskPlaced(b.uid, b.index, b.node, b.devices, at=50.0) for b in plan.bindings]
    late = []
    for number in range(4):
        make = workspace if dice.random() < 0.5 else training
        more = {"cpu": dice.choice((1, 4, 6)), "memory_gib": dice.choice((1, 8, 12))}
        late.append(make(f"late{number}", dice.choice("abc"), dice.choice((0, 1, 2)), **more))
    return events + starts + late


def _with_more(event: Event, resource: int) -> Event:
    """A node with plenty of one resource beside what it has."""
    if not isinstance(event, NodeSet):
        return event
    if resource == 0:
        return replace(event, devices=40)
    if resource == 1:
        return replace(event, cpu_milli=PLENTY)
    return replace(event, memory_mib=PLENTY)


def _with_rights(event: Event, reason: Reason, resource: int, owner: str) -> Event:
    """The project with the bound raised that the reason blames."""
    if not isinstance(event, QueueSet) or event.name != owner:
        return event
    if reason.token is Token.OVER_QUOTA_OFF:
        return replace(event, over_quota=True)
    which = "limit" if reason.token is Token.OVER_LIMIT else "quota"
    amounts = list((event.limit if which == "limit" else event.quota).as_tuple())
    assert amounts[resource] != UNLIMITED, "an open bound is blamed"
    amounts[resource] = UNLIMITED
    raised = ResourceVector(*amounts)
    return replace(event, limit=raised) if which == "limit" else replace(event, quota=raised)


RIGHTS = {
    Token.QUOTA_USED,
    Token.OVER_LIMIT,
    Token.OVER_QUOTA_OFF,
    Token.NON_PREEMPTIBLE_BEYOND_QUOTA,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_changing_what_is_blamed_changes_the_answer(seed: int) -> None:
    events = _running(_situation(seed), random.Random(seed))
    owners = {e.uid: e.project for e in events if isinstance(e, WorkloadQueued)}
    for uid, reason in decide(state_of(*events), 100.0).reasons.items():
        if reason.workload_uid == uid:
            continue  # it starts, or room is being made for it
        resource = NAMES.index(reason.resource)
        if reason.token in RIGHTS:
            changed = [_with_rights(e, reason, resource, owners[uid]) for e in events]
        else:
            changed = [_with_more(event, resource) for event in events]
        after = decide(state_of(*changed), 100.0).reasons[uid]
        if after.workload_uid == uid:
            continue
        if reason.token in RIGHTS:
            assert (after.token, after.resource) != (reason.token, reason.resource), (uid, reason)
        elif after.token not in RIGHTS | {Token.QUEUED_BEHIND}:
            assert after.resource != reason.resource, (uid, reason, after)


@pytest.mark.parametrize(("limit", "token"), [(3, Token.OVER_LIMIT), (4, Token.WAITS_FOR_ROOM)])
def test_what_is_held_for_work_counts_like_what_runs(limit: int, token: Token) -> None:
    """Two devices are being freed for `w`; with two more their queue would hold four."""
    rule, ends = queue("a", 4, limit=limit), placed(training("s", "a", 2), 0, 1)
    held = CapacityReserved("w", (("n", (0, 1), 0),))
    waits = training("w", "a", 2, priority=60), held, training("y", "a", 2)
    found = reason_of("y", node("n", 4), rule, *ends, TaskReleasing("s", 0), *waits)
    assert found.token is token
