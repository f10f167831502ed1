"""A fault story of GPUs from a seed: work comes and goes, and everything fails that can.

After every step: no GPU, share or MIG slot has two users, nor more memory than it has; what the
ledger says of what work holds is what the core holds, and is counted once for its project. Once all
is repaired, every GPU serves again, and all work comes to its end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from typing_extensions import override

from carrel_scheduler.core import mig
from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.events import DevicesSampled
from carrel_scheduler.workloads.state.phases import FINAL, HOLDING
from carrel_schema.objects import Resources
from unit.gpu_faults.faulty_gpus import FATAL, MODEL, FaultyEngine, Gpus
from unit.workloads.harness import NODE, SchedulerHarness

COUNT: Final = 4
QUOTA: Final = 2
PROJECTS: Final = ("vision", "language")
ROUNDS_TO_END: Final = 80
SETTLING: Final = 200


class FaultyHarness(SchedulerHarness):
    """A scheduler that may be killed while it starts work."""

    def __init__(self, *arguments: Any) -> None:
        self.killed = asyncio.Event()
        super().__init__(*arguments)

    @override
    async def settle(self) -> None:
        for _ in range(SETTLING):
            await self.loop.reconcile()
            orders = asyncio.create_task(self.loop.executor.idle())
            killed = asyncio.create_task(self.killed.wait())
            await asyncio.wait({orders, killed}, return_when=asyncio.FIRST_COMPLETED)
            was_killed = self.killed.is_set()
            for one in (orders, killed):
                one.cancel()
            if was_killed:
                await self.crash()
                return
            if self.loop.quiet:
                return
        raise AssertionError("the loop does not come to rest")

    async def crash(self) -> None:
        """The scheduler is killed, and another one starts."""
        self.killed.clear()
        await self.loop.executor.close()
        if isinstance(self.engine, FaultyEngine):
            self.facts = self.engine.gpus.facts()
        await self.recover()


class Story:
    """The random steps of a story; every third story is of divided GPUs."""

    def __init__(self, harness: FaultyHarness, seed: int) -> None:
        self.harness, self.dice = harness, Random(seed)
        self.divided = seed % 3 == 2
        self.gpus = Gpus(COUNT, divided=self.divided)
        self.engine = harness.engine = FaultyEngine(self.gpus, harness.killed)
        self.uids: list[str] = []
        self.over: set[str] = set()
        self.told: list[str] = []

    async def play(self, steps: int) -> None:
        """Make so many steps, then repair, then end everything."""
        await self.harness.crash()
        for name in PROJECTS:
            await self.harness.project(name, QUOTA)
        things: dict[Callable[[], Awaitable[None]], int] = {
            self._submit: 6,
            self._all_run: 5,
            self._one_ends: 3,
            self._the_stopping_end: 5,
            self._pass_time: 2,
            self._look: 2,
            self._scheduler_restarts: 2,
            self._scheduler_dies_in_start: 2,
            self._lose_one: 2,
            self._lose_one_in_start: 2,
            self._reset_driver: 2,
            self._storm: 1,
            self._agent_restarts: 1,
            self._return_to_service: 2,
            self._leave_instance: 1,
        }
        for _ in range(steps):
            (happens,) = self.dice.choices(list(things), list(things.values()))
            self.told.append(happens.__name__.strip("_"))
            await happens()
            await self.check()
        await self._repair()
        await self._finish()

    # What users do

    def _request(self) -> dict[str, Any]:
        if self.divided:
            profile = self.dice.choice(("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "7g.40gb"))
            part = mig.unnamed_milli(mig.model_of(MODEL).profiles[profile])
            asked = Resources(mig_profile=profile, mig_milli=part, memory_bytes=1 << 20)
            return {"resources": asked, "tasks": self.dice.choice((1, 1, 2))}
        return dict(
            self.dice.choice(
                (
                    {"gpus": 1},
                    {"gpus": 2},
                    {"gpus": self.dice.choice((0.25, 0.5, 0.7))},
                    {"resources": Resources(gpu_milli=500, gpu_devices=2, memory_bytes=1 << 20)},
                    {"resources": Resources(gpu_milli=300, gpu_memory_mib=12_000)},
                    {"gpus": 1, "tasks": 2, "kind": "distributed"},
                    {"gpus": 0.5, "tasks": 3, "kind": "distributed"},
                )
            )
        )

    async def _submit(self) -> None:
        name = f"w{len(self.told)}"
        project = self.dice.choice(PROJECTS)
        self.uids.append(
            await self.harness.submit(project, name, backoff_limit=99, **self._request())
        )

    async def _all_run(self) -> None:
        await self.harness.runs(*self.uids)

    async def _one_ends(self) -> None:
        if alive := sorted(self.engine.alive):
            self.harness.finish(self.dice.choice(alive), self.dice.choice((0, 0, 1, None)))
            await self.harness.settle()

    async def _the_stopping_end(self) -> None:
        for task in sorted(self.engine.stopping):
            if task in self.engine.alive and self.dice.random() < 0.7:
                self.harness.finish(task, self.dice.choice((143, 143, None)))
        await self.harness.settle()

    async def _pass_time(self) -> None:
        await self.harness.wait(self.dice.choice((1.0, 10.0, 60.0)))

    # What fails

    async def _look(self) -> None:
        """The GPUs are looked at."""
        self.harness.facts = self.gpus.facts()
        self.harness.loop.enqueue(DevicesSampled(self.harness.facts, ()))
        await self.harness.settle()

    async def _scheduler_restarts(self) -> None:
        await self.harness.crash()

    async def _scheduler_dies_in_start(self) -> None:
        """Kill the scheduler in the next start, before or after the process runs."""
        self.engine.dies_at = self.dice.choice(("before", "after"))
        await self._submit()
        self.engine.dies_at = ""

    async def _lose_one(self) -> None:
        if len(self.gpus.there) > 1:
            self.gpus.gone.add(self.dice.choice(self.gpus.there))
        if self.dice.random() < 0.7:
            await self._look()

    async def _lose_one_in_start(self) -> None:
        """A GPU vanishes while work is being started there, and a look may find it at once."""

        def lose(task: TaskSpec) -> None:
            self.engine.lose = None
            self.gpus.gone.update(task.device_uuids[:1])
            if self.dice.random() < 0.5:
                self.harness.loop.enqueue(DevicesSampled(self.gpus.facts(), ()))

        self.engine.lose = lose
        await self._submit()
        self.engine.lose = None

    async def _reset_driver(self) -> None:
        """Reset the driver: all GPUs vanish and return in another order; some processes survive."""
        there = list(self.gpus.order)
        self.gpus.gone = set(there)
        if self.dice.random() < 0.7:
            await self._look()
        for task in sorted(self.engine.alive):
            if task in self.engine.alive and self.dice.random() < 0.6:
                self.harness.finish(task, None, signal=9)
        self.dice.shuffle(self.gpus.order)
        self.gpus.gone = {self.dice.choice(there)} if self.dice.random() < 0.3 else set()
        if self.dice.random() < 0.3:
            await self.harness.crash()
        else:
            await self._look()

    async def _storm(self) -> None:
        """Report many Xids at once, the same ones again and again."""
        for _ in range(self.dice.choice((1, 5, 40))):
            self.gpus.report_xid(self.dice.choice(self.gpus.order), self.dice.choice(FATAL))
            if self.dice.random() < 0.1:
                await self._look()
        await self._look()

    async def _agent_restarts(self) -> None:
        """Restart the reader of the GPUs, which knows of no Xid then."""
        self.gpus.xids.clear()
        await self._look()

    async def _return_to_service(self) -> None:
        LiveState(self.harness.loop).uncordon(NODE, self.dice.randrange(COUNT))
        await self.harness.settle()

    async def _leave_instance(self) -> None:
        if self.divided:
            self.gpus.leave_instance(self.dice)

    # What holds

    async def check(self) -> None:
        """See the module."""
        self.engine.check()
        held = dict.fromkeys(PROJECTS, 0)
        for uid in self.uids:
            if uid in self.over:
                continue
            rows = await self.harness.ledger.transitions(workload_uid=uid, limit=10_000)
            entry = self.harness.loop.cache.get(uid)
            if entry is None or entry.workload.status.phase not in HOLDING:
                assert rows[-1].gpu_milli == 0, (uid, rows[-1])
                if rows[-1].to_phase in FINAL:
                    self.over.add(uid)
                continue
            counted = shape.held_by(entry.workload.spec, entry.places).gpu_milli
            assert rows[-1].gpu_milli == counted, (uid, rows[-1].gpu_milli, counted)
            held[entry.workload.meta.project] += counted
        use = LiveState(self.harness.loop).project_use()
        assert {name: use[name].gpu_allocated_milli for name in PROJECTS} == held
        nodes = self.harness.loop.state.node_views()
        devices = [device for node in nodes for device in node.devices]
        assert sum(one.gpu_milli for d in devices for one in d.holders) == sum(held.values())
        assert not self.harness.loop.quarantine.counts, self.harness.loop.quarantine.items

    # How it ends

    async def _repair(self) -> None:
        self.gpus.gone.clear()
        self.gpus.xids.clear()
        await self._look()
        for index in range(COUNT):
            LiveState(self.harness.loop).uncordon(NODE, index)
        await self.harness.settle()
        self.told.append("repaired")

    async def _finish(self) -> None:
        """Let all work run and end; then each GPU is there for one that wants all of them."""
        for _ in range(ROUNDS_TO_END):
            await self._all_run()
            for task in sorted(self.engine.alive):
                if task in self.engine.alive:
                    self.harness.finish(task, 143 if task in self.engine.stopping else 0)
            await self.harness.settle()
            await self.harness.wait(600.0)
            await self.check()
            if self.over.issuperset(self.uids):
                break
        left = sorted(set(self.uids) - self.over)
        assert not left, [(uid, await self.harness.phase(uid)) for uid in left]
        [node] = LiveState(self.harness.loop).nodes()
        assert [device.uuid for device in node.devices if device.broken] == []
        assert len(node.devices) == COUNT
        last: dict[str, Any] = {"gpus": COUNT}
        if self.divided:
            last = {"tasks": COUNT, "resources": Resources(mig_profile="7g.40gb")}
        uid = await self.harness.submit("vision", "all-of-it", **last)
        assert await self.harness.phase(uid) == "starting"
        self.engine.check()
