"""Random stories of gangs and elastic work: nothing is lost, doubled or miscounted."""

import random

import pytest

from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.phases import FINAL, HOLDING
from carrel_schema.sections import Elastic, Rendezvous
from unit.workloads.harness import SchedulerHarness

STEPS = 60


class Story:
    """What may happen, drawn from a seed."""

    def __init__(self, harness: SchedulerHarness, seed: int) -> None:
        self.harness, self.chance = harness, random.Random(seed)
        self.uids: list[str] = []

    async def step(self) -> None:
        happens = self.chance.choices(
            (self.submit, self.all_run, self.one_ends, self.stopping_end, self.control, self.pause),
            (3, 5, 3, 5, 1, 2),
        )[0]
        await happens()

    async def submit(self) -> None:
        project = self.chance.choice(("vision", "language"))
        name = f"w{len(self.uids)}"
        workers = self.chance.randint(2, 4)
        gang = {"kind": "distributed", "tasks": workers, "gpus": 1}
        kind = self.chance.choice(
            (
                {"gpus": self.chance.choice((0.3, 1, 2))},
                gang,
                gang | {"elastic": Elastic(min_tasks=1)},
                gang | {"elastic": Elastic(min_tasks=1), "preemptible": False},
                gang | {"rendezvous": Rendezvous(launcher="mpi")},
                {"gpus": 2, "elastic": Elastic(gpus_of_task=True)},
                {"gpus": 1, "kind": "workspace", "preemptible": False},
            )
        )
        self.uids.append(await self.harness.submit(project, name, backoff_limit=2, **kind))

    async def all_run(self) -> None:
        await self.harness.runs(*self.uids)

    async def one_ends(self) -> None:
        alive = sorted(self.harness.engine.alive)
        if alive:
            self.harness.finish(self.chance.choice(alive), self.chance.choice((0, 0, 1, None)))
            await self.harness.settle()

    async def stopping_end(self) -> None:
        for task in sorted(self.harness.engine.stopping):
            if task in self.harness.engine.alive and self.chance.random() < 0.7:
                self.harness.finish(task, self.chance.choice((143, 143, 143, 0)))
        await self.harness.settle()

    async def control(self) -> None:
        entries = [entry.uid for entry in self.harness.loop.cache]
        if not entries:
            return
        uid = self.chance.choice(entries)
        phase = await self.harness.phase(uid)
        if phase == "stopped":
            await self.harness.resume(uid)
        elif phase not in FINAL:
            await self.harness.change(uid, suspend=True)

    async def pause(self) -> None:
        await self.harness.wait(self.chance.choice((1.0, 10.0, 60.0)))

    async def check(self) -> None:
        """What is written is what the core holds, and who holds something has somebody at work."""
        held = 0
        for uid in self.uids:
            rows = await self.harness.ledger.transitions(workload_uid=uid, limit=10_000)
            held += rows[-1].gpu_milli
            entry = self.harness.loop.cache.get(uid)
            if entry is None or entry.workload.status.phase not in HOLDING:
                assert rows[-1].gpu_milli == 0
                continue
            spec = entry.workload.spec
            assert rows[-1].gpu_milli == shape.held_by(spec, entry.places).gpu_milli
            assert entry.alive == {task.index for task in self.harness.tasks_of(uid)}
            assert entry.alive or entry.needs_claim
        nodes = self.harness.loop.state.node_views()
        in_core = sum(
            one.gpu_milli for node in nodes for device in node.devices for one in device.holders
        )
        assert held == in_core


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_is_accounted_for(harness: SchedulerHarness, seed: int) -> None:
    await harness.project("vision", 2)
    await harness.project("language", 2)
    story = Story(harness, seed)
    for _ in range(STEPS):
        await story.step()
        await story.check()
    for uid in story.uids:
        try:
            await harness.change(uid, delete=True)
        except ObjectNotFound:
            continue
    for task in sorted(harness.engine.alive):
        if task in harness.engine.alive:
            harness.finish(task, 143)
            await harness.settle()
    assert not tuple(harness.loop.cache.holding)
