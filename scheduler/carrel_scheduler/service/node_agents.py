"""Agents on the nodes of a cluster, as the API hears them: see ``api.dependencies.NodeAgents``."""

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final

import msgspec

from carrel_scheduler.engines.kubernetes.node_tokens import NodeTokens
from carrel_scheduler.engines.kubernetes.shared_gpus.instances import MigInstances
from carrel_scheduler.node.contract import (
    MemoryLimit,
    MemoryLimits,
    MigOrders,
    MigReport,
    NodeReport,
)
from carrel_scheduler.workloads.state import gpu_use
from carrel_scheduler.workloads.state.events import LoopEvent, NodeReported

GATHER_SECONDS: Final = 1.0


class ClusterNodeAgents:
    """Authenticates agents and turns their reports into events.

    Args:
        tokens: knows the agents.
        workload_of: the workload whose pod this is, by the pod's uid or by namespace and name.
        known_gpus: UUIDs of the GPUs of workloads on some nodes, by node and by workload.
        enqueue: takes events of the reconciler.
        instances: what agents are to make.
        memory_limits: the parts of GPUs' memory of pods of a node; ``None``: none is limited.
    """

    def __init__(
        self,
        tokens: NodeTokens,
        workload_of: Callable[[str], str | None],
        known_gpus: Callable[[Container[str]], Mapping[str, Mapping[str, frozenset[str]]]],
        enqueue: Callable[[LoopEvent], None],
        instances: MigInstances,
        memory_limits: Callable[[str], Sequence[MemoryLimit]] | None = None,
    ) -> None:
        self._instances, self._memory_limits = instances, memory_limits
        self._tokens, self._enqueue = tokens, enqueue
        self._workload_of, self._known_gpus = workload_of, known_gpus
        self._waiting: dict[str, NodeReport] = {}

    async def node_of(self, token: str) -> str | None:
        """The node of the agent with this token."""
        return await self._tokens.node_of(token)

    def take(self, node: str, report: NodeReport) -> MemoryLimits:
        """Take in what the agent on a node saw; the reports of a second become one pass."""
        if self._memory_limits is None:
            report = msgspec.structs.replace(report, limits_memory=False)
        if not self._waiting:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._tell)
        self._waiting[node] = report
        limits = () if self._memory_limits is None else self._memory_limits(node)
        return MemoryLimits(limits=tuple(limits))

    async def exchange(self, node: str, report: MigReport) -> MigOrders:
        """Answer the agent on a node which MIG instances are wanted there."""
        return await self._instances.exchange(node, report)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, {}
        doubtful = {node for node, report in waiting.items() if not _is_attributed(report)}
        known = self._known_gpus(doubtful) if doubtful else {}
        for node, report in waiting.items():
            use = tuple(gpu_use.named(one, self._workload_of) for one in report.use)
            told = msgspec.structs.replace(report, use=use)
            self._enqueue(NodeReported(node, told, known.get(node, {})))


def _is_attributed(report: NodeReport) -> bool:
    return all(one.attributed for one in report.use)
