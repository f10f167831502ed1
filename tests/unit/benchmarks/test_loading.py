"""A whole listing at once leaves what the same events leave one by one."""

import random
from typing import Any

import pytest

from benchmarks.decision_cases.loading import Listing, load
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import (
    CheckpointSeen,
    Event,
    Outcome,
    Preemptibility,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    TopologySet,
    WorkloadQueued,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.invariants.columns import check_books
from carrel_scheduler.core.state import State
from unit.core.situations import asking, node, queue, state_of, training

KINDS = (Preemptibility.YES, Preemptibility.NO, Preemptibility.SURPLUS)


def one_by_one(listing: Listing) -> State:
    events: list[Event] = [
        *listing.topologies,
        *listing.nodes,
        *listing.queues,
        *listing.workloads,
        *listing.placed,
        *listing.saved,
        *listing.rest,
    ]
    return state_of(*events)


def loaded(listing: Listing) -> State:
    state = State()
    load(state, listing)
    return state


def columns_by_uid(state: State) -> dict[str, list[Any]]:
    names = ("queue", "priority", "created", "since", "gpu", "placed", "whole")
    columns = [getattr(state.jobs, name).tolist() for name in names]
    return {
        uid: [column[slot] for column in columns] for slot, uid in enumerate(state.jobs.uids) if uid
    }


def mixed(seed: int) -> Listing:
    """Ten nodes, one of them with MIG, and all kinds of workloads."""
    rng = random.Random(seed)
    nodes = [node(f"n{i}", 4, extended=(("pods", 20),)) for i in range(9)]
    nodes.append(node("mig", 2, mig_model="A100-40GB"))
    queues = [queue("top"), *(queue(name, 8, parent="top") for name in "abc")]
    workloads, placed = [], []
    for number in range(9):
        for device in range(3):
            uid = f"w{number}-{device}"
            request = asking(
                rng.choice((1, 0.5, 0.3)), cpu=rng.choice((1, 2)), extended=(("pods", 1),)
            )
            workloads.append(_any(uid, rng, request=request))
            placed.append(TaskPlaced(uid, 0, f"n{number}", (device,), at=float(device)))
        uid = f"cpu{number}"
        workloads.append(_any(uid, rng, request=asking(0, cpu=3)))
        placed.append(TaskPlaced(uid, 0, f"n{number}", (), at=5.0))
    gang = Group(requests=(asking(1),) * 4, min_tasks=2)
    workloads.append(training("gang", "a", gang=gang))
    placed += [TaskPlaced("gang", i, f"n{i}", (3,), at=7.0) for i in range(3)]
    workloads.append(training("slice", "b", request=asking(0, mig_profile="1g.5gb")))
    placed.append(TaskPlaced("slice", 0, "mig", (0,), at=3.0, slots=1))
    workloads.append(training("gated", "c", gated=frozenset({0})))
    workloads += [_any(f"waits{i}", rng, gpus=rng.randint(1, 4)) for i in range(20)]
    saved = [CheckpointSeen(f"w{i}-0", 50.0 + i) for i in range(5)]
    rest: list[Event] = [TaskReleasing("w0-0", 0), TaskReleasing("w1-1", 0)]
    rest.append(TaskReleased("w1-1", 0, Outcome.AGAIN, 60.0))
    topologies = (TopologySet("network", ("rack",)),)
    return Listing(nodes, queues, topologies, (), workloads, placed, saved, rest)


def _any(uid: str, rng: random.Random, gpus: int = 1, **more: Any) -> WorkloadQueued:
    kind = rng.choice(KINDS)
    return training(
        uid,
        rng.choice("abc"),
        gpus,
        preemptible=kind,
        priority=rng.choice((50, 75)),
        created_at=float(rng.randrange(40)),
        **more,
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_books_are_right(seed: int) -> None:
    assert check_books(loaded(mixed(seed))) == []


@pytest.mark.parametrize("seed", range(5))
def test_it_decides_as_after_single_events(seed: int) -> None:
    at_once, after_all = loaded(mixed(seed)), one_by_one(mixed(seed))
    assert at_once.version == after_all.version
    assert at_once.queues.used.tolist() == after_all.queues.used.tolist()
    assert at_once.queues.fixed.tolist() == after_all.queues.fixed.tolist()
    assert at_once.tasks.victims == after_all.tasks.victims
    assert columns_by_uid(at_once) == columns_by_uid(after_all)
    at_once.chooser.value.recall(after_all.chooser.value.memory())
    first, second = decide(at_once, 100.0), decide(after_all, 100.0)
    assert first.bindings == second.bindings
    assert first.evictions == second.evictions
    assert first.nominations == second.nominations


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (TaskPlaced("x", 0, "n", (0,), at=1.0), "device_taken"),
        (TaskPlaced("x", 0, "n", (1, 2), at=1.0), "bad_devices"),
        (TaskPlaced("x", 0, "n", (), at=1.0), "bad_devices"),
        (TaskPlaced("x", 0, "n", (7,), at=1.0), "unknown_device"),
        (TaskPlaced("x", 0, "n", (-1,), at=1.0), "unknown_device"),
        (TaskPlaced("x", 0, "other", (1,), at=1.0), "unknown_node"),
        (TaskPlaced("nobody", 0, "n", (1,), at=1.0), "unknown_workload"),
    ],
)
def test_what_contradicts_the_rest_is_refused_as_always(event: TaskPlaced, code: str) -> None:
    workloads = [training("first", "a"), training("x", "a")]
    placed = [TaskPlaced("first", 0, "n", (0,), at=1.0), event]
    listing = Listing([node("n", 4)], [queue("a", 4)], (), (), workloads, placed)
    with pytest.raises(InvalidEvent) as refused:
        loaded(listing)
    assert refused.value.code == code


def test_the_same_device_twice_is_refused() -> None:
    workloads = [training("x", "a", 2)]
    placed = [TaskPlaced("x", 0, "n", (1, 1), at=1.0)]
    with pytest.raises(InvalidEvent, match="different devices"):
        loaded(Listing([node("n", 4)], [queue("a", 4)], (), (), workloads, placed))


def test_a_bad_request_is_refused() -> None:
    workloads = [training("x", "a", request=asking(1, share_milli=500))]
    placed = [TaskPlaced("x", 0, "n", (1,), at=1.0)]
    with pytest.raises(InvalidEvent, match="bad_request"):
        loaded(Listing([node("n", 4)], [queue("a", 4)], (), (), workloads, placed))


def test_nothing_is_a_listing_too() -> None:
    assert check_books(loaded(Listing())) == []
