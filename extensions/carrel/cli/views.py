"""How the API's structures read in tables: the words and cells of jobs, projects and nodes."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from carrel.cli import addresses, units
from carrel.cli.counting import counts
from carrel.models import Amounts, Department, Project, ProjectUse, Workload
from carrel.options import type_word

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
WAITING: Final = frozenset({"pending"})
BY_A_LIMIT: Final = frozenset({"TimedOut", "Idle"})
GAVE_WAY: Final = frozenset({"Reclaimed", "Preempted"})


def status_word(workload: Workload) -> str:
    """The state in one word."""
    status = workload.status
    token = status.reason.token if status.reason else ""
    if status.phase == "stopped" and token in GAVE_WAY:
        return "Preempted"
    if status.phase == "stopped":
        return token if token in BY_A_LIMIT else "Suspended"
    if status.phase == "pending" and status.reason and status.reason.cls == "evicted":
        return "Preempted"
    return status.phase.capitalize()


def requested_gpus(workload: Workload) -> float:
    """GPUs of all its tasks."""
    return counts(workload).requested


def gpu_cell(workload: Workload) -> str:
    """Held and asked for: ``0.30 (0.30)``; ``-`` while it waits, ``0.00`` once given back."""
    found = counts(workload)
    if workload.status.phase in WAITING:
        return f"{NOTHING} ({found.requested:.2f})"
    return f"{found.held:.2f} ({found.requested:.2f})"


def pod_cell(workload: Workload) -> str:
    """Tasks, or parts, that run and that wait: ``1 (0)``."""
    found = counts(workload)
    return f"{found.running} ({found.waiting})"


def nodes_of(workload: Workload) -> str:
    """Where it runs."""
    if not workload.holds_resources:
        return NOTHING
    return ",".join(sorted({task.node for task in workload.status.tasks})) or NOTHING


def service_url(workload: Workload, service: str) -> str:
    """The addresses of what listens, below the Hub that serves ``service``."""
    return ",".join(addresses.of(workload, service)) or NOTHING


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
        service_url(workload, service),
    ]


def why(workload: Workload) -> str:
    """Its reason as a sentence, empty when it needs none."""
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
    """One line of ``list projects``."""
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
    """What projects use together."""
    uses = [project.use for project in projects]
    return ProjectUse(
        gpus_allocated=sum(use.gpus_allocated for use in uses),
        gpus_borrowed=sum(use.gpus_borrowed for use in uses),
        gpus_waiting=sum(use.gpus_waiting for use in uses),
    )


def department_row(department: Department, projects: Sequence[Project]) -> list[str]:
    """One line of ``department list``."""
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
    """What a department uses, with that as borrowed which is beyond its own guarantee."""
    if quota.gpus is None:
        return msgspec.structs.replace(use, gpus_borrowed=0.0)
    borrowed = max(0.0, use.gpus_allocated - quota.gpus)
    return msgspec.structs.replace(use, gpus_borrowed=borrowed)


DEPARTMENT_COLUMNS: Final = (
    "DEPARTMENT",
    "GUARANTEED GPUs",
    "ALLOCATED",
    "WAITING",
    "LIMIT",
    "OVER QUOTA",
    "PROJECTS",
    "QUOTA LINE",
)
DEPARTMENT_NUMBERS: Final = ("GUARANTEED GPUs", "ALLOCATED", "WAITING", "LIMIT")
PROJECT_COLUMNS: Final = (
    "PROJECT",
    "GUARANTEED GPUs",
    "ALLOCATED",
    "BORROWED",
    "WAITING",
    "LIMIT",
    "OVER QUOTA",
    "INT-LIMIT",
    "IDLE-LIMIT",
    "QUOTA LINE",
)
PROJECT_NUMBERS: Final = ("GUARANTEED GPUs", "ALLOCATED", "BORROWED", "WAITING", "LIMIT")
