"""Gauges of the scheduler's present state, in the field's usual style of names."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from carrel_scheduler.alerts.conditions import READY
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.external import PodCounts
from carrel_scheduler.workloads.contract import Faults, ProjectUse, QueueEntry
from carrel_schema.answers import NodeView
from carrel_schema.governance.alerts import AlertOut
from carrel_schema.objects import Department, Project


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state from which the gauges are made, read at one moment."""

    now: float
    projects: Sequence[Project]
    use: Mapping[str, ProjectUse]
    queue: Sequence[QueueEntry]
    nodes: Sequence[NodeView]
    faults: Faults
    pods: PodCounts | None = None
    departments: Sequence[Department] = ()
    alerts: Sequence[AlertOut] = ()


def families(found: Snapshot) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    """All gauges, including those of external pods."""
    if found.pods is not None:
        yield from _pods(found.pods)
    yield from _faults(found.faults)
    yield from _alerts(found.alerts)
    yield from _projects(found)
    yield from _departments(found)
    yield from _queue(found)
    yield from _nodes(found.nodes)
    yield from _devices(found.nodes)
    yield from _allocation(found.now, found.nodes)
    yield from _work_on_devices(found.nodes)


def _faults(faults: Faults) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    words = "Inputs that could not be processed, by source and reason"
    skipped = CounterMetricFamily("carrel_skipped_inputs", words, labels=["source", "reason"])
    for (source, reason), count in sorted(faults.skipped.items()):
        skipped.add_metric([source, reason], count)
    yield skipped
    aside = GaugeMetricFamily("carrel_set_aside_inputs", "Inputs that are set aside now")
    aside.add_metric([], len(faults.set_aside))
    yield aside
    words = "Looks that found an invariant of the scheduler violated"
    violations = CounterMetricFamily("carrel_invariant_violations", words, labels=["invariant"])
    for name, count in sorted(faults.violations.items()):
        violations.add_metric([name], count)
    yield violations


def _projects(found: Snapshot) -> Iterator[GaugeMetricFamily]:
    guaranteed = _gauge(
        "project_guaranteed_gpus", "Guaranteed GPUs; no sample where all are", "project"
    )
    limit = _gauge("project_limit_gpus", "GPUs never exceeded; no sample without limit", "project")
    for project in found.projects:
        if project.spec.quota.gpu_milli is not None:
            guaranteed.add_metric([project.meta.name], project.spec.quota.gpu_milli / MILLI)
        if project.spec.limit.gpu_milli is not None:
            limit.add_metric([project.meta.name], project.spec.limit.gpu_milli / MILLI)
    yield guaranteed
    yield limit
    for name, words, value in (
        ("allocated_gpu_count_per_project", "GPUs allocated", "gpu_allocated_milli"),
        ("project_borrowed_gpus", "GPUs beyond the guarantee", "gpu_borrowed_milli"),
        ("project_waiting_gpus", "GPUs that waiting work asks for", "gpu_waiting_milli"),
        ("project_fair_share_gpus", "Fair share in the last cycle", "fair_share_gpu_milli"),
    ):
        family = _gauge(name, words, "project")
        for project_name, use in found.use.items():
            family.add_metric([project_name], getattr(use, value) / MILLI)
        yield family
    running = _gauge("running_workloads", "Workloads that hold a place", "project")
    for project_name, use in found.use.items():
        running.add_metric([project_name], use.running)
    yield running


def _departments(found: Snapshot) -> Iterator[GaugeMetricFamily]:
    """The amounts of departments and their projects, to sum up what projects use."""
    info = _gauge("project_info", "1 for each project, by its department", "project", "department")
    for project in found.projects:
        info.add_metric([project.meta.name, project.spec.department], 1.0)
    yield info
    guaranteed = _gauge(
        "department_guaranteed_gpus", "Guaranteed GPUs; no sample where all are", "department"
    )
    limit = _gauge(
        "department_limit_gpus", "GPUs never exceeded; no sample without limit", "department"
    )
    for department in found.departments:
        if department.spec.quota.gpu_milli is not None:
            guaranteed.add_metric([department.meta.name], department.spec.quota.gpu_milli / MILLI)
        if department.spec.limit.gpu_milli is not None:
            limit.add_metric([department.meta.name], department.spec.limit.gpu_milli / MILLI)
    yield guaranteed
    yield limit


def _alerts(alerts: Sequence[AlertOut]) -> Iterator[GaugeMetricFamily]:
    """Firing alerts, for Prometheus rules about what only the scheduler knows."""
    firing = _gauge(
        "firing_alerts", "1 for each alert that fires", "rule", "severity", "subject", "silenced"
    )
    for one in alerts:
        if one.state == "firing":
            silenced = "true" if one.silenced_until else "false"
            firing.add_metric([one.rule, one.severity, one.subject, silenced], 1.0)
    yield firing


def _pods(pods: PodCounts) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    """Gauges of external pods, by the names of kube-scheduler, so that dashboards for it work."""
    pending = GaugeMetricFamily("scheduler_pending_pods", "Pods that wait", labels=["queue"])
    for queue, count in pods.pending.items():
        pending.add_metric([queue], count)
    yield pending
    words = "Attempts to place pods, by result"
    attempts = CounterMetricFamily("scheduler_schedule_attempts", words, labels=["result"])
    for result, count in pods.attempts.items():
        attempts.add_metric([result], count)
    yield attempts
    victims = CounterMetricFamily("scheduler_preemption_victims", "Pods that were preempted")
    victims.add_metric([], pods.victims)
    yield victims


def _queue(found: Snapshot) -> Iterator[GaugeMetricFamily]:
    waiting = Counter(entry.project for entry in found.queue)
    since: dict[str, float] = {}
    for entry in found.queue:
        since[entry.project] = min(entry.waits_since, since.get(entry.project, entry.waits_since))
    length = _gauge("queue_length", "Waiting workloads", "project")
    oldest = _gauge("queue_oldest_seconds", "Longest present wait", "project")
    for name in sorted({*waiting, *found.use}):
        length.add_metric([name], waiting[name])
        oldest.add_metric([name], max(0.0, found.now - since[name]) if name in since else 0.0)
    yield length
    yield oldest


def _nodes(nodes: Sequence[NodeView]) -> Iterator[GaugeMetricFamily]:
    for name, words, value, divisor in (
        ("gpu_count_per_node", "GPUs of the node", "gpu_milli", MILLI),
        ("allocated_gpu_count_per_node", "GPUs allocated", "gpu_allocated_milli", MILLI),
        ("allocated_cpu_cores_per_node", "Cores allocated", "cpu_allocated_milli", MILLI),
        ("allocated_memory_bytes_per_node", "Memory allocated", "memory_allocated_bytes", 1),
        ("largest_free_gpus_per_node", "Largest request that fits now", "largest_free_gpus", 1),
    ):
        family = _gauge(name, words, "node")
        for node in nodes:
            family.add_metric([node.name], getattr(node, value) / divisor)
        yield family

    ready = _gauge("node_ready", "0 when the node is silent, gone or not ready", "node")
    for node in nodes:
        ready.add_metric([node.name], float(node.status in READY))
    yield ready


def _devices(nodes: Sequence[NodeView]) -> Iterator[GaugeMetricFamily]:
    for name, words, value in (
        ("gpu_utilization_per_gpu", "Utilization, 0 to 1", "utilization"),
        ("gpu_memory_used_mebibytes_per_gpu", "Memory in use", "memory_used_mib"),
        ("gpu_memory_total_mebibytes_per_gpu", "Memory of the device", "memory_mib"),
        ("gpu_power_watts_per_gpu", "Power draw", "power_watts"),
        ("gpu_temperature_celsius_per_gpu", "Temperature", "temperature_c"),
    ):
        family = _gauge(name, words, "node", "gpu")
        for node in nodes:
            for device in node.devices:
                found = getattr(device, value)
                if found is not None:
                    family.add_metric([node.name, str(device.index)], float(found))
        yield family
    broken = _gauge("gpu_broken_per_gpu", "1 when the device is out of order", "node", "gpu")
    for node in nodes:
        for device in node.devices:
            broken.add_metric([node.name, str(device.index)], float(device.broken))
    yield broken
    condition = _gauge(
        "gpu_health_condition", "1 for each thing that is wrong with it", "node", "gpu", "condition"
    )
    for node in nodes:
        for device in node.devices:
            for words in sorted(set(device.conditions)):
                condition.add_metric([node.name, str(device.index), words], 1.0)
    yield condition


def _allocation(now: float, nodes: Sequence[NodeView]) -> Iterator[GaugeMetricFamily]:
    """The allocated part of each device, and since when it is idle."""
    allocated = _gauge("gpu_allocated_per_gpu", "GPUs allocated of it, 0 to 1", "node", "gpu")
    idle = _gauge(
        "gpu_idle_seconds_per_gpu", "Time since it last did anything; 0 in use", "node", "gpu"
    )
    for node in nodes:
        for device in node.devices:
            labels = [node.name, str(device.index)]
            allocated.add_metric(labels, device.allocated_milli / MILLI)
            if device.utilization is not None:
                idle.add_metric(labels, max(0.0, now - (device.idle_since or now)))
    yield allocated
    yield idle


def _work_on_devices(nodes: Sequence[NodeView]) -> Iterator[GaugeMetricFamily]:
    """The devices and the use of each workload, by node: no sample where nothing is measured."""
    labels = ("project", "workload", "node")
    allocated = _gauge("workload_allocated_gpus", "GPUs allocated to it", *labels)
    milli: Counter[tuple[str, str, str]] = Counter()
    for node in nodes:
        for holder in (one for device in node.devices for one in device.holders):
            if holder.name:
                milli[holder.project, holder.name, node.name] += holder.gpu_milli
    for key, amount in sorted(milli.items()):
        allocated.add_metric(key, amount / MILLI)
    yield allocated
    for name, words, value, factor in (
        ("workload_gpu_utilization", "Utilization of its GPUs, summed up", "utilization", 1),
        ("workload_gpu_memory_used_bytes", "Memory of GPUs in use", "memory_used_mib", 1 << 20),
    ):
        family = _gauge(name, words, *labels)
        sums: Counter[tuple[str, str, str]] = Counter()
        for node in nodes:
            for holder in (one for device in node.devices for one in device.holders):
                found = getattr(holder, value)
                if found is not None and holder.name:
                    sums[holder.project, holder.name, node.name] += found * factor
        for key, used in sorted(sums.items()):
            family.add_metric(key, used)
        yield family


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"carrel_{name}", words, labels=labels)
