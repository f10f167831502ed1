"""What of external pods is counted and written down."""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from carrel_scheduler.engines.kubernetes.external_pods.executor import PodExecutor
from carrel_scheduler.engines.kubernetes.external_pods.messages import NodeSeen, PodOrders
from carrel_scheduler.engines.kubernetes.external_pods.usage import (
    close_left_open,
    holder_of,
    pod_counts,
)
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Transition
from carrel_schema.history import PlaceUse
from carrel_schema.names import NODE_GROUP
from carrel_schema.objects import Meta
from unit.external_pods.world import World, grouping, node


def row(uid: str, phase: str, **more: Any) -> Transition:
    what = {"kind": "Pod", "epoch": 1, "at": 100.0, **more}
    return Transition(
        workload_uid=uid,
        workload=uid,
        project="a",
        user="",
        attempt=0,
        from_phase="pending",
        to_phase=phase,
        gpu_milli=1000 if phase == "running" else 0,
        **what,
    )


async def test_what_an_earlier_scheduler_left_open_is_closed_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    ledger = await open_ledger(url, clock=lambda: 200.0, ids=lambda: uuid.uuid4().hex)
    try:
        epoch = await ledger.begin_epoch()
        rows = [row("open", "running"), row("over", "running"), row("over", "ended", at=150.0)]
        rows.append(row("ours", "running", kind="training"))
        await ledger.record(epoch=epoch, statuses=(), transitions=rows)
        assert await close_left_open(ledger, epoch=epoch, now=200.0) == 1
        assert await close_left_open(ledger, epoch=epoch, now=201.0) == 0
        last = (await ledger.transitions(workload_uid="open"))[-1]
        assert (last.at, last.to_phase, last.gpu_milli) == (200.0, "ended", 0)
    finally:
        await ledger.close()


class Slow:
    """A ledger whose writes take until they are let go."""

    def __init__(self) -> None:
        self.rows: list[Transition] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def record(self, *, transitions: Sequence[Transition], **_: object) -> Sequence[Meta]:
        self.begun.set()
        await self.go.wait()
        self.rows += transitions
        return ()


async def test_history_that_is_being_written_at_the_end_is_written_once() -> None:
    ledger: Any = Slow()
    nobody: Any = None
    execute = PodExecutor(nobody, ledger, nobody, now=lambda: 0.0, instance="one")
    execute(PodOrders(rows=[row("p", "running")]))
    working = asyncio.create_task(execute.run())
    await ledger.begun.wait()
    execute(PodOrders(rows=[row("q", "running")]))
    working.cancel()
    await asyncio.wait([working])
    ending = asyncio.create_task(execute.flush())
    await asyncio.sleep(0)
    ledger.go.set()
    await ending
    assert [one.workload_uid for one in ledger.rows] == ["p", "q"]


def test_pods_are_counted_by_what_they_wait_for() -> None:
    world = World(nodes=1, gpus=1)
    world.project("a", 1)
    for name in ("p", "q"):
        world.add(name, grouping(name))
    world.add("held", grouping("held"))
    world.see("uid-held", gated=True)
    world.settle()
    counts = pod_counts(
        world.reconciler.current.index.workloads.values(), world.reconciler.current.attempts
    )
    assert counts.pending == {"active": 1, "gated": 1, "unschedulable": 0}
    assert counts.attempts["scheduled"] == 1


def test_a_device_says_which_guest_holds_it() -> None:
    world = World(nodes=1, gpus=1)
    world.project("a", 1)
    world.add("p", grouping("job", kind="Job"))
    world.turn()
    (workload,) = world.reconciler.current.index.workloads.values()
    held = holder_of(workload, 1000, releasing=False, color=3)
    assert (held.name, held.kind, held.state, held.since) == ("p", "Job", "held", world.now)
    world.settle()
    assert holder_of(workload, 1000, releasing=False, color=3).state == "running"
    assert holder_of(workload, 1000, releasing=True, color=3).state == "releasing"


def test_a_pod_counts_for_the_gpus_and_the_group_of_its_node() -> None:
    world = World(nodes=1)
    world.project("a", 4)
    bare = node("n0")
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100", NODE_GROUP: "big"}
    metadata = msgspec.structs.replace(bare.metadata, labels=labels)
    world.news.append(NodeSeen(msgspec.structs.replace(bare, metadata=metadata)))
    world.add("p", grouping("g"))
    world.settle()
    (running,) = [one for one in world.rows if one.to_phase == "running"]
    held = (running.gpu_milli, running.cpu_milli, running.memory_bytes)
    assert held == (1000, 1000, 2**30)
    assert running.places == (
        PlaceUse(
            gpu_type="NVIDIA-H100",
            node_group="big",
            gpu_milli=1000,
            cpu_milli=1000,
            memory_bytes=2**30,
        ),
    )
