"""A question about one workload is answered about that one, whoever else is decided upon."""

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CapacityReserved,
    Event,
    TaskPlaced,
    TaskReleasing,
    TaskStuck,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.plan import Nomination
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import NodeConstraint
from carrel_scheduler.core.speculation import never, what_if
from unit.core.situations import (
    NOW,
    asking,
    carry_out,
    node,
    queue,
    running,
    state_of,
    training,
)


def test_only_its_own_starts_and_victims_are_told() -> None:
    events: list[Event] = [
        node("n1", 4), node("n2", 2), queue("a", 0), queue("b", 6),
        *running(training("v1", "a"), "n2", 0), *running(training("v2", "a"), "n2", 1),
        training("c", "b", 1), training("e", "b", 1, nodes=["n2"]),
    ]  # fmt: skip
    state = state_of(*events)
    mine = what_if(state, training("d", "b", 2), NOW)
    assert [(one.uid, one.node) for one in mine.bindings] == [("d", "n1")]
    assert mine.held is None
    assert mine.gives_way == ()
    assert mine.served
    other = what_if(state, training("d", "b", 1, nodes=["n2"]), NOW)
    assert other.bindings == ()
    assert other.held is not None
    assert (other.held.uid, len(other.gives_way)) == ("d", 1)
    assert other.gives_way[0].reason.workload_uid == "d"
    refused = what_if(state, training("d", "b", 5), NOW)
    assert not refused.served


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_place_on_a_task_that_does_not_end_is_given_up(gpus: int) -> None:
    state = state_of(
        node("n1", 1, cpu=8), node("n2", 1, cpu=4), queue("a", 2),
        *running(training("v", "a", gpus, cpu=6), "n1", *range(gpus)), TaskReleasing("v", 0),
        training("w", "a", gpus, cpu=4, nodes=["n1"]),
    )  # fmt: skip
    plan = decide(state, NOW)
    assert [one.uid for one in plan.nominations if one.places] == ["w"]
    carry_out(state, plan, NOW)
    state.apply(TaskStuck("v", 0))
    assert [(one.uid, one.places) for one in decide(state, NOW + 1).nominations] == [("w", ())]


def test_a_place_beside_it_is_kept() -> None:
    state = state_of(
        node("n1", 2), queue("a", 2),
        *(event for n in range(2) for event in running(training(f"v{n}", "a"), "n1", n)),
        TaskReleasing("v0", 0), TaskReleasing("v1", 0),
        training("w", "a"), CapacityReserved("w", (("n1", (1,), 0),)),
        TaskStuck("v0", 0),
    )  # fmt: skip
    assert [one for one in decide(state, NOW).nominations if not one.places] == []


@pytest.mark.parametrize(("slots", "kept"), [(0b11, True), (0b110000, False)])
def test_an_instance_that_does_not_end_is_in_the_way_of_its_own_slots_only(
    slots: int, *, kept: bool
) -> None:
    half, quarter = (asking(0, share_milli=0, mig_profile=f"{p}gb") for p in ("3g.20", "2g.10"))
    state = state_of(
        node("m", 1, mig_model="A100-40GB"), queue("a", 1),
        training("runs", "a", request=half), TaskPlaced("runs", 0, "m", (0,), 1.0, 0b1111),
        training("v", "a", request=quarter), TaskPlaced("v", 0, "m", (0,), 1.0, 0b110000),
        TaskReleasing("v", 0),
        training("w", "a", request=quarter), CapacityReserved("w", (("m", (0,), slots),)),
        TaskStuck("v", 0),
    )  # fmt: skip
    assert [one for one in decide(state, NOW).nominations if not one.places] == (
        [] if kept else [Nomination("w", ())]
    )


@pytest.mark.parametrize(("share", "kept"), [(0.7, True), (0.8, False)])
def test_a_share_that_does_not_end_leaves_the_rest_of_its_gpu(share: float, *, kept: bool) -> None:
    state = state_of(
        node("n", 1), node("beside", 1), queue("a", 1),
        *running(training("runs", "a", 0.5), "n", 0), *running(training("v", "a", 0.3), "n", 0),
        *running(training("u", "a", 0.6), "beside", 0),
        TaskReleasing("v", 0), TaskReleasing("u", 0),
        training("w", "a", share), CapacityReserved("w", (("n", (0,), 0),)),
        TaskStuck("v", 0), TaskStuck("u", 0),
    )  # fmt: skip
    assert [one for one in decide(state, NOW).nominations if not one.places] == (
        [] if kept else [Nomination("w", ())]
    )


@pytest.mark.parametrize("beside", [0.3, 0.2, 0])
def test_a_share_starts_on_the_gpu_reserved_for_it_however_much_is_free_there(
    beside: float,
) -> None:
    """On the other GPU it would fit exactly."""
    state = state_of(
        node("n", 2), queue("a", 2), *running(training("other", "a", 0.3), "n", 1),
        *(running(training("runs", "a", beside), "n", 0) if beside else ()),
        training("w", "a", 0.7), CapacityReserved("w", (("n", (0,), 0),)),
    )  # fmt: skip
    assert [(one.uid, one.devices) for one in decide(state, NOW).bindings] == [("w", (0,))]


def test_values_of_a_label_count_where_there_is_room() -> None:
    racks = [node(f"n{n}", gpus, labels=(("rack", f"r{n}"),)) for n, gpus in enumerate((2, 2, 0))]
    state = state_of(*racks, queue("a"))
    apart = asking(1, where=NodeConstraint(apart="rack"))
    assert never(state, training("y", "a", gang=Group(requests=(apart,) * 2))) is None
    found = never(state, training("y", "a", gang=Group(requests=(apart,) * 3)))
    assert found is not None
    assert (found.token, found.requested, found.bound) == (Token.TOPOLOGY_TOO_SMALL, 3, 2)
