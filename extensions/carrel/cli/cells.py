"""Cells of tables: the words and numbers of jobs, projects and departments.

Work that has parts (experiments, endpoints) is counted by its parts; elastic work by what it holds
now; everything else is all there or not at all.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from carrel import units, wording
from carrel.models import Amounts, Department, Project, ProjectUse, Workload
from carrel.options import type_word


class TaskCounts(NamedTuple):
    """Tasks (or parts) that run and that are pending, GPUs held and requested."""

    running: int
    pending: int
    held: float
    requested: float


def counts(workload: Workload) -> TaskCounts:
    """The counts of a workload now."""
    spec, status = workload.spec, workload.status
    if spec.kind == "experiment" and spec.experiment is not None:
        return _of_parts(workload, *_trials(workload))
    if spec.kind == "inference":
        endpoint = status.endpoint
        wanted = endpoint.wanted if endpoint else 0
        ready = endpoint.ready if endpoint else 0
        return _of_parts(workload, ready, max(0, wanted - ready))
    if spec.kind == "schedule":
        return TaskCounts(0, 0, 0.0, 0.0)
    requested = spec.total_gpus * spec.tasks
    if not workload.holds_resources:
        return TaskCounts(0, 0 if workload.at_rest else spec.tasks, 0.0, requested)
    if spec.elastic is not None:
        live = [task for task in status.tasks if task.ended_at is None]
        held = sum(len(task.devices) * min(spec.gpus, 1.0) for task in live)
        return TaskCounts(len(live), spec.tasks - len(live), float(held), requested)
    if status.phase == "starting":
        return TaskCounts(0, spec.tasks, requested, requested)
    return TaskCounts(spec.tasks, 0, requested, requested)


def _trials(workload: Workload) -> tuple[int, int]:
    experiment, now = workload.spec.experiment, workload.status.experiment
    if experiment is None or workload.at_rest:
        return 0, 0
    if now is None:
        return 0, min(experiment.parallelism, experiment.completions)
    done = now.completed + now.pruned + now.failed
    left = max(0, experiment.completions - done - now.running)
    return now.running, min(left, max(0, experiment.parallelism - now.running))


def _of_parts(workload: Workload, running: int, pending: int) -> TaskCounts:
    each = workload.spec.gpus * workload.spec.tasks
    if workload.at_rest:
        return TaskCounts(0, 0, 0.0, each)
    return TaskCounts(running, pending, running * each, (running + pending) * each)


SERVICE = "/services/carrel"


def hub_of(service: str, environ: Mapping[str, str] | None = None) -> str:
    """The Hub's public address; a workspace has it in its environment."""
    env = os.environ if environ is None else environ
    if env.get("CARREL_URL", "").rstrip("/") == service and (
        public := env.get("CARREL_PUBLIC_URL")
    ):
        return public.rstrip("/")
    return service.removesuffix(SERVICE)


def service_urls(
    workload: "Workload", service: str, environ: Mapping[str, str] | None = None
) -> list[str]:
    """The addresses of a workload that can answer now; none for others."""
    hub, spec = hub_of(service, environ), workload.spec
    if workload.at_rest or workload.status.phase == "pending":
        return []
    found = []
    if spec.kind == "workspace" and workload.status.phase == "running":
        found.append("/".join(filter(None, (hub, "user", spec.user, spec.server_name))))
    if spec.kind not in ("trial", "replica", "experiment", "schedule"):
        base = f"{hub}/services/gateway/{quote(workload.project)}/{quote(workload.name)}/"
        found += [f"{base}~{route.name}/" if route.name else base for route in spec.routes]
    return found


NOTHING: Final = "-"
JOB_COLUMNS: Final = (
    "NAME",
    "STATUS",
    "AGE",
    "NODE",
    "IMAGE",
    "TYPE",
    "PROJECT",
    "USER",
    "GPUs Allocated (Requested)",
    "PODs Running (Pending)",
    "SERVICE URL(S)",
)
BY_A_LIMIT: Final = frozenset({"TimedOut", "Idle"})
PREEMPTED: Final = frozenset({"Reclaimed", "Preempted"})


def status_word(workload: Workload) -> str:
    """The word of the column STATUS."""
    status = workload.status
    token = status.reason.token if status.reason else ""
    if wording.has_crashed(workload):
        return "Failed"
    if status.phase == "stopped" and token in PREEMPTED:
        return "Preempted"
    if status.phase == "stopped":
        return token if token in BY_A_LIMIT else "Suspended"
    if status.phase == "pending" and status.reason and status.reason.cls == "evicted":
        return "Preempted"
    return wording.retry_word(workload) or status.phase.capitalize()


def requested_gpus(workload: Workload) -> float:
    """GPUs of all its tasks."""
    return counts(workload).requested


def gpu_cell(workload: Workload) -> str:
    """Held and requested: ``0.30 (0.30)``; ``-`` while it is pending, ``0.00`` once given back.

    Of MIG instances: how many tasks have one, and which: ``1 (1g.10gb)``.
    """
    found = counts(workload)
    if profile := workload.spec.mig_profile:
        held = NOTHING if workload.status.phase == "pending" else str(found.running)
        return f"{held} ({profile})"
    if workload.status.phase == "pending":
        return f"{NOTHING} ({found.requested:.2f})"
    return f"{found.held:.2f} ({found.requested:.2f})"


def pod_cell(workload: Workload) -> str:
    """Tasks, or parts, that run and that are pending: ``1 (0)``."""
    found = counts(workload)
    return f"{found.running} ({found.pending})"


def nodes_of(workload: Workload) -> str:
    """The nodes of a workload's tasks."""
    if not workload.holds_resources:
        return NOTHING
    return ",".join(sorted({task.node for task in workload.status.tasks})) or NOTHING


def service_url_cell(workload: Workload, service: str) -> str:
    """The addresses of what listens, below the Hub that serves ``service``."""
    return ",".join(service_urls(workload, service)) or NOTHING


def job_row(workload: Workload, now: float, service: str) -> list[str]:
    """The cells of ``JOB_COLUMNS``."""
    return [
        workload.name,
        status_word(workload),
        units.duration(now - workload.created_at),
        nodes_of(workload),
        workload.spec.image or NOTHING,
        type_word(workload.spec.kind),
        workload.project,
        workload.spec.user or workload.created_by,
        gpu_cell(workload),
        pod_cell(workload),
        service_url_cell(workload, service),
    ]


def why(workload: Workload) -> str:
    """The sentence of a workload's reason, or its token."""
    reason = workload.status.reason
    if reason is None:
        return ""
    return reason.sentence or reason.token


def amount(value: float | None) -> str:
    """A bound; ``-`` when there is none."""
    return NOTHING if value is None else units.number(value)


def limit_word(seconds: float | None) -> str:
    """A time limit; ``-`` when there is none."""
    return NOTHING if seconds is None else units.duration(seconds)


def quota_line(use: ProjectUse, quota: Amounts) -> str:
    """The quota to scale: held inside the guarantee, free of it, mark, borrowed; and the numbers.

    ``███░|▒▒ 3/4 +2``: three of four guaranteed GPUs are used, two more are borrowed.
    """
    inside = use.gpus_allocated - use.gpus_borrowed
    if quota.gpus is None:
        return f"{'█' * min(16, round(inside))} {units.number(inside)}"
    scale = min(1.0, 16 / max(quota.gpus + use.gpus_borrowed, 1.0))
    held = round(min(inside, quota.gpus) * scale)
    free = round(quota.gpus * scale) - held
    borrowed = round(use.gpus_borrowed * scale)
    bar = f"{'█' * held}{'░' * free}|{'▒' * borrowed}"
    more = f" +{units.number(use.gpus_borrowed)}" if use.gpus_borrowed else ""
    return f"{bar} {units.number(inside)}/{units.number(quota.gpus)}{more}"


def project_row(project: Project) -> list[str]:
    """A line of ``list projects``."""
    use, interactive = project.use, project.interactive
    return [
        project.name,
        amount(project.quota.gpus),
        units.number(use.gpus_allocated),
        units.number(use.gpus_borrowed),
        units.number(use.gpus_waiting),
        amount(project.limit.gpus),
        "yes" if project.over_quota else "no",
        limit_word(interactive.time_limit_seconds),
        limit_word(interactive.idle_timeout_seconds),
        quota_line(use, project.quota),
    ]


def use_of(projects: Iterable[Project]) -> ProjectUse:
    """The sum of the use of several projects."""
    uses = [project.use for project in projects]
    return ProjectUse(
        gpus_allocated=sum(use.gpus_allocated for use in uses),
        gpus_borrowed=sum(use.gpus_borrowed for use in uses),
        gpus_waiting=sum(use.gpus_waiting for use in uses),
    )


def department_row(department: Department, projects: Sequence[Project]) -> list[str]:
    """A line of ``department list``."""
    use = use_of(projects)
    return [
        department.name,
        amount(department.quota.gpus),
        units.number(use.gpus_allocated),
        units.number(use.gpus_waiting),
        amount(department.limit.gpus),
        "yes" if department.over_quota else "no",
        ", ".join(project.name for project in projects) or NOTHING,
        quota_line(beyond(use, department.quota), department.quota),
    ]


def beyond(use: ProjectUse, quota: Amounts) -> ProjectUse:
    """A department's use; the part beyond its own quota counts as borrowed."""
    if quota.gpus is None:
        return msgspec.structs.replace(use, gpus_borrowed=0.0)
    borrowed = max(0.0, use.gpus_allocated - quota.gpus)
    return msgspec.structs.replace(use, gpus_borrowed=borrowed)


DEPARTMENT_COLUMNS: Final = (
    "DEPARTMENT",
    "GUARANTEED GPUs",
    "ALLOCATED",
    "PENDING",
    "LIMIT",
    "OVER QUOTA",
    "PROJECTS",
    "QUOTA LINE",
)
DEPARTMENT_NUMBERS: Final = ("GUARANTEED GPUs", "ALLOCATED", "PENDING", "LIMIT")
PROJECT_COLUMNS: Final = (
    "PROJECT",
    "GUARANTEED GPUs",
    "ALLOCATED",
    "BORROWED",
    "PENDING",
    "LIMIT",
    "OVER QUOTA",
    "INT-LIMIT",
    "IDLE-LIMIT",
    "QUOTA LINE",
)
PROJECT_NUMBERS: Final = ("GUARANTEED GPUs", "ALLOCATED", "BORROWED", "PENDING", "LIMIT")


def amounts(amounts: "Amounts") -> str:
    """``8 GPUs, 32 processors, 256 GiB``; what has no bound is left out."""
    cpu, memory = amounts.cpu_millicores, amounts.memory_bytes
    parts = [
        "" if amounts.gpus is None else f"{units.number(amounts.gpus)} GPUs",
        "" if cpu is None else f"{units.number(cpu / 1000)} processors",
        "" if memory is None else units.memory(memory),
    ]
    return ", ".join(part for part in parts if part) or "no bound"
