"""A fault story from a seed: pods and work under two quotas, schedulers killed and replaced.

What must hold whenever anybody looks: no device has two pods, no node gives away more than it has.
Once all has settled: whatever should run does, no gang runs in part, no work is lost, and that took
not long.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from carrel_scheduler.kube.errors import KubeError, NotFound
from carrel_scheduler.kube.resources import NODES, PODS
from carrel_schema.names import TASK
from k8s.fault_site import FaultSite
from k8s.scheduler_replicas import SchedulerReplica

GROUP: Final = "kueue.x-k8s.io/pod-group-name"
TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
NODE_COUNT: Final = 3
NODE_GPUS: Final = 8
QUOTA: Final = 8
SINGLES: Final = 4
TRAININGS: Final = 2
GANG: Final = 2
STEPS: Final = 6
TIMEOUT_SECONDS: Final = 240.0
LONG_SECONDS: Final = 10.0
"""Settling in more than this is told what it waited for."""
KILL_SECONDS: Final = 6.0
"""So long a scheduler is waited for that is to be killed at a write."""
KILLED: Final = 0.06
Break = Callable[[], Awaitable[None]]
PAUSES: Final = (0.0, 0.05, 0.3, 0.6)


@dataclass
class Story:
    """A run of a story.

    Attributes:
        here: where it happens.
        replicas: the first has a scheduler always, the second may get one.
        breaks: faults of the server itself, by name.
        told: what happened.
    """

    here: FaultSite
    replicas: tuple[SchedulerReplica, SchedulerReplica]
    chance: random.Random
    breaks: dict[str, Break] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    expected: set[str] = field(default_factory=set)
    gangs: dict[str, set[str]] = field(default_factory=dict)
    work: dict[str, int] = field(default_factory=dict)

    async def tell(self) -> float:
        """Run it; returns how long settling took, in seconds."""
        await self.here.add_nodes(NODE_COUNT, NODE_GPUS)
        for word in ("a", "b"):
            await self.here.add_project(word, QUOTA)
        self.replicas[0].start(faulty=True)
        for _ in range(STEPS):
            await self._step()
        for replica in self.replicas:
            await replica.await_kill(KILL_SECONDS)
            replica.stop_faults()
        return await self._settled()

    async def _step(self) -> None:
        await self._happen()
        await asyncio.sleep(self.chance.choice(PAUSES))
        await self.here.check_room()
        for replica in self.replicas:
            if replica.process is not None and (replica.ended or self.chance.random() < KILLED):
                await self._follow(replica, faulty=self.chance.random() < 0.5)
        second = self.replicas[1]
        if second.process is None and self.chance.random() < 0.2:
            self.told.append("a rival")
            second.start(faulty=self.chance.random() < 0.3)

    async def _follow(self, replica: SchedulerReplica, *, faulty: bool) -> None:
        """Kill the replica and start it again, as a kubelet restarts a container."""
        await replica.kill()
        self.told.append(f"{replica.name} killed")
        replica.start(faulty=faulty)

    async def _happen(self) -> None:
        replica = self.chance.choice([one for one in self.replicas if one.process is not None])
        things: dict[str, Break] = {
            "single": self._add_single,
            "gang": self._add_gang,
            "training": self._add_training,
            "distributed": self._add_distributed,
            "delete": self._delete_one,
            "node": self._delete_node,
            "clock": replica.jump,
            "cut within an event": replica.cut,
            "slow": replica.slow,
            "reset": replica.reset,
            "sleep": replica.sleep,
            **self.breaks,
        }
        often = ("single", "gang", "training", "distributed")
        what = self.chance.choice((*often, *often, *things))
        self.told.append(what)
        await things[what]()

    async def _add_single(self) -> None:
        if len(self.expected) < SINGLES:
            name = f"s{len(self.told)}"
            self.expected.add(name)
            await self.here.add_pod(self.chance.choice("ab"), name)

    async def _add_gang(self) -> None:
        if len(self.gangs) >= 1:
            return
        name, word = f"g{len(self.told)}", self.chance.choice("ab")
        self.gangs[name] = {f"{name}-{number}" for number in range(GANG)}
        for member in sorted(self.gangs[name]):
            pod = self.here.pod(member, 2)
            pod["metadata"] |= {"labels": {GROUP: name}, "annotations": {TOTAL: str(GANG)}}
            await self.here.client.create(PODS, pod, self.here.namespace(word))
            await asyncio.sleep(self.chance.choice((0.0, 0.1)))

    async def _add_training(self) -> None:
        if list(self.work.values()).count(1) < TRAININGS:
            await self._add_work("training", 1)

    async def _add_distributed(self) -> None:
        if GANG not in self.work.values():
            await self._add_work("distributed", GANG)

    async def _add_work(self, kind: str, tasks: int) -> None:
        name = f"w{len(self.told)}"
        self.work[name] = tasks
        await self.here.add_work(self.chance.choice("ab"), name, kind, tasks, 1)

    async def _delete_one(self) -> None:
        """Delete a pod without telling anybody."""
        pods = sorted(self.here.pods.values(), key=lambda pod: pod.metadata.name)
        if pods:
            await self._delete(self.chance.choice(pods).metadata.uid)

    async def _delete(self, uid: str) -> None:
        meta = self.here.pods[uid].metadata
        self.expected.discard(meta.name)
        with suppress(KubeError):
            await self.here.client.delete(PODS, meta.name, meta.namespace, grace_seconds=0)

    async def _delete_node(self) -> None:
        """Delete at most one node and its pods, as the cluster's garbage collector does."""
        if len(self.here.nodes) < NODE_COUNT:
            return
        name = self.chance.choice(sorted(self.here.nodes))
        del self.here.nodes[name]
        with suppress(NotFound):
            await self.here.client.delete(NODES, name)
        await self._collect()

    async def _collect(self) -> None:
        """Pods that are bound to a node that is no more."""
        for uid, pod in list(self.here.pods.items()):
            leaving = pod.metadata.deletion_timestamp is not None and TASK in pod.metadata.labels
            if pod.spec.node_name and pod.spec.node_name not in self.here.nodes and not leaving:
                await self._delete(uid)

    # How it ends

    async def _settled(self) -> float:
        """A scheduler that ended is started again, as its Deployment does."""
        began, late = time.monotonic(), ""
        while problem := await self._problem():
            took = time.monotonic() - began
            assert took < TIMEOUT_SECONDS, f"{problem}: {self.told}"
            if took > LONG_SECONDS and problem != late:
                late = problem
                self.told.append(f"after {took:.0f} s {problem}")
            for replica in self.replicas:
                if replica.process is not None and replica.ended:
                    await self._follow(replica, faulty=False)
            await self._collect()
            self.here.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self.here.changed.wait()
        return time.monotonic() - began

    async def _problem(self) -> str:
        await self.here.check_room()
        there = {pod.metadata.name: pod for word in "ab" for pod in self.here.of(word).values()}
        bound = {name for word in "ab" for name in self.here.bound(word)}
        # Whoever was told to give way (by a faulty gang's end, say) is gone with nobody's fault.
        if lost := sorted((self.expected & there.keys()) - bound):
            return f"{lost} do not run"
        for name, members in self.gangs.items():
            running = members & bound
            if running and len(running) < GANG:
                return f"gang {name} runs in part"
            if members <= there.keys() and not running:
                return f"gang {name} does not run"
        return await self._problem_of_work()

    async def _problem_of_work(self) -> str:
        """The problem if a workload does not run with all of its tasks; else empty."""
        found = await self.here.work()
        for name, tasks in self.work.items():
            if name not in found:
                return f"{name} is lost"
            one = found[name]
            running = self.here.tasks_of(one.meta.uid)
            if len(running) != tasks:
                return f"{name} runs with {len(running)} tasks of {tasks}: {one.status.phase}"
            if one.status.phase != "running":
                return f"{name} is {one.status.phase}: {one.status.reason}"
        return ""
