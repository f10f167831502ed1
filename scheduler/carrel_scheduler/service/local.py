"""The environment of one machine: tasks are its processes, and it samples its devices."""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.api.dependencies import NodeAgents, NoNodeAgents
from carrel_scheduler.engines.external import ExternalPods, NoExternalPods, ReconcilerAccess
from carrel_scheduler.engines.node_group_store import LedgerNodeGroups
from carrel_scheduler.node.contract import DeviceProvider, DeviceUse, NodeFacts
from carrel_scheduler.node.mig import MigDevices
from carrel_scheduler.node.processes import met_at
from carrel_scheduler.policy.rights import MayCreate
from carrel_scheduler.service.settings import ServiceSettings
from carrel_scheduler.workloads.launch import fitting
from carrel_scheduler.workloads.launch.fitting import Fitting
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, TaskTokens
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.reconcile.watchers import sample_devices, watch_rendezvous
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.events import LoopEvent
from carrel_scheduler.workloads.state.ports import HeldPorts, PortAllocator

LOOPBACK: Final = "127.0.0.1"


def task_key(state_dir: Path) -> bytes:
    """The key for signing task tokens, created at the first start (mode 0600)."""
    path = state_dir / "task-token.key"
    if not path.exists():
        fresh = path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
        fresh.replace(path)
    return path.read_bytes()


class NotedProvider:
    """A provider that passes each of its readings on at once, in the same thread.

    ``fractions`` is what is said of fractions of real GPUs.
    """

    def __init__(
        self,
        provider: DeviceProvider,
        note: Callable[[Sequence[DeviceUse]], None],
        fractions: Callable[[], str],
    ) -> None:
        self._provider, self._note, self._fractions = provider, note, fractions

    def facts(self) -> NodeFacts:
        """The devices and resources of the machine."""
        facts = self._provider.facts()
        if facts.simulated:
            return facts
        return msgspec.structs.replace(facts, fractions=self._fractions())

    def sample(self, tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:
        """The use of every device; it is recorded before this returns."""
        use = self._provider.sample(tasks_by_device)
        self._note(use)
        return use


class OneMachine:
    """See ``service.Surroundings``."""

    def __init__(
        self, settings: ServiceSettings, provider: DeviceProvider, mig: MigDevices | None = None
    ) -> None:
        self._settings, self._provider = settings, provider
        self.tokens = TaskTokens(task_key(settings.state_dir))
        self.ports: PortAllocator = HeldPorts()
        self.fits: Fitting = partial(fitting.on_machine, mig=mig.model if mig else None)
        self.launch = LaunchSettings(
            api_url=f"http://{settings.host}:{settings.port}{settings.prefix}",
            checkpoint_root=settings.state_dir / "engine" / "checkpoints",
            tokens=self.tokens,
            gateway_prefix=settings.gateway_prefix,
            gateway_url=settings.gateway_url,
        )

    def external_pods(self, access: ReconcilerAccess) -> ExternalPods:
        """The external pods of one machine: none."""
        return NoExternalPods(access.state)

    def host_of(self, _node: str) -> str:
        """The loopback address, for every node."""
        return LOOPBACK

    def trouble(self) -> str:
        """The reason why no work can run; empty: one machine needs no leadership."""
        return ""

    def node_agents(self, _enqueue: Callable[[LoopEvent], None]) -> NodeAgents:
        """None: the scheduler reads this machine's devices itself."""
        return NoNodeAgents()

    def node_groups(self, loop: Reconciler) -> LedgerNodeGroups:
        """The node groups in the ledger."""
        return LedgerNodeGroups(loop.ledger.scoped, loop.enqueue)

    async def facts(self) -> Sequence[NodeFacts]:
        """The facts of this machine."""
        return [self._provider.facts()]

    async def begin(
        self, loop: Reconciler, group: asyncio.TaskGroup, may_create: MayCreate
    ) -> Sequence["asyncio.Task[None]"]:
        """Send the node groups, and start sampling devices and watching rendezvous ports."""
        del may_create  # all work comes over REST, which asks for it
        await self.node_groups(loop).tell()
        return [
            group.create_task(sample_devices(self._provider, loop)),
            group.create_task(watch_rendezvous(met_here, loop)),
        ]

    async def close(self) -> None:
        """No effect: there is nothing to release."""


async def met_here(entry: CachedWorkload, port: int) -> frozenset[int]:
    """The members whose processes are connected to a port of this machine."""
    tasks = entry.workload.status.tasks
    pids = {task.index: task.pid for task in tasks if task.pid and task.ended_at is None}
    return await asyncio.to_thread(met_at, pids, port)
