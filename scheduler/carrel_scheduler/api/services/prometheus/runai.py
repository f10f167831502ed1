"""The same state under the names that Run:ai's metrics have, so that dashboards for them work.

Only what is known exactly is offered; docs/monitoring.md has the table of all names. Utilization is
a percentage here, as there. A label ``clusterId`` is for Prometheus to add.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import GaugeMetricFamily

from carrel_scheduler.api.services.prometheus.gauges import Snapshot
from carrel_scheduler.core.resources import MILLI
from carrel_schema.answers import DeviceHolder, DeviceView, NodeView

MEBIBYTE: Final = 1 << 20
PERCENT: Final = 100.0
_TYPES: Final = {
    "workspace": "interactive",
    "tensorboard": "interactive",
    "inference": "inference",
    "replica": "inference",
}
_WORK: Final = ("job_name", "job_uuid", "job_type", "project", "user")


def runai_families(found: Snapshot) -> Iterator[GaugeMetricFamily]:
    """All gauges with Run:ai's names."""
    yield from _projects(found)
    yield from _nodes(found.nodes)
    yield from _devices(found)
    yield from _work(found)


def _projects(found: Snapshot) -> Iterator[GaugeMetricFamily]:
    guaranteed = _gauge("project_guaranteed_gpus", "Guaranteed GPUs", "project")
    allocated = _gauge("allocated_gpu_count_per_project", "GPUs allocated", "project")
    info = _gauge(
        "project_info",
        "1 for each project, with its quotas; empty: all are guaranteed",
        *("project", "department_name", "gpu_guaranteed_quota", "cpu_quota", "memory_quota"),
    )
    for project in found.projects:
        name, quota = project.meta.name, project.spec.quota
        if quota.gpu_milli is not None:
            guaranteed.add_metric([name], quota.gpu_milli / MILLI)
        gpus = "" if quota.gpu_milli is None else f"{quota.gpu_milli / MILLI:g}"
        cores = "" if quota.cpu_milli is None else f"{quota.cpu_milli / MILLI:g}"
        memory = "" if quota.memory_bytes is None else str(quota.memory_bytes)
        info.add_metric([name, project.spec.department, gpus, cores, memory], 1.0)
    for name, use in found.use.items():
        allocated.add_metric([name], use.gpu_allocated_milli / MILLI)
    yield from (guaranteed, allocated, info)


def _nodes(nodes: Sequence[NodeView]) -> Iterator[GaugeMetricFamily]:
    values: dict[str, Callable[[NodeView], float | None]] = {
        "gpu_count_per_node": lambda node: node.gpu_milli / MILLI,
        "allocated_gpu_count_per_node": lambda node: node.gpu_allocated_milli / MILLI,
        "node_cpu_requested_cores": lambda node: node.cpu_allocated_milli / MILLI,
        "node_requested_memory_bytes": lambda node: node.memory_allocated_bytes,
        "gpu_utilization_per_node": lambda node: _percent(
            [one.utilization for one in node.devices]
        ),
        "gpu_memory_used_mebibytes_per_node": lambda node: _sum(
            [one.memory_used_mib for one in node.devices]
        ),
        "node_gpu_used_memory_bytes": lambda node: _sum(
            [one.memory_used_mib for one in node.devices], MEBIBYTE
        ),
        "gpu_memory_total_mebibytes_per_node": lambda node: _sum(
            [one.memory_mib for one in node.devices]
        ),
        "mig_mode_gpu_count": lambda node: sum(bool(one.instances) for one in node.devices),
    }
    for name, value in values.items():
        family = _gauge(name, "By node", "node")
        for node in nodes:
            if (amount := value(node)) is not None:
                family.add_metric([node.name], amount)
        yield family


def _devices(found: Snapshot) -> Iterator[GaugeMetricFamily]:
    values: dict[str, Callable[[DeviceView], float | None]] = {
        "gpu_utilization_per_gpu": lambda gpu: _percent([gpu.utilization]),
        "gpu_memory_used_mebibytes_per_gpu": lambda gpu: gpu.memory_used_mib,
        "gpu_memory_total_mebibytes_per_gpu": lambda gpu: gpu.memory_mib,
        "gpu_is_allocated": lambda gpu: bool(gpu.allocated_milli),
        "gpu_is_running_fractional_job": lambda gpu: (
            not gpu.instances and any(0 < one.gpu_milli < MILLI for one in gpu.holders)
        ),
        "gpu_last_active_time": lambda gpu: _active_at(gpu, found.now),
    }
    for name, value in values.items():
        family = _gauge(name, "By GPU", "node", "gpu")
        for node in found.nodes:
            for gpu in node.devices:
                if (amount := value(gpu)) is not None:
                    family.add_metric([node.name, str(gpu.index)], float(amount))
        yield family


@dataclass(slots=True)
class _Held:
    """The GPUs that one workload has, with its own part of what they do."""

    holder: DeviceHolder
    milli: int = 0
    utilization: list[float | None] = field(default_factory=list)
    memory_mib: list[int | None] = field(default_factory=list)
    active_at: list[float | None] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        """The values of ``_WORK``."""
        one = self.holder
        return [one.name, one.uid, _TYPES.get(one.kind, "training"), one.project, one.user]


def _work(found: Snapshot) -> Iterator[GaugeMetricFamily]:
    """Workloads that hold GPUs; no sample of what is not measured of all of them."""
    held: dict[str, _Held] = {}
    for node in found.nodes:
        for gpu in node.devices:
            for one in gpu.holders:
                if one.uid:
                    entry = held.setdefault(one.uid, _Held(one))
                    entry.milli += one.gpu_milli
                    entry.utilization.append(one.utilization)
                    entry.memory_mib.append(one.memory_used_mib)
                    entry.active_at.append(_used_at(gpu, one, found.now))
    values: dict[str, Callable[[_Held], float | None]] = {
        "allocated_gpu_count_per_workload": lambda work: work.milli / MILLI,
        "job_allocated_gpus": lambda work: work.milli / MILLI,
        "gpu_utilization_per_workload": lambda work: _percent(work.utilization),
        "job_gpu_utilization": lambda work: _percent(work.utilization),
        "gpu_memory_used_mebibytes_per_workload": lambda work: _sum(work.memory_mib),
        "job_used_gpu_memory_bytes": lambda work: _sum(work.memory_mib, MEBIBYTE),
        "last_gpu_utilization_time_per_workload": lambda work: _latest(work.active_at),
        "gpu_idle_time_per_workload": lambda work: (
            None if (at := _latest(work.active_at)) is None else max(0.0, found.now - at)
        ),
    }
    for name, value in values.items():
        family = _gauge(name, "By workload that holds GPUs", *_WORK)
        for work in held.values():
            if (amount := value(work)) is not None:
                family.add_metric(work.labels, amount)
        yield family
    by_project = defaultdict[str, list[float | None]](list)
    for work in held.values():
        by_project[work.holder.project] += work.utilization
    family = _gauge("gpu_utilization_per_project", "Mean of the GPUs it has", "project")
    for project, shares in by_project.items():
        if (percent := _percent(shares)) is not None:
            family.add_metric([project], percent)
    yield family


def _active_at(gpu: DeviceView, now: float) -> float | None:
    """The time at which a device was last active; ``None`` if unknown."""
    if gpu.idle_since is not None:
        return gpu.idle_since
    return now if gpu.utilization else None


def _used_at(gpu: DeviceView, one: DeviceHolder, now: float) -> float | None:
    """The time at which a workload last used a device; ``None``: unknown, as others share it."""
    if one.utilization:
        return now
    if gpu.idle_since is None:
        return None
    return max(gpu.idle_since, one.since) if one.since else gpu.idle_since


def _latest(times: Sequence[float | None]) -> float | None:
    known = [one for one in times if one is not None]
    return max(known) if len(known) == len(times) and known else None


def _percent(shares: Sequence[float | None]) -> float | None:
    """The mean of shares (0 to 1) in percent; ``None`` while one is not measured."""
    known = [one for one in shares if one is not None]
    return PERCENT * sum(known) / len(known) if known and len(known) == len(shares) else None


def _sum(amounts: Sequence[int | None], factor: int = 1) -> float | None:
    """The sum; ``None`` while one is not measured."""
    known = [one for one in amounts if one is not None]
    return float(sum(known) * factor) if known and len(known) == len(amounts) else None


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"runai_{name}", words, labels=labels)
