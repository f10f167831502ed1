"""Run:ai's names: what stands behind them, and that the page about them tells no other."""

import re
from pathlib import Path

import pytest

from carrel_scheduler.api.services.prometheus.gauges import Snapshot, families
from carrel_scheduler.api.services.prometheus.runai import runai_families
from carrel_scheduler.environment import InvalidVariable
from carrel_scheduler.service.settings import ServiceSettings
from carrel_scheduler.workloads.contract import Faults, ProjectUse
from carrel_schema.answers import DeviceHolder, DeviceView, NodeView
from carrel_schema.objects import Meta, Project, ProjectSpec, Quota

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"
NOW = 10_000.0
TOLD = {
    "CARREL_STATE_DIR": "/srv/carrel",
    "CARREL_LISTEN": "127.0.0.1:8080",
    "JUPYTERHUB_SERVICE_PREFIX": "/services/carrel/",
    "JUPYTERHUB_API_URL": "http://hub/hub/api",
    "JUPYTERHUB_API_TOKEN": "secret",
}


def holder(uid: str, kind: str, milli: int, use: float | None) -> DeviceHolder:
    return DeviceHolder(
        uid=uid,
        name=uid,
        project="vision",
        user="ada",
        kind=kind,
        gpu_milli=milli,
        since=1_000.0,
        utilization=use,
        memory_used_mib=None if use is None else 100,
    )


def gpu(index: int, *holders: DeviceHolder, use: float, idle_since: float | None) -> DeviceView:
    return DeviceView(
        index=index,
        memory_mib=24_000,
        memory_used_mib=200,
        utilization=use,
        allocated_milli=sum(one.gpu_milli for one in holders),
        idle_since=idle_since,
        holders=holders,
    )


def snapshot() -> Snapshot:
    """Two GPUs: one shared by a busy workspace and a quiet endpoint, one idle below a training."""
    shared = gpu(
        0,
        holder("desk", "workspace", 500, 0.4),
        holder("serve-0", "replica", 250, 0.0),
        use=0.4,
        idle_since=None,
    )
    idle = gpu(1, holder("train", "training", 1000, 0.0), use=0.0, idle_since=4_000.0)
    node = NodeView(
        name="node-1",
        status="ready",
        cpu_allocated_milli=1500,
        memory_allocated_bytes=2**30,
        gpu_milli=2000,
        gpu_allocated_milli=1750,
        devices=(shared, idle),
    )
    lost = NodeView(name="node-2", status="lost", devices=(DeviceView(index=0, memory_mib=1),))
    spec = ProjectSpec(
        quota=Quota(gpu_milli=1500, cpu_milli=4000), department="science", members_group="vision"
    )
    use = ProjectUse(
        name="vision",
        gpu_allocated_milli=1750,
        gpu_borrowed_milli=250,
        gpu_waiting_milli=0,
        cpu_allocated_milli=0,
        memory_allocated_bytes=0,
        fair_share_gpu_milli=0,
        running=3,
        waiting=0,
    )
    return Snapshot(
        now=NOW,
        projects=[Project(meta=Meta(name="vision", created_at=1.0), spec=spec)],
        use={"vision": use},
        queue=[],
        nodes=[node, lost],
        faults=Faults(),
    )


def values(name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Samples of a metric by the values of some labels."""
    return {
        tuple(sample.labels[one] for one in labels): sample.value
        for family in [*runai_families(snapshot()), *families(snapshot())]
        for sample in family.samples
        if sample.name == name
    }


def test_utilization_is_a_percentage() -> None:
    assert values("runai_gpu_utilization_per_gpu", "node", "gpu") == {
        ("node-1", "0"): pytest.approx(40),
        ("node-1", "1"): 0,
    }
    assert values("runai_gpu_utilization_per_node", "node") == {("node-1",): pytest.approx(20)}
    of_work = values("runai_gpu_utilization_per_workload", "job_name")
    assert of_work == {("desk",): pytest.approx(40), ("serve-0",): 0, ("train",): 0}


def test_work_has_run_ais_types_and_what_it_holds() -> None:
    assert values("runai_allocated_gpu_count_per_workload", "job_name", "job_type", "user") == {
        ("desk", "interactive", "ada"): 0.5,
        ("serve-0", "inference", "ada"): 0.25,
        ("train", "training", "ada"): 1.0,
    }


def test_idle_time_is_told_where_it_is_known_only() -> None:
    assert values("runai_gpu_idle_time_per_workload", "job_name") == {
        ("desk",): 0.0,
        ("train",): 6_000.0,
    }
    assert values("runai_gpu_last_active_time", "gpu") == {("0",): NOW, ("1",): 4_000.0}


def test_fractions_quotas_and_departments() -> None:
    assert values("runai_gpu_is_running_fractional_job", "node", "gpu") == {
        ("node-1", "0"): 1,
        ("node-1", "1"): 0,
        ("node-2", "0"): 0,
    }
    assert values("runai_project_guaranteed_gpus", "project") == {("vision",): 1.5}
    labels = ("project", "department_name", "gpu_guaranteed_quota", "cpu_quota", "memory_quota")
    assert values("runai_project_info", *labels) == {("vision", "science", "1.5", "4", ""): 1}


def test_our_own_say_which_node_is_ready_and_what_is_idle() -> None:
    assert values("carrel_node_ready", "node") == {("node-1",): 1, ("node-2",): 0}
    assert values("carrel_gpu_idle_seconds_per_gpu", "node", "gpu") == {
        ("node-1", "0"): 0,
        ("node-1", "1"): 6_000,
    }
    assert values("carrel_gpu_allocated_per_gpu", "node", "gpu")["node-1", "0"] == 0.75
    assert values("carrel_workload_allocated_gpus", "workload") == {
        ("desk",): 0.5,
        ("serve-0",): 0.25,
        ("train",): 1.0,
    }


def test_the_page_names_what_there_is_and_nothing_twice() -> None:
    there, _, missing = PAGE.read_text().partition("| not there |")
    told = re.findall(r"`(runai_\w+)`", there)
    assert sorted(told) == sorted(family.name for family in runai_families(snapshot()))
    assert not set(told) & set(re.findall(r"`(runai_\w+)`", missing))


def test_they_are_off_until_somebody_wants_them() -> None:
    assert not ServiceSettings.from_environment(TOLD).runai_metrics
    assert ServiceSettings.from_environment(TOLD | {"CARREL_RUNAI_METRICS": "on"}).runai_metrics
    with pytest.raises(InvalidVariable, match="CARREL_RUNAI_METRICS"):
        ServiceSettings.from_environment(TOLD | {"CARREL_RUNAI_METRICS": "yes"})
