"""Reports of many nodes reach the reconciler together, with workloads in the place of pods."""

import asyncio
from collections.abc import Container, Mapping

import pytest

from carrel_scheduler.node.contract import (
    DeviceUse,
    MemoryLimit,
    MemoryLimits,
    NodeReport,
    OwnerUse,
)
from carrel_scheduler.service import node_agents
from carrel_scheduler.service.node_agents import ClusterNodeAgents
from carrel_scheduler.workloads.state.events import LoopEvent, NodeReported


async def test_the_last_report_of_each_node_is_told_with_the_names_of_workloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_agents, "GATHER_SECONDS", 0.0)
    told: list[NodeReported] = []
    both, tokens, instances = asyncio.Event(), None, None

    def tell(event: LoopEvent) -> None:
        assert isinstance(event, NodeReported)
        told.append(event)
        if len(told) == 2:
            both.set()

    def known_gpus(nodes: Container[str]) -> Mapping[str, Mapping[str, frozenset[str]]]:
        gpus = {"w-1": frozenset({"GPU-0"})}
        return {node: gpus for node in ("node-1", "node-2") if node in nodes}

    pods = {"pod-1": "w-1", "pod-2": "w-1", "pod-3": "w-2"}
    agents = ClusterNodeAgents(tokens, pods.get, known_gpus, tell, instances)  # type: ignore[arg-type]
    owners = tuple(
        OwnerUse(owner=pod, utilization=0.25, memory_used_mib=10)
        for pod in ("pod-1", "pod-2", "pod-3", "of somebody else")
    )
    use = DeviceUse(index=0, utilization=1.0, memory_used_mib=40, owners=owners)
    for driver in ("old", "new"):
        agents.take("node-1", NodeReport(driver=driver, devices=(), use=(use,)))
    doubtful = DeviceUse(index=0, utilization=1.0, memory_used_mib=40, attributed=False)
    agents.take("node-2", NodeReport(driver="", devices=(), use=(doubtful,)))
    assert not told
    await asyncio.wait_for(both.wait(), 30.0)
    first, second = told
    assert (first.node, first.report.driver, second.node) == ("node-1", "new", "node-2")
    assert [(one.owner, one.utilization) for one in first.report.use[0].owners] == [
        ("w-1", 0.5),
        ("w-2", 0.25),
    ]
    known = {"w-1": frozenset({"GPU-0"})}
    assert (first.known_gpus, second.known_gpus) == ({}, known), "only where that matters"


@pytest.mark.parametrize("limited", [True, False])
async def test_an_agent_is_answered_which_memory_to_limit_unless_that_is_off(
    monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    monkeypatch.setattr(node_agents, "GATHER_SECONDS", 0.0)
    told: asyncio.Future[LoopEvent] = asyncio.get_running_loop().create_future()
    parts = {"node-1": (MemoryLimit(pod="pod-1", device="GPU-0", memory_mib=4096),)}
    tokens, instances = None, None
    agents = ClusterNodeAgents(
        tokens,  # type: ignore[arg-type]
        lambda _: None,
        lambda _: {},
        told.set_result,
        instances,  # type: ignore[arg-type]
        (lambda node: parts.get(node, ())) if limited else None,
    )
    report = NodeReport(driver="", devices=(), use=(), limits_memory=True)
    expected = parts["node-1"] if limited else ()
    assert agents.take("node-1", report) == MemoryLimits(limits=expected)
    event = await asyncio.wait_for(told, 30.0)
    assert isinstance(event, NodeReported)
    assert event.report.limits_memory is limited
