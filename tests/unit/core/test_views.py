"""What the state tells about itself."""

import pytest

from carrel_scheduler.core.errors import UnknownWorkload
from carrel_scheduler.core.events import (
    CapacityReserved,
    CheckpointSeen,
    Outcome,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    TaskStuck,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.views import TaskOnDevice
from unit.core.situations import asking, node, queue, running, state_of, training, workspace


def test_every_queue_counts_what_is_below_it() -> None:
    state = state_of(
        node("n", 8),
        queue("dep", 4),
        queue("a", 1, parent="dep"),
        queue("b", 2, parent="dep"),
        *running(training("x", "a", 2), "n", 0, 1),
        *running(workspace("y", "b", 1), "n", 2),
        training("z", "b", 3),
        TaskReleasing("x", 0),
    )
    dep, a, b = (state.project_use(name) for name in ("dep", "a", "b"))
    assert (dep.gpu_milli, dep.gpu_fixed_milli, dep.gpu_waiting_milli) == (3000, 1000, 3000)
    assert (dep.running, dep.waiting, dep.leaf, dep.parent) == (2, 1, False, "")
    assert (a.gpu_milli, a.gpu_borrowed_milli, a.running) == (2000, 1000, 1)
    assert (b.gpu_fixed_milli, b.cpu_milli, b.waiting, b.parent) == (1000, 1000, 1, "dep")
    assert list(state.projects()) == ["a", "b"]
    assert list(state.queue_names()) == ["a", "b", "dep"]


def test_promised_room_is_told_on_devices_and_queues() -> None:
    state = state_of(
        node("n", 2),
        queue("a", 2),
        training("x", "a", 2),
        CapacityReserved("x", (("n", (0, 1), 0),)),
    )
    (view,) = state.node_views()
    assert [device.reserved_for for device in view.devices] == ["x", "x"]
    assert state.project_use("a").gpu_reserved_milli == 2000
    assert state.workload("x").reserved == (("n", (0, 1), 0),)
    assert state.workload("x").reserved_indices == (0,)
    assert state.workload("x").waiting
    assert state.project_use("a").waiting == 1


def test_a_shared_device_tells_all_its_holders() -> None:
    state = state_of(
        node("n", 1, extended=(("nic", 4),)),
        queue("a", 2),
        *running(training("x", "a", 0.5, cpu=2), "n", 0),
        *running(training("y", "a", request=asking(0.25, extended=(("nic", 3),))), "n", 0),
    )
    (view,) = state.node_views()
    (device,) = view.devices
    assert device.free_milli == 250
    assert device.holders == (
        TaskOnDevice("x", 0, 500, releasing=False),
        TaskOnDevice("y", 0, 250, releasing=False),
    )
    assert view.extended == (("nic", 4, 3),)
    assert (view.cpu_allocated_milli, view.memory_allocated_mib) == (3000, 2048)


def test_mig_instances_used_and_kept() -> None:
    request = asking(0, mig_profile="1g.10gb")
    state = state_of(
        node("n", 1, mig_model="H100-80GB"),
        queue("a", 2),
        training("x", "a", request=request),
        training("y", "a", request=request),
        TaskPlaced("x", 0, "n", (0,), 1.0, 1),
        TaskPlaced("y", 0, "n", (0,), 1.0, 2),
        TaskReleased("y", 0, Outcome.GONE, 2.0),
    )
    (view,) = state.node_views()
    (device,) = view.devices
    assert (device.free_milli, device.free_slots) == (875, 0b11111110)
    assert (device.holders[0].profile, device.holders[0].slots) == ("1g.10gb", 1)
    assert device.warm == (("1g.10gb", 2),)


def test_an_elastic_gang_with_some_of_its_tasks() -> None:
    gang = Group(requests=(asking(1),) * 4, min_tasks=2)
    state = state_of(
        node("n", 4),
        queue("a", 4),
        training("g", "a", gang=gang),
        TaskPlaced("g", 0, "n", (0,), 5.0),
        TaskPlaced("g", 1, "n", (1,), 6.0),
        CheckpointSeen("g", 7.0),
    )
    view = state.workload("g")
    assert [place.index for place in view.places] == [0, 1]
    assert (view.waiting, view.pending, view.tasks) == (False, (2, 3), 4)
    assert (view.started_at, view.checkpoint_at, view.stale_since) == (5.0, 7.0, None)
    use = state.project_use("a")
    assert (use.running, use.waiting, use.gpu_waiting_milli) == (1, 0, 2000)
    state.apply(TaskReleased("g", 1, Outcome.AGAIN, 9.0))
    assert state.workload("g").stale_since == 9.0


def test_a_task_that_does_not_end() -> None:
    state = state_of(
        node("n", 1),
        queue("a", 1),
        *running(training("x", "a"), "n", 0),
        TaskReleasing("x", 0),
        TaskStuck("x", 0),
    )
    (place,) = state.workload("x").places
    assert (place.releasing, place.stuck) == (True, True)


def test_gated_workloads_count_as_waiting() -> None:
    state = state_of(
        queue("a", 1),
        training("young", "a", created_at=3.0),
        training("old", "a", created_at=1.0),
        training("gated", "a", created_at=2.0, gated=frozenset({0})),
    )
    assert state.project_use("a").waiting == 3


def test_who_borrows_is_the_least_rightful() -> None:
    events = [
        node("n", 4),
        queue("a", 2),
        *running(training("late", "a"), "n", 0, at=3.0),
        *running(training("early", "a"), "n", 1, at=2.0),
        *running(workspace("desk", "a"), "n", 2, at=4.0),
    ]
    state = state_of(*events)
    assert [uid for uid in ("late", "early", "desk") if state.is_borrowed(uid)] == ["late"]
    state.apply(TaskReleasing("early", 0))
    assert [uid for uid in ("late", "early", "desk") if state.is_borrowed(uid)] == ["early"]
    assert not state.is_borrowed("nobody")


def test_nobody_borrows_of_an_open_quota() -> None:
    state = state_of(node("n", 2), queue("a"), *running(training("x", "a", 2), "n", 0, 1))
    assert not state.is_borrowed("x")


def test_an_unknown_workload() -> None:
    with pytest.raises(UnknownWorkload):
        state_of().workload("x")
