"""Every field of what is shown, in a situation in which all of them differ."""

from dataclasses import asdict

from carrel_scheduler.core.events import (
    CapacityReserved,
    CheckpointSeen,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TaskReleasing,
    TaskStuck,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.resources import OPEN, UNLIMITED, ResourceVector
from carrel_scheduler.core.state import State
from carrel_scheduler.core.views import QueueUse, TaskPlacement
from unit.core.situations import asking, node, queue, running, state_of, training, workspace

GIB = 1024


def situation() -> State:
    core = Group(requests=(asking(1, cpu=2, memory_gib=3),) * 3, min_tasks=1)
    return state_of(
        node("n1", 4, cpu=32, memory_gib=64, extended=(("nic", 5),), broken_devices=frozenset({3})),
        node("n2", 2, cpu=16, memory_gib=32, draining=True),
        QueueSet("top", ResourceVector(1000, UNLIMITED, UNLIMITED), OPEN, created_at=1.0),
        queue("a", parent="top"),
        queue("b", 0.5, parent="top"),
        training("g", "a", gang=core, preemptible=Preemptibility.SURPLUS, name="gang", user="ada"),
        TaskPlaced("g", 0, "n1", (0,), 5.0),
        TaskPlaced("g", 2, "n1", (1,), 6.0),
        CheckpointSeen("g", 7.0),
        *running(workspace("i", "b", 0.5, cpu=4, memory_gib=5), "n1", 2, at=3.0),
        *running(
            training("s", "b", request=asking(1, cpu=1, memory_gib=7, extended=(("nic", 2),))),
            "n2", 1, at=2.0,
        ),
        TaskReleasing("s", 0),
        TaskStuck("s", 0),
        training("w", "b", 0.25, created_at=8.0),
        CapacityReserved("w", (("n1", (2,), 0),)),
        training("x", "b", 2, created_at=9.0),
        training("y", "a", 1, created_at=4.0),
    )  # fmt: skip


def test_queues() -> None:
    state = situation()
    assert state.project_use("a") == QueueUse(
        name="a", gpu_milli=2000, cpu_milli=4000, memory_mib=6 * GIB,
        gpu_fixed_milli=1000, cpu_fixed_milli=2000, memory_fixed_mib=3 * GIB,
        gpu_borrowed_milli=0, gpu_waiting_milli=2000, running=1, waiting=1,
        gpu_reserved_milli=0, parent="top", leaf=True,
    )  # fmt: skip
    assert state.project_use("b") == QueueUse(
        name="b", gpu_milli=1500, cpu_milli=5000, memory_mib=12 * GIB,
        gpu_fixed_milli=500, cpu_fixed_milli=4000, memory_fixed_mib=5 * GIB,
        gpu_borrowed_milli=1000, gpu_waiting_milli=2250, running=2, waiting=2,
        gpu_reserved_milli=250, parent="top", leaf=True,
    )  # fmt: skip
    assert state.use_of_all() == {name: state.project_use(name) for name in ("a", "b", "top")}
    assert state.project_use("top") == QueueUse(
        name="top", gpu_milli=3500, cpu_milli=9000, memory_mib=18 * GIB,
        gpu_fixed_milli=1500, cpu_fixed_milli=6000, memory_fixed_mib=8 * GIB,
        gpu_borrowed_milli=2500, gpu_waiting_milli=4250, running=3, waiting=3,
        gpu_reserved_milli=250, parent="", leaf=False,
    )  # fmt: skip


def test_nodes() -> None:
    first, second = (asdict(view) for view in situation().node_views())
    devices = first.pop("devices")
    assert first == {
        "name": "n1", "schedulable": True, "cpu_milli": 32_000, "cpu_allocated_milli": 8000,
        "memory_mib": 64 * GIB, "memory_allocated_mib": 11 * GIB, "draining": False,
        "mig_model": "", "extended": (("nic", 5, 0),), "labels": (),
    }  # fmt: skip
    facts = ("index", "broken", "free_milli", "reserved_for", "reservations", "free_slots", "warm")
    assert [tuple(one[name] for name in facts) for one in devices] == [
        (0, False, 0, "", (), 0, ()),
        (1, False, 0, "", (), 0, ()),
        (2, False, 500, "w", ("w",), 0, ()),
        (3, True, devices[3]["free_milli"], "", (), 0, ()),
    ]
    held = {
        "uid": "g",
        "index": 2,
        "gpu_milli": 1000,
        "releasing": False,
        "slots": 0,
        "profile": "",
    }
    assert devices[1]["holders"] == (held,)
    assert second["draining"]
    assert second["cpu_allocated_milli"] == 1000
    assert second["memory_allocated_mib"] == 7 * GIB
    (stopping,) = second["devices"][1]["holders"]
    assert (stopping["uid"], stopping["releasing"]) == ("s", True)


def test_workloads() -> None:
    state = situation()
    gang = state.workload("g")
    assert gang.waiting is False
    assert gang.checkpoint_at == 7.0
    assert gang.pending == (1,)
    assert gang.tasks == 3
    assert gang.stale_since is None
    stuck = state.workload("s")
    assert [asdict(one) for one in stuck.places] == [
        asdict(TaskPlacement(0, "n2", (1,), releasing=True, slots=0, stuck=True))
    ]
    waiting = state.workload("w")
    assert waiting.waiting is True
    assert waiting.started_at is None
    assert waiting.checkpoint_at is None
    assert waiting.reserved == (("n1", (2,), 0),)
    assert waiting.reserved_indices == (0,)
