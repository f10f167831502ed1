"""The agent on a node of a cluster: what it sends, to whom, and what it does when that fails."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pynvml
import pytest

from carrel_scheduler.environment import InvalidVariable
from carrel_scheduler.node import dcgm
from carrel_scheduler.node.agent import AgentSettings, look
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.node.dcgm import DcgmProvider, DcgmUnavailable
from carrel_scheduler.node.nvml import NvmlProvider, open_nvml
from carrel_scheduler.node.owners import PodOwners
from gpu_driver.session import machine
from gpu_driver.state import MIB, GpuState

POD = "0a0b0c0d-1111-2222-3333-444455556666"
NODE = NodeFacts(name="node-1", cpu_milli=0, memory_mib=0, devices=(), simulated=False)
ENVIRONMENT = {"CARREL_NODE_NAME": "node-1", "CARREL_API_URL": "http://127.0.0.1:1/x/"}


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[GpuState]:
    with machine(tmp_path / "gpus", devices=2) as state:
        assert open_nvml(pynvml)
        yield state


def of_pod(proc: Path, pid: int, pod: str = POD) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{pod}/c\n")


def test_a_look_tells_the_use_of_each_pod_and_no_numbers_of_processes(
    gpus: GpuState, tmp_path: Path
) -> None:
    of_pod(tmp_path / "proc", 70)
    of_pod(tmp_path / "proc", 71)
    gpus.layout.devices[1].utilization_gpu = 80
    for pid in (70, 71):
        gpus.list_process(1, pid, memory=10 * MIB, sm_percent=30, sampled_us=5)
    report = look(NvmlProvider(NODE, pynvml, owners=PodOwners(tmp_path / "proc")))
    assert [device.index for device in report.devices] == [0, 1]
    [own] = report.use[1].owners
    assert (own.owner, own.utilization, own.memory_used_mib) == (POD, 0.6, 20)
    assert b"70" not in msgspec.json.encode(report.use[1].pids)
    gpus.list_process(0, 99, memory=MIB)
    assert not look(NvmlProvider(NODE, pynvml, owners=PodOwners(tmp_path))).use[0].attributed


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"CARREL_NODE_NAME": ""}, "CARREL_NODE_NAME"),
        ({"CARREL_API_URL": "file:///etc/passwd"}, "http"),
        ({"CARREL_DCGM_URL": "ftp://x"}, "http"),
        ({"CARREL_DCGM_URL": "http://x", "CARREL_GPU_LIMITS": "on"}, "CARREL_GPU_LIMITS=on"),
        ({"CARREL_GPU_LIMITS": "yes"}, "CARREL_GPU_LIMITS"),
        ({"CARREL_NODE_SECONDS": "0"}, "1 to 30"),
        ({"CARREL_NODE_SECONDS": "often"}, "1 to 30"),
    ],
)
def test_senseless_settings_are_refused(change: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidVariable, match=word):
        AgentSettings.from_environment(ENVIRONMENT | change)


LABELS = 'gpu="%d",UUID="GPU-%d",modelName="NVIDIA H200",namespace="%s",pod="%s"'


def gpu(index: int, values: Mapping[str, float], pod: str = "", more: str = "") -> list[str]:
    """What an exporter says of a GPU; ``pod`` has its namespace before it."""
    namespace, _, name = pod.partition("/")
    labels = LABELS % (index, index, namespace, name) + more
    return [f"DCGM_FI_DEV_{metric}{{{labels}}} {value}" for metric, value in values.items()]


BUSY: Mapping[str, float] = {"GPU_UTIL": 75, "FB_USED": 1000, "FB_FREE": 9000, "GPU_TEMP": 60}
IDLE: Mapping[str, float] = {"GPU_UTIL": 0, "FB_USED": 0, "FB_FREE": 10000, "POWER_USAGE": 70.5}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of an exporter."""
    lines: list[str] = []
    monkeypatch.setattr(DcgmProvider, "_fetch", lambda _: "\n".join([*lines, ""]))
    return lines


def exporter() -> DcgmProvider:
    return DcgmProvider(NODE, "http://127.0.0.1:9400/metrics", lambda: 1000.0)


def test_an_exporter_of_dcgm_in_place_of_the_driver(said: list[str]) -> None:
    said += [*gpu(0, BUSY, "carrel-v/train"), *gpu(1, IDLE)]
    report = look(exporter())
    assert [(one.uuid, one.name, one.memory_mib) for one in report.devices] == [
        ("GPU-0", "H200", 10_000),
        ("GPU-1", "H200", 10_000),
    ]
    busy, idle = report.use
    assert (busy.utilization, busy.temperature_c, busy.known) == (0.75, 60, True)
    assert [(one.owner, one.utilization) for one in busy.owners] == [("carrel-v/train", 0.75)]
    assert (idle.utilization, idle.power_watts, idle.owners) == (0.0, 70.5, ())
    assert busy.attributed
    assert idle.attributed
    with pytest.raises(DcgmUnavailable):
        dcgm.read("DCGM_FI_DEV_GPU_UTIL{ not metrics")


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(gpu(0, BUSY), id="it names no pods, or none with claims"),
        pytest.param(gpu(0, BUSY, "gpu-reservations-carrel/r-1"), id="shared by others"),
        pytest.param(gpu(0, {"FB_USED": 0, "FB_FREE": 1}), id="no counters"),
        pytest.param(gpu(0, {"FB_USED": 0}, "v/train", ',GPU_I_ID="3"'), id="divided"),
    ],
)
def test_use_that_an_exporter_attributes_to_nobody_is_not_known(
    said: list[str], lines: list[str]
) -> None:
    """Work on such a node counts as busy, as its GPUs may be its own."""
    said += lines
    assert not look(exporter()).use[0].attributed


def test_the_last_xid_of_an_exporter_has_a_time_only_if_it_was_seen_to_change(
    said: list[str],
) -> None:
    """So what an admin has acknowledged is no news to an agent that starts again."""
    provider, other = exporter(), exporter()

    def keys(provider: DcgmProvider, code: int | None) -> list[str]:
        said[:] = gpu(0, {**IDLE, **({} if code is None else {"XID_ERRORS": code})})
        [device] = look(provider).devices
        return [one.key for one in device.conditions]

    assert keys(provider, 0) == []
    assert keys(provider, 79) == ["xid:79:1000"]
    assert keys(provider, None) == keys(provider, 79) == ["xid:79:1000"]
    assert keys(other, 79) == ["xid:79:0"]
    assert keys(other, 48) == ["xid:48:1000", "xid:79:0"]
