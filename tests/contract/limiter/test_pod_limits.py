"""The agent of a node has the driver limit pods: no program of a pod goes round its part.

The pods are control groups of a cgroup2 file system that the test mounts, with processes in them;
the driver is that of the tests. Their programs load no limiter.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carrel_scheduler.node.agent import run
from carrel_scheduler.node.contract import MemoryLimit, MemoryLimits, NodeFacts, NodeReport
from carrel_scheduler.node.memory_limits import NO_LIMITS, MemoryLimitError, PodLimits
from carrel_scheduler.node.simulated import SimulatedProvider
from gpu_driver.build import HERE
from gpu_driver.groups import mounted_groups
from gpu_driver.limited import build_cuda
from gpu_driver.session import machine
from gpu_driver.state import MIB, GpuState

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="the driver takes limits from root only"),
]
POD, OTHER = (f"0a0b0c0d-1111-2222-3333-44445555666{n}" for n in range(2))
ALLOCATE = """
from gpu_driver.program import *
cuda = Cuda()
tell([bool(cuda.alloc(4000)), bool(cuda.alloc(96)), bool(cuda.alloc(1))])
"""
JOIN = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
Allocate = Callable[[Path], list[bool]]


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[GpuState]:
    with machine(tmp_path / "gpus", devices=2, memory=16384 * MIB) as state:
        state.has_limits()
        yield state


@pytest.fixture
def kubelet() -> str:
    """The name of the folder of pods; of this test alone."""
    return f"kubepods-{os.getpid()}.slice"


@pytest.fixture
def system(tmp_path: Path, kubelet: str) -> Iterator[Path]:
    pod = f"{kubelet}/kubepods-pod{POD.replace('-', '_')}.slice/cri-1.scope"
    with mounted_groups(tmp_path / "groups", pod) as folder:
        yield folder


@pytest.fixture
def container(system: Path, kubelet: str) -> Path:
    return next((system / kubelet).glob("*/cri-1.scope"))


@pytest.fixture
def allocate(tmp_path: Path, gpus: GpuState) -> Allocate:
    """Runs a program in a control group."""
    drivers = build_cuda(tmp_path / "drivers")

    def run_in(group: Path) -> list[bool]:
        found = subprocess.run(
            ["sh", "-c", JOIN, group, sys.executable, "-S", "-c", ALLOCATE],
            env={
                "LD_LIBRARY_PATH": str(drivers),
                "CARREL_TEST_GPU_STATE": str(gpus.path),
                "PYTHONPATH": str(HERE.parent),
            },
            stdout=subprocess.PIPE,
            check=True,
        )
        return list(json.loads(found.stdout))

    return run_in


def part(gpus: GpuState, pod: str = POD, mib: int = 4096) -> MemoryLimit:
    device = gpus.layout.devices[0].uuid.decode()
    return MemoryLimit(pod=pod, device=device, memory_mib=mib)


def test_a_container_has_the_part_of_its_pod(
    system: Path,
    container: Path,
    gpus: GpuState,
    allocate: Allocate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert allocate(container) == [True, True, True]
    limits = PodLimits(system)
    limits.try_driver()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            limits.apply([part(gpus, mib=4097), part(gpus, OTHER)])
    assert caplog.text.count("4097 MiB") == 1
    assert limits.refusal == ""
    assert list(gpus.limits().values()) == [4096 * MIB]
    assert allocate(container) == [True, True, False]
    assert allocate(system) == [True, True, True]


def test_the_agent_limits_what_the_scheduler_answers_and_reports_a_refusal(
    system: Path, container: Path, gpus: GpuState, caplog: pytest.LogCaptureFixture
) -> None:
    node = NodeFacts(name="node-1", cpu_milli=1, memory_mib=1, devices=(), simulated=False)
    provider = SimulatedProvider(node, count=1, memory_mib=1024, name="A10")
    reports: list[NodeReport] = []

    def send(report: NodeReport) -> MemoryLimits:
        reports.append(report)
        gpus.layout.limits_answer = 4 if len(reports) == 2 else 0
        return MemoryLimits(limits=(part(gpus),) if len(reports) > 1 else ())

    limits = PodLimits(system)
    run(provider, send, 1.0, lambda _: len(reports) == 4, limits=limits)
    assert {one.limits_memory for one in reports} == {True}
    refusals = [bool(one.limit_refusal) for one in reports]
    assert refusals == [False, False, True, False]
    assert POD in reports[2].limit_refusal
    assert caplog.text.count("Insufficient Permissions") == 1
    assert list(gpus.limits().values()) == [4096 * MIB]
    assert container.is_dir()


def test_an_older_driver_is_found_before_anything_is_limited(system: Path, gpus: GpuState) -> None:
    gpus.has_limits(answer=3)
    with pytest.raises(MemoryLimitError, match=NO_LIMITS):
        PodLimits(system).try_driver()
    with pytest.raises(MemoryLimitError, match="version 2"):
        PodLimits(system / "nowhere").try_driver()
    assert not list(system.glob("carrel-node-trial-*"))
