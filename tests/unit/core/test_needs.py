"""What a workload counts for follows the kinds of GPUs that the cluster has."""

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import NodeRemoved, Preemptibility, TaskPlaced
from carrel_scheduler.core.invariants.columns import check_books
from carrel_scheduler.core.state import State
from unit.core.situations import NOW, asking, node, queue, state_of, training

MEMORY = asking(0, gpu_memory_mib=30_000, share_milli=0)
LARGE, SMALL = node("large", 1, gpu_memory_mib=80_000), node("small", 1, gpu_memory_mib=40_000)
MIG = node("mig", 1, mig_model="A100-40GB")


def asked(state: State) -> list[int]:
    """Thousandths of GPUs that wait, by queue; what is kept agrees with a recount."""
    assert check_books(state) == []
    return [int(gpu) for gpu in state.queues.waiting[:, 0]]


@pytest.mark.parametrize("waits", [(), ("more",)])
def test_who_waits_counts_for_what_it_takes_at_most_on_the_nodes_of_now(
    waits: tuple[str, ...],
) -> None:
    state = state_of(queue("a", 4), training("w", "a", request=MEMORY))
    for uid in waits:
        state.apply(training(uid, "a", request=MEMORY))
    times = 1 + len(waits)
    assert asked(state) == [1000 * times]
    for event, each in (
        (LARGE, 380),
        (SMALL, 750),
        (node("small", 1, gpu_memory_mib=80_000), 380),
        (SMALL, 750),
        (NodeRemoved("small"), 380),
    ):
        state.apply(event)
        assert asked(state) == [each * times], event
        assert [int(n) for n in state.waiting.demand[state.waiting.used()][:, 0]] == [each]


def test_a_smaller_gpu_that_joins_late_does_not_let_it_beyond_its_quota() -> None:
    fixed = training("w", "a", request=MEMORY, tasks=2, preemptible=Preemptibility.NO)
    state = state_of(queue("a", 1), queue("b", 1), LARGE, SMALL, fixed)
    assert dict(decide(state, NOW).reasons)["w"].token == "NonPreemptibleBeyondQuota"
    late = state_of(queue("a", 1), queue("b", 1), LARGE, fixed)
    late.apply(SMALL)
    assert dict(decide(late, NOW).reasons) == dict(decide(state, NOW).reasons)


def test_who_runs_keeps_what_it_holds_and_asks_for_more_by_the_nodes_of_now() -> None:
    members = training("w", "a", request=MEMORY, tasks=2)
    state = state_of(queue("a", 4), LARGE, members, TaskPlaced("w", 0, "large", (0,), 1.0))
    assert (asked(state), int(state.queues.used[0, 0])) == ([380], 380)
    state.apply(SMALL)
    assert (asked(state), int(state.queues.used[0, 0])) == ([750], 380)


def test_nothing_is_counted_again_for_another_node_of_a_known_kind() -> None:
    state = state_of(queue("a", 4), LARGE, training("w", "a", request=MEMORY))
    shape = state.job("w").shape
    state.apply(node("other", 1, gpu_memory_mib=80_000))
    state.apply(NodeRemoved("other"))
    assert state.job("w").shape is shape
    assert state.nodes.hardware == {(80_000, ""): 1}


def test_a_profile_counts_as_a_whole_gpu_until_a_node_has_it() -> None:
    state = state_of(
        queue("a", 4), training("w", "a", request=asking(0, mig_profile="1g.5gb", share_milli=0))
    )
    assert asked(state) == [1000]
    state.apply(MIG)
    assert 0 < asked(state)[0] < 1000
