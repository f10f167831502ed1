"""The scheduler harness: real core, real ledger, virtual time, and an engine driven by the test."""

import itertools
import math
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from carrel_scheduler.core.invariants import state as invariants
from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    EngineError,
    ExecSession,
    LogRequest,
    NotOnThisNode,
    TaskId,
    TaskPhase,
    TaskSpec,
    TaskStatus,
    UnknownTask,
)
from carrel_scheduler.engines.external import ExternalPods, NoExternalPods, ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.ledger.records import Ledger, Transition
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.node.contract import Device, DeviceUse, NodeFacts
from carrel_scheduler.workloads.contract import Activity
from carrel_scheduler.workloads.gangs.stalling import StallRule
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, TaskTokens
from carrel_scheduler.workloads.nodes.gpu_memory import Enforcement
from carrel_scheduler.workloads.reconcile.executor import Executor, HubRefused
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.reconcile.recovery import recover
from carrel_scheduler.workloads.state.events import (
    DevicesSampled,
    ProjectChanged,
    TaskSeen,
    WorkloadChanged,
)
from carrel_schema.answers import DeviceView
from carrel_schema.objects import (
    InteractiveLimits,
    Meta,
    Project,
    ProjectSpec,
    Quota,
    Resources,
    TrainingLimits,
    Workload,
    WorkloadSpec,
)

NODE = "desk"
LOOK_SECONDS = 30.0


def node_facts(gpus: int, cpu_milli: int = 64_000, memory_mib: int = 256_000) -> NodeFacts:
    devices = tuple(
        Device(index=i, uuid=f"SIM-{i}", name="A10", memory_mib=24_000, simulated=True)
        for i in range(gpus)
    )
    return NodeFacts(
        name=NODE, cpu_milli=cpu_milli, memory_mib=memory_mib, devices=devices, simulated=True
    )


class ControlledEngine:
    """An engine whose processes start and end as the test says."""

    def __init__(self) -> None:
        self.specs: dict[TaskId, TaskSpec] = {}
        self.alive: dict[TaskId, TaskStatus] = {}
        self.ended: dict[TaskId, TaskStatus] = {}
        self.stopping: dict[TaskId, float] = {}
        self.removed: list[str] = []
        self.refuse = ""
        self.refuse_here = ""
        self.deaf = 0

    async def start(self, task: TaskSpec) -> None:
        if task.id in self.specs:
            raise AlreadyStarted(str(task.id))
        if self.refuse:
            raise EngineError(self.refuse)
        if self.refuse_here:
            raise NotOnThisNode(self.refuse_here)
        self.specs[task.id] = task
        self.alive[task.id] = TaskStatus(
            id=task.id, phase=TaskPhase.STARTING, node=task.node, devices=task.devices
        )

    def interrupt_start(self, task: TaskId) -> None:
        """Do nothing: every start is done at once."""

    async def stop(self, task: TaskId, grace_seconds: float) -> None:
        if self.deaf:
            self.deaf -= 1
            raise EngineError("nobody answers")
        if task in self.alive:
            self.stopping[task] = grace_seconds
        elif task not in self.ended:
            raise UnknownTask(str(task))

    async def list(self) -> Sequence[TaskStatus]:
        return [*self.alive.values(), *self.ended.values()]

    async def forget(self, task: TaskId) -> None:
        self.ended.pop(task, None)

    async def remove_workload(self, workload_uid: str) -> None:
        self.removed.append(workload_uid)

    async def watch(self) -> AsyncIterator[TaskStatus]:
        nothing: Sequence[TaskStatus] = ()
        for status in nothing:
            yield status

    async def logs(self, workload_uid: str, _request: LogRequest) -> AsyncIterator[bytes]:
        yield workload_uid.encode()

    async def exec(self, task: TaskId, command: Sequence[str]) -> ExecSession:
        raise EngineError(f"{task}: {command}")

    async def close(self) -> None:
        self.alive.clear()


class RecordingHub:
    """Remembers whom it was asked to start."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refuse = ""

    async def start_workspace(self, workload: Workload) -> None:
        if self.refuse:
            raise HubRefused(self.refuse)
        self.asked.append(workload.meta.name)


class SchedulerHarness:
    """Runs a reconciler pass by pass, in virtual time."""

    def __init__(
        self,
        ledger: Ledger,
        tmp_path: Path,
        gpus: int = 4,
        external_pods: Callable[[ReconcilerAccess], ExternalPods] = ExternalPodReconciler,
    ) -> None:
        self.external_pods = external_pods
        self.now = 1_000_000.0
        self.ledger = ledger
        self.engine = ControlledEngine()
        self.hub = RecordingHub()
        self.facts = node_facts(gpus)
        self.settings = LaunchSettings(
            api_url="http://127.0.0.1:1/services/carrel",
            checkpoint_root=tmp_path / "checkpoints",
            tokens=TaskTokens(b"k" * 32),
        )
        self.gpu_memory: Enforcement = "warn"
        self.busy: tuple[int, ...] | None = None
        self.stall_rule = StallRule()
        self.uids = (f"uid{number}" for number in itertools.count(1))
        self.loop = self._fresh()

    def _fresh(self) -> Reconciler:
        executor = Executor(self.engine, self.ledger, self.settings, self.hub)
        return Reconciler(
            self.ledger,
            executor,
            clock=lambda: self.now,
            external_pods=self.external_pods,
            gpu_memory=self.gpu_memory,
            stall_rule=self.stall_rule,
        )

    async def recover(self) -> None:
        """Start, or start again after a crash: nothing of the old loop is kept."""
        self.loop = self._fresh()
        await recover(self.loop, [self.facts], await self.engine.list())
        await self.settle()
        if self.busy is not None:
            await self.gpus_work(*self.busy)

    async def settle(self) -> None:
        """Turn until nothing is left to do; the invariants hold after every turn."""
        for _ in range(200):
            await self.loop.reconcile()
            await self.loop.executor.idle()
            assert invariants.check(self.loop.state) == []
            if self.loop.quiet:
                return
        raise AssertionError("the loop does not come to rest")

    async def wait(self, seconds: float) -> None:
        """Let time pass, stopping at every timer, and at every look at the devices once begun."""
        end, look = self.now + seconds, self.now + LOOK_SECONDS
        while (due := self._due(look)) <= end:
            self.now = max(self.now, due)
            if self.busy is not None and look <= self.now:
                look += LOOK_SECONDS
                await self.gpus_work(*self.busy)
            await self.settle()
        self.now = end
        await self.settle()

    def _due(self, look: float) -> float:
        due = self.loop.next_deadline()
        return min(math.inf if due is None else due, math.inf if self.busy is None else look)

    async def project(
        self,
        name: str,
        gpus: int,
        *,
        interactive: InteractiveLimits | None = None,
        training: TrainingLimits | None = None,
        **spec: Any,
    ) -> Project:
        made = await self.ledger.create(
            Project(
                meta=Meta(name=name, created_at=self.now),
                spec=ProjectSpec(
                    quota=Quota(gpu_milli=gpus * 1000),
                    interactive=interactive or InteractiveLimits(),
                    training=training or TrainingLimits(),
                    **spec,
                ),
            )
        )
        self.loop.enqueue(
            ProjectChanged(Change(ChangeType.ADDED, made.meta.resource_version, made))
        )
        await self.settle()
        return made

    async def submit(
        self, project: str, name: str, gpus: float = 1, *, user: str = "", **spec: Any
    ) -> str:
        """Submit and settle; returns the uid."""
        self.now += 0.001
        spec.setdefault("command", ["python", "train.py"])
        asked = Resources(gpu_milli=round(gpus * 1000), cpu_milli=100, memory_bytes=1 << 20)
        spec.setdefault("resources", asked)
        who = user or f"{project}-researcher"
        workload = Workload(
            meta=Meta(
                name=name,
                project=project,
                uid=next(self.uids),
                created_at=self.now,
                created_by=who,
            ),
            spec=WorkloadSpec(
                user=who,
                **spec,
            ),
        )
        workload.status.queued_at = self.now
        first = Transition(
            at=self.now,
            epoch=0,
            workload_uid=workload.meta.uid,
            workload=name,
            project=project,
            user=who,
            kind=workload.spec.kind,
            attempt=0,
            from_phase="",
            to_phase="pending",
        )
        stored = await self.ledger.create_workload(workload, secrets={}, transition=first)
        self._changed(stored)
        await self.settle()
        return stored.meta.uid

    async def change(self, uid: str, *, settle: bool = True, **fields: Any) -> None:
        """Change the specification as the API does."""
        workload = await self.ledger.get_by_uid(Workload, uid)
        for name, value in fields.items():
            setattr(workload.spec, name, value)
        self._changed(await self.ledger.update(workload))
        if settle:
            await self.settle()

    async def resume(self, uid: str) -> None:
        """Resume as the API does."""
        spec = (await self.stored(uid)).spec
        await self.change(uid, suspend=False, resumes=spec.resumes + 1)

    def _changed(self, workload: Workload) -> None:
        version = workload.meta.resource_version
        self.loop.enqueue(WorkloadChanged(Change(ChangeType.MODIFIED, version, workload)))

    async def stored(self, uid: str) -> Workload:
        return await self.ledger.get_by_uid(Workload, uid)

    async def phase(self, uid: str) -> str:
        return (await self.stored(uid)).status.phase

    async def phases(self, *uids: str) -> list[str]:
        return [await self.phase(uid) for uid in uids]

    def tasks_of(self, uid: str) -> list[TaskId]:
        return sorted(task for task in self.engine.alive if task.workload_uid == uid)

    async def runs(self, *uids: str) -> None:
        """The processes of these workloads are up."""
        for uid in uids:
            for task in self.tasks_of(uid):
                status = msgspec.structs.replace(
                    self.engine.alive[task],
                    phase=TaskPhase.RUNNING,
                    pid=4242,
                    started_at=self.now,
                )
                self.engine.alive[task] = status
                self.loop.enqueue(TaskSeen(status))
        await self.settle()

    async def ends(self, uid: str, exit_code: int | None = 0, *, signal: int = 0) -> None:
        """End all processes of the workload."""
        for task in self.tasks_of(uid):
            self.finish(task, exit_code, signal=signal)
        await self.settle()

    def finish(self, task: TaskId, exit_code: int | None = 0, *, signal: int = 0) -> None:
        """End one process."""
        status = msgspec.structs.replace(
            self.engine.alive.pop(task),
            phase=TaskPhase.ENDED,
            ended_at=self.now,
            exit_code=exit_code,
            signal=signal,
        )
        self.engine.stopping.pop(task, None)
        self.engine.ended[task] = status
        self.loop.enqueue(TaskSeen(status))

    async def computes(self, user: str, *, since: float) -> None:
        """A heartbeat of that user's workspace: a cell has been running silently."""
        told = Activity(at=self.now, busy_since=since, last_input_at=since, kernels=1)
        await LiveState(self.loop).activity(user, "", told)
        await self.settle()

    async def gpus_work(self, *indices: int) -> None:
        """The node's devices are looked at, from now on again and again; these are busy."""
        self.busy = indices
        use = tuple(
            DeviceUse(
                index=device.index,
                utilization=1.0 if device.index in indices else 0.0,
                memory_used_mib=0,
            )
            for device in self.facts.devices
        )
        self.loop.enqueue(DevicesSampled(self.facts, use))
        await self.settle()


class MachineHarness(SchedulerHarness):
    """A harness on one machine."""

    def __init__(self, ledger: Ledger, tmp_path: Path, gpus: int = 4) -> None:
        super().__init__(ledger, tmp_path, gpus, lambda access: NoExternalPods(access.state))


def devices_of(harness: SchedulerHarness, node: str = NODE) -> list[DeviceView]:
    return list(next(one for one in LiveState(harness.loop).nodes() if one.name == node).devices)


def on_device(harness: SchedulerHarness, device: int) -> TaskId:
    return next(one for one in harness.engine.alive if device in harness.engine.specs[one].devices)
