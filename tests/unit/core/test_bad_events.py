"""What an event may say, at its bounds: the last allowed value is taken, the first wrong one named.

A refused event leaves no trace.
"""

import math
from dataclasses import replace

import pytest

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import (
    CapacityReserved,
    Event,
    NodeRemoved,
    NodeSet,
    QueueRemoved,
    QueueSet,
    TaskPlaced,
    TaskReleasing,
    TaskStuck,
    UsageSeen,
    WorkloadRemoved,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.resources import OPEN, ResourceVector
from carrel_scheduler.core.state import State
from unit.core.runs import fingerprint
from unit.core.situations import asking, node, queue, running, state_of, training

MOST = 1 << 50
RULE = QueueSet("r", ResourceVector(0, 0, 0), OPEN)
LEAF = Group(requests=(asking(1),) * 2)


@pytest.fixture
def state() -> State:
    """`x` runs, `s` stops, `w` waits for a pair, room is held for `h` on `m`."""
    return state_of(
        node("n", 4),
        node("m", 1),
        node("spare", 1),
        queue("top"),
        queue("a", parent="top"),
        queue("b"),
        queue("c", parent="b"),
        *running(training("x", "a"), "n", 0),
        *running(training("s", "a"), "n", 1),
        TaskReleasing("s", 0),
        training("w", "a", 1, tasks=2),
        training("h", "a", 1),
        CapacityReserved("h", (("m", (0,), 0),)),
    )


ALLOWED: list[Event] = [
    replace(RULE, quota=ResourceVector(-1, MOST, 0), limit=ResourceVector(MOST, -1, 0)),
    replace(RULE, weight=(0, MOST, 1)),
    replace(RULE, preempt_min_runtime_s=0.0, reclaim_min_runtime_s=0.0),
    UsageSeen("a", (0, 1, MOST)),
    NodeSet("z", 0, 0, 0),
    NodeSet("z", 2, 1, 1, broken_devices=frozenset({0, 1})),
    node("n", 2),
    training("y", "a", request=asking(0, share_milli=999)),
    training("y", "a", request=asking(0, cpu=0, memory_gib=0)),
    training("y", "a", tasks=1),
    training("y", "a", gang=replace(LEAF, min_tasks=2)),
    training("y", "a", gang=Group(groups=(LEAF, LEAF), min_groups=2)),
    WorkloadRemoved("w"),
    WorkloadRemoved("h"),
    training("w", "a", 3),
    QueueRemoved("c"),
    NodeRemoved("spare"),
    NodeRemoved("m"),
    TaskStuck("s", 0),
    CapacityReserved("w", (("n", (2,), 0), ("n", (3,), 0))),
    CapacityReserved("h"),
]


@pytest.mark.parametrize("event", ALLOWED)
def test_the_last_allowed_value_is_taken(state: State, event: Event) -> None:
    version = state.version
    state.apply(event)
    assert state.version == version + 1


REFUSED: list[tuple[Event, str, str]] = [
    (replace(RULE, name=""), "bad_name", "name"),
    (replace(RULE, quota=ResourceVector(-2, 0, 0)), "bad_amount", "quota"),
    (replace(RULE, quota=ResourceVector(0, 0, MOST + 1)), "bad_amount", "quota"),
    (replace(RULE, limit=ResourceVector(0, -2, 0)), "bad_amount", "limit"),
    (replace(RULE, limit=ResourceVector(0, MOST + 1, 0)), "bad_amount", "limit"),
    (replace(RULE, weight=(1, 1)), "bad_amount", "weight"),  # type: ignore[arg-type]
    (replace(RULE, weight=(0, -1, 0)), "bad_amount", "weight"),
    (replace(RULE, weight=(0, 0, MOST + 1)), "bad_amount", "weight"),
    (replace(RULE, created_at=math.inf), "bad_time", "created_at"),
    (replace(RULE, preempt_min_runtime_s=-0.1), "bad_time", "preempt_min_runtime_s"),
    (replace(RULE, reclaim_min_runtime_s=math.nan), "bad_time", "reclaim_min_runtime_s"),
    (replace(RULE, parent="r"), "queue_cycle", "parent"),
    (replace(RULE, parent="gone"), "unknown_queue", "parent"),
    (replace(RULE, parent="a"), "queue_in_use", "parent"),
    (queue("b", parent="c"), "queue_cycle", "parent"),
    (UsageSeen("a", (0, 0, MOST + 1)), "bad_amount", "part"),
    (UsageSeen("a", (-1, 0, 0)), "bad_amount", "part"),
    (UsageSeen("a", (1, 1)), "bad_amount", "part"),  # type: ignore[arg-type]
    (UsageSeen("gone", (0, 0, 0)), "unknown_queue", "queue"),
    (QueueRemoved("a"), "queue_in_use", "name"),
    (QueueRemoved("gone"), "unknown_queue", "name"),
    (NodeSet("", 0, 0, 0), "bad_name", "name"),
    (NodeSet("z", -1, 0, 0), "bad_amount", "devices"),
    (NodeSet("z", 1, -1, 0), "bad_amount", "cpu_milli"),
    (NodeSet("z", 1, 0, -1), "bad_amount", "memory_mib"),
    (NodeSet("z", 1, 0, 0, gpu_memory_mib=-1), "bad_amount", "gpu_memory_mib"),
    (NodeSet("z", 1, 0, 0, extended=(("nic", -1),)), "bad_amount", "nic"),
    (NodeSet("z", 2, 0, 0, broken_devices=frozenset({2})), "unknown_device", "broken_devices"),
    (NodeSet("z", 2, 0, 0, broken_devices=frozenset({-1})), "unknown_device", "broken_devices"),
    (node("n", 1), "device_in_use", "devices"),
    (node("n", 4, mig_model="A100-40GB", gpu_memory_mib=40960), "device_in_use", "mig_model"),
    (NodeRemoved("n"), "node_in_use", "name"),
    (NodeRemoved("gone"), "unknown_node", "node"),
    (training("", "a"), "bad_name", "uid"),
    (training("y", "gone"), "unknown_queue", "project"),
    (training("y", "top"), "not_a_leaf", "project"),
    (training("x", "a"), "holds_room", "uid"),
    (training("y", "a", tasks=0), "bad_amount", "tasks"),
    (training("y", "a", gang=replace(LEAF, groups=(LEAF,))), "bad_gang", "groups"),
    (training("y", "a", gang=Group()), "bad_gang", "requests"),
    (training("y", "a", gang=replace(LEAF, min_tasks=3)), "bad_amount", "min_tasks"),
    (training("y", "a", gang=replace(LEAF, min_tasks=-1)), "bad_amount", "min_tasks"),
    (training("y", "a", gang=Group(groups=(LEAF,), min_groups=2)), "bad_amount", "min_groups"),
    (training("y", "a", gang=Group(groups=(LEAF, Group()))), "bad_gang", "requests"),
    (training("y", "a", gang=Group(requests=(asking(-1),))), "bad_amount", "gpus"),
    (training("y", "a", request=asking(1, cpu=-1)), "bad_amount", "cpu_milli"),
    (training("y", "a", request=asking(1, memory_gib=-1)), "bad_amount", "memory_mib"),
    (training("y", "a", request=asking(0, share_milli=-1)), "bad_amount", "share_milli"),
    (training("y", "a", request=asking(0, share_milli=1000)), "bad_amount", "share_milli"),
    (training("y", "a", request=asking(0, gpu_memory_mib=-1)), "bad_amount", "gpu_memory_mib"),
    (training("y", "a", request=asking(1, extended=(("nic", -1),))), "bad_amount", "nic"),
    (training("y", "a", request=asking(0, share_milli=5, devices=0)), "bad_amount", "devices"),
    (training("y", "a", request=asking(1, gpu_memory_mib=5)), "bad_request", "gpus"),
    (training("y", "a", request=asking(0, share_milli=5, mig_profile="p")), "bad_request", "gpus"),
    (WorkloadRemoved("x"), "holds_room", "uid"),
    (WorkloadRemoved("gone"), "unknown_workload", "uid"),
    (TaskReleasing("s", 0), "already_stopping", "index"),
    (TaskStuck("x", 0), "not_stopping", "index"),
    (TaskPlaced("x", 0, "n", (2,), 1.0), "bad_index", "index"),
    (TaskPlaced("w", 2, "n", (2,), 1.0), "bad_index", "index"),
    (CapacityReserved("x", (("n", (2,), 0),)), "not_waiting", "uid"),
    (CapacityReserved("w", (("n", (2,), 0),)), "bad_places", "places"),
    (CapacityReserved("w", (("n", (2,), 0),), (2,)), "bad_places", "places"),
    (CapacityReserved("w", (("n", (2,), 0), ("n", (3,), 0)), (0,)), "bad_places", "places"),
]


@pytest.mark.parametrize(("event", "code", "field"), REFUSED)
def test_the_first_wrong_value_is_named(state: State, event: Event, code: str, field: str) -> None:
    before, version = fingerprint(state), state.version
    with pytest.raises(InvalidEvent) as refused:
        state.apply(event)
    assert (refused.value.code, refused.value.field) == (code, field)
    assert (fingerprint(state), state.version) == (before, version)
