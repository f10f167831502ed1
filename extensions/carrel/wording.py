"""The words for phases, times, amounts and quotas, as notebooks and views show them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from carrel_schema.governance.costs import WHEN, parts_of

if TYPE_CHECKING:
    from carrel.models import Project, Workload, WorkloadSpec
    from carrel_schema.governance.costs import BudgetOut

PHASES: Final[Mapping[str, tuple[str, str]]] = {
    "pending": ("◷", "Pending"),
    "starting": ("◔", "Starting"),
    "running": ("▶", "Running"),
    "preempting": ("⇄", "Preempting"),
    "stopping": ("◼", "Stopping"),
    "succeeded": ("✔", "Succeeded"),
    "failed": ("✖", "Failed"),
    "stopped": ("◼", "Stopped"),
    "deleted": ("⊘", "Cancelled"),
}
RETRYING: Final = "Crashed, retrying"
RETRYING_STALLED: Final = "Stalled, retrying"


def phase_word(phase: str) -> str:
    """The word for a phase; a phase that a newer server knows is its own word."""
    return PHASES.get(phase, ("", phase.capitalize()))[1]


def state_word(workload: "Workload") -> str:
    """The word for a workload's phase, where that alone would hide a crash."""
    if has_crashed(workload):
        return phase_word("failed")
    return retry_word(workload) or phase_word(workload.status.phase)


def retry_word(workload: "Workload") -> str:
    """The word for work that is tried again after a pause; empty for other work."""
    if not workload.is_retrying:
        return ""
    return RETRYING_STALLED if workload.has_stalled else RETRYING


CRASHED: Final = frozenset({"NeverReady", "ReplicasFailed"})


def has_crashed(workload: "Workload") -> bool:
    """Whether it is an endpoint that was stopped because its replicas failed."""
    reason = workload.status.reason
    return workload.status.phase == "stopped" and reason is not None and reason.token in CRASHED


def phase_icon(phase: str) -> str:
    """The sign beside the word."""
    return PHASES.get(phase, ("•", ""))[0]


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 05 min``, ``8 h``, ``2 d 4 h``; below zero counts as zero."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def stall_rule(restart: bool | None, after_seconds: float | None) -> str:
    """The rule for a workload that stalls: ``restarted after 10 min``."""
    if restart is None and after_seconds is None:
        return ""
    words = {None: "as on the cluster", True: "restarted", False: "only told of"}
    after = "" if after_seconds is None else f" after {duration(after_seconds)}"
    return f"{words[restart]}{after}"


def preemption_rule(rule: str) -> str:
    """Why work was preempted by a rule."""
    return {
        "reclaim": "it was on borrowed GPUs",
        "preempt": "a more urgent job of its project needed its GPUs",
        "consolidate": "something larger fits now, and it goes on elsewhere",
        "incomplete": "members of its gang were missing for too long",
        "drain": "its node is being emptied",
        "improve": "GPUs of a type that it prefers are free",
        "evict": "it had to leave its node",
    }.get(rule, rule)


def gpu_types(spec: "WorkloadSpec") -> str:
    """The types of GPUs that will do: ``H100, A100 (moves to a better one)``."""
    moves = " (moves to a better one)" if spec.move_to_better_type and spec.gpu_types else ""
    return ", ".join(spec.gpu_types) + moves


def avoided(workload: "Workload") -> str:
    """The nodes and GPUs that its next attempt takes last: ``gpu-3, GPU gpu-3/0``."""
    if not workload.spec.avoid_failed_nodes:
        return ""
    devices = (f"GPU {one}" for one in workload.status.failed_devices)
    return ", ".join((*workload.status.failed_nodes, *devices))


def amount(value: float) -> str:
    """A number without needless digits: ``2``, ``0.5``."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def gpus(count: float) -> str:
    """``no GPU``, ``0.5 GPU``, ``1 GPU``, ``2 GPUs``."""
    if count == 0:
        return "no GPU"
    return f"{amount(count)} GPU{'s' if count > 1 else ''}"


def gpus_of(workload: "Workload", tasks: int = 1) -> str:
    """The GPUs of several tasks together: as ``gpus`` says it, or ``2 x 1g.10gb`` of instances."""
    spec = workload.spec
    if spec.mig_profile:
        return f"{tasks} x {spec.mig_profile}" if tasks > 1 else spec.mig_profile
    if spec.gpu_devices > 1 and tasks == 1:
        return shares(spec.gpu_devices, spec.gpus)
    return gpus(spec.total_gpus * tasks)


def shares(devices: int, share: float) -> str:
    """``2 x 0.25 GPU``: a share of each of several GPUs."""
    return f"{devices} x {gpus(share)}"


def mebibytes(mib: float) -> str:
    """``24 GiB``."""
    return f"{amount(round(mib / 1024, 1))} GiB"


def quota_words(project: "Project") -> str:
    """``3 of 4 guaranteed · 2 borrowed · 5 pending``."""
    use, quota = project.use, project.quota.gpus
    inside = use.gpus_allocated - use.gpus_borrowed
    parts = [
        f"{amount(inside)} in use, no bound"
        if quota is None
        else f"{amount(inside)} of {amount(quota)} guaranteed"
    ]
    if use.gpus_borrowed > 0:
        parts.append(f"{amount(use.gpus_borrowed)} borrowed")
    if use.gpus_waiting > 0:
        parts.append(f"{amount(use.gpus_waiting)} pending")
    return " · ".join(parts)


def budget_words(budget: "BudgetOut") -> str:
    """``budget: 37.5 left of the 50 GPU-hours of this month``; a wider scope is named."""
    left = " and ".join(
        f"{max(0.0, part.allowed - part.used):,.1f} left of the {part.allowed:,g} {part.unit}"
        for part in parts_of(budget)
    )
    whose = "" if budget.scope.startswith("project/") else f" of {budget.scope}"
    when = WHEN.get(budget.period, "")
    lowered = budget.at_end == "lower-priority" and any(one.used_up for one in parts_of(budget))
    then = "; new and waiting work has the lowest priority" if lowered else ""
    return f"budget{whose}: {left} {when}".rstrip() + then


def quota_bar(project: "Project", width: int = 12) -> str:
    """``███░|▒▒``: used, free inside the guarantee, the guarantee's end, borrowed."""
    use = project.use
    inside = use.gpus_allocated - use.gpus_borrowed
    quota = max(project.quota.gpus if project.quota.gpus is not None else inside, inside)
    scale = min(1.0, width / max(quota + use.gpus_borrowed, 1.0))
    used = round(inside * scale)
    free = round(quota * scale) - used
    return "█" * used + "░" * free + "|" + "▒" * round(use.gpus_borrowed * scale)


def why(workload: "Workload") -> str:
    """The sentence beside the state, empty when there is nothing to say."""
    status = workload.status
    if status.reason is not None and status.reason.sentence:
        return status.reason.sentence
    if status.phase == "running" and status.borrowed:
        return "On borrowed GPUs: it gives them back when their project needs them."
    return ""


def summary(workload: "Workload", now: float) -> str:
    """A line of plain text about a workload."""
    status = workload.status
    parts = [state_word(workload).lower()]
    if status.phase == "pending" and status.queue_position is not None:
        parts.append(f"place {status.queue_position} in the queue")
    if status.phase == "running" and status.started_at is not None:
        parts.append(f"for {duration(now - status.started_at)}")
    if status.progress is not None and status.progress.total:
        parts.append(f"{100 * status.progress.done / status.progress.total:.0f} %")
    line = f"{workload.project}/{workload.name}: {', '.join(parts)}"
    reason = why(workload)
    return f"{line}. {reason}" if reason else line


EFFECTIVE: Final[Mapping[str, str]] = {
    "preempt_min_runtime_seconds": "Runs before higher priority evicts it",
    "reclaim_min_runtime_seconds": "Runs before others reclaim it",
    "preemption_delay_seconds": "Waits before others are evicted for it",
    "reservation_delay_seconds": "Large work waits before it gets reservations",
    "placement": "Its tasks",
    "node_groups.training": "Trainings only on node groups",
    "node_groups.interactive": "Workspaces only on node groups",
}
PLACEMENTS: Final[Mapping[str, str]] = {"pack": "fill nodes", "spread": "spread over nodes"}


def rule_value(value: float | str | None) -> str:
    """A rule's value in words."""
    if value is None:
        return "without end"
    return PLACEMENTS.get(value, value) if isinstance(value, str) else duration(value)


def effective_rules(project: "Project") -> list[tuple[str, str]]:
    """The rules that hold for a project's work, each with where it comes from."""
    found = []
    for name, label in EFFECTIVE.items():
        rule = project.effective.get(name)
        if rule is None:
            continue
        of = f"department {project.department}" if rule.origin == "department" else rule.origin
        found.append((label, f"{rule_value(rule.value)} ({of})"))
    return found
