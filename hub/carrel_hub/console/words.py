"""Sentences that the console itself makes from facts; reasons come worded from the scheduler."""

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup, escape

from carrel import wording
from carrel.models import (
    Amounts,
    InteractiveLimits,
    Node,
    Preemption,
    Project,
    QueueEntry,
    Task,
    TrainingLimits,
    Workload,
    WorkloadSpec,
)
from carrel_hub.console import format as fmt
from carrel_hub.console.kinds import noun
from carrel_hub.console.pictures.timeline import StateSpan
from carrel_schema.text import group_amounts
from carrel_schema.text.preemption_cost import lost_time
from carrel_schema.text.preemption_cost import preemption_cost as preemption_cost  # noqa: PLC0414

_NAME = re.compile(r"`([^`]+)`")
_IDLE = {"workspace": "nobody has used it", "training": "its GPUs have done nothing"}
_BORROWED_BACK = "it ran on borrowed GPUs and their owner needs them"
_MORE_IMPORTANT = "a more important workload of the same project needs the room"
_RULES = {
    "reclaim": _BORROWED_BACK,
    "reclaimed": _BORROWED_BACK,
    "preempt": _MORE_IMPORTANT,
    "preempted": _MORE_IMPORTANT,
    "consolidate": "something larger fits now, and it goes on elsewhere",
    "incomplete": "members of its gang were missing for too long",
    "drain": "its node is being emptied",
    "improve": "GPUs of a type that it prefers are free",
    "evict": "it had to leave its node",
}


def prose(text: str) -> Markup:
    """A sentence with names in backticks, as HTML: names become bold, all else is escaped."""
    return Markup(_NAME.sub(r"<b>\1</b>", str(escape(text))))  # noqa: S704 - escaped before


def phase(workload: Workload) -> str:
    """The state to show: a crashed endpoint has failed, what is tried again is not just pending."""
    if wording.has_crashed(workload):
        return "failed"
    if workload.is_retrying:
        return "retrying-stalled" if workload.has_stalled else "retrying"
    return workload.status.phase


def device_use(task: Task, nodes: list[Node]) -> str:
    """The GPUs of a task with how hard each works now: ``0: 87 %, 9 of 24 GiB``."""
    node = next((one for one in nodes if one.name == task.node), None)
    known = {} if node is None else {device.index: device for device in node.devices}
    parts = []
    for index in task.devices:
        device, said = known.get(index), str(index)
        if device is not None and device.utilization is not None:
            said += f": {fmt.share(device.utilization)}"
        if device is not None and device.memory_used_mib is not None:
            used, whole = device.memory_used_mib / 1024, device.memory_mib / 1024
            said += f", {fmt.number(round(used, 1))} of {fmt.number(round(whole, 1))} GiB"
        parts.append(said)
    return "; ".join(parts) or "none"


def ran(workload: Workload, now: float) -> str:
    """The time since its first start, in words; empty before it."""
    status = workload.status
    began = status.first_started_at or status.started_at
    if began is None:
        return ""
    return fmt.duration(max((status.ended_at or now) - began, 0.0))


def request(
    gpus: float,
    cpu_millicores: int,
    memory_bytes: int,
    tasks: int = 1,
    mig_profile: str = "",
    gpu_devices: int = 1,
) -> str:
    """``2 GPUs · 4 CPUs · 16 GiB``, with the number of tasks when there are several."""
    shared = f"{gpu_devices} x {fmt.gpus(gpus)}" if gpu_devices > 1 else fmt.gpus(gpus)
    parts = [mig_profile or shared]
    if cpu_millicores:
        parts.append(fmt.cpus(cpu_millicores))
    if memory_bytes:
        parts.append(fmt.gib(memory_bytes))
    one = " · ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
    return one if tasks == 1 else f"{fmt.number(tasks)} tasks of {one}"


def same_reasons(entries: Sequence[QueueEntry]) -> dict[int, int]:
    """For each entry with the same reason as the one before: where that reason stands in full.

    Args:
        entries: in the order of service.
    """
    found: dict[int, int] = {}
    for before, entry in pairwise(entries):
        first, second = before.reason, entry.reason
        if first is None or second is None or not second.sentence:
            continue
        if (first.sentence, first.help) == (second.sentence, second.help):
            found[entry.position] = found.get(before.position, before.position)
    return found


def unsaved_seconds(workload: Workload, now: float) -> float | None:
    """Work that would be lost if it stopped now; ``None`` when it holds nothing."""
    status = workload.status
    if not workload.holds_resources or status.started_at is None:
        return None
    saved = status.checkpoint.at if status.checkpoint else 0.0
    return max(now - max(saved, status.started_at), 0.0)


def loss(workload: Workload, now: float) -> str:
    """The time that an eviction now would lose, as a sentence."""
    seconds = unsaved_seconds(workload, now)
    if seconds is None:
        return "It is not running: no work is lost."
    if workload.spec.kind == "workspace":
        return "Its notebooks' kernels and terminals end: variables in memory are lost."
    if workload.status.checkpoint is None:
        return f"It has no checkpoint yet: {lost_time(seconds)} of work is lost."
    step = fmt.number(workload.status.checkpoint.step)
    return f"{lost_time(seconds)} of work since the checkpoint at step {step} is lost."


def what_stays(workload: Workload) -> str:
    """The parts that a deletion removes, and those that it keeps."""
    if workload.spec.kind == "workspace":
        return "Files in the home folder stay."
    if workload.status.checkpoint is None:
        return "Its artifacts go with it; models and other files that it wrote stay."
    return (
        "Its artifacts and checkpoints go with it; models, kept checkpoints and other files stay."
    )


def preempted_for(preemption: Preemption) -> str:
    """The preemptor in words: project and workload, or somebody of the project.

    Empty where there is none, as when work moves to GPUs that it prefers.
    """
    if preemption.for_workload:
        return f"`{preemption.for_project}/{preemption.for_workload}`"
    if preemption.for_project:
        return f"a member of `{preemption.for_project}`"
    return ""


def preemption_rule(preemption: Preemption) -> str:
    """The preemption rule, in words."""
    return _RULES.get(preemption.rule.lower(), preemption.rule)


def stop_because(job: Workload) -> str:
    """The reason why a workspace or training will be stopped; empty when it will not."""
    because = "" if job.status.limits is None else job.status.limits.stops_because
    if because == "TimeLimit":
        return f"its project's time limit for {noun(job)}s is reached then"
    return _IDLE.get(job.spec.kind, because) if because == "Idle" else because


def progress(workload: Workload, now: float) -> str:
    """``1,200 of 4,000 steps · 4 min left``; empty when the job reports none."""
    seen = workload.status.progress
    if seen is None:
        return ""
    unit = seen.unit if seen.total == 1 else f"{seen.unit}s"
    if workload.status.phase == "succeeded":
        return f"{fmt.number(seen.done)} {unit} reported"
    if seen.total is None:
        return f"{fmt.number(seen.done)} {unit}"
    text = f"{fmt.number(seen.done)} of {fmt.number(seen.total)} {unit}"
    if workload.status.phase == "running" and seen.rate and seen.done < seen.total:
        left = (seen.total - seen.done) / seen.rate - max(now - seen.at, 0.0)
        text += f" · {fmt.duration(left)} left"
    return text


def interactive_rules(rules: InteractiveLimits) -> list[str]:
    """A project's rules for workspaces, one sentence each."""
    if rules.time_limit_seconds is None and rules.idle_timeout_seconds is None:
        return ["Workspaces run until their owner stops them."]
    found = []
    if rules.time_limit_seconds is not None:
        found.append(f"A workspace is stopped after {fmt.duration(rules.time_limit_seconds)}.")
    if rules.idle_timeout_seconds is not None:
        found.append(
            f"A workspace that nobody uses is stopped after"
            f" {fmt.duration(rules.idle_timeout_seconds)}."
        )
        if rules.busy_cap_seconds is not None:
            found.append(
                f"A cell that computes keeps it for {fmt.duration(rules.busy_cap_seconds)} at most."
            )
    warning = f"Its owner is told {fmt.duration(rules.warn_before_seconds)} before"
    if rules.max_extensions:
        times = "once" if rules.max_extensions == 1 else f"{rules.max_extensions} times"
        warning += f" and may keep it for {fmt.duration(rules.extend_seconds)} more, {times}"
    return [*found, f"{warning}."]


def effective_rules(project: Project) -> list[tuple[str, str]]:
    """Rules that hold for a project's work, with where they come from."""
    return [*_rules_of_groups_and_users(project), *wording.effective_rules(project)]


def _rules_of_groups_and_users(project: Project) -> list[tuple[str, str]]:
    """A project's quotas in groups of nodes, and the rules between its users; as far as set."""
    per_user = project.max_gpus_per_user
    found = [
        ("Guarantee in node groups", group_amounts.spell(project.node_group_quotas)),
        ("Limit in node groups", group_amounts.spell(project.node_group_limits)),
        ("Each user", "" if per_user is None else f"at most {fmt.gpus(per_user)}"),
        ("Users", "share it equally" if project.user_order == "fair-share" else ""),
    ]
    return [(label, value) for label, value in found if value]


def training_rules(rules: TrainingLimits) -> list[str]:
    """A project's rules for trainings, one sentence each."""
    found = []
    if rules.time_limit_seconds is not None:
        found.append(f"A training is stopped after {fmt.duration(rules.time_limit_seconds)}.")
    if rules.idle_gpu_seconds is not None:
        found.append(
            "A training whose GPUs do nothing is stopped after"
            f" {fmt.duration(rules.idle_gpu_seconds)}."
        )
    if not found:
        return ["Trainings run until they end."]
    return [*found, "It can be resumed from its last checkpoint."]


def limits_of_work(project: Project, kind: str) -> list[str]:
    """The bounds of work of a kind in a project, one sentence each, for people about to submit."""
    found = []
    limit = project.limit
    bounds = [
        "" if limit.gpus is None else fmt.gpus(limit.gpus),
        "" if limit.cpu_millicores is None else fmt.cpus(limit.cpu_millicores),
        "" if limit.memory_bytes is None else fmt.gib(limit.memory_bytes),
    ]
    if any(bounds):
        most = ", ".join(one for one in bounds if one)
        found.append(f"The project never gets more than {most}.")
    if kind in ("training", "distributed"):
        if project.over_quota:
            found.append(
                "Beyond the guarantee it may borrow what nobody uses; it gives that back when its "
                "owner needs it, and goes on from its last checkpoint later."
            )
        else:
            found.append("The project borrows nothing: beyond its guarantee work waits.")
        rules = project.training
        if rules.time_limit_seconds is not None or rules.idle_gpu_seconds is not None:
            found += training_rules(rules)
    return found


def interactive_short(rules: InteractiveLimits) -> str:
    """The two limits of workspaces, abbreviated."""
    parts = []
    if rules.time_limit_seconds is not None:
        parts.append(f"{fmt.duration(rules.time_limit_seconds)} at most")
    if rules.idle_timeout_seconds is not None:
        parts.append(f"{fmt.duration(rules.idle_timeout_seconds)} idle")
    return " · ".join(parts) or "no time limit"


def amounts(found: Amounts) -> str:
    """A quota or limit: ``4 GPUs · any CPUs · 64 GiB``."""
    return " · ".join(
        [
            "any GPUs" if found.gpus is None else fmt.gpus(found.gpus),
            "any CPUs" if found.cpu_millicores is None else fmt.cpus(found.cpu_millicores),
            "any memory" if found.memory_bytes is None else fmt.gib(found.memory_bytes),
        ]
    )


def command_line(command: list[str]) -> str:
    """A command as typed in a shell."""
    return shlex.join(command) if command else "the workspace's own"


def restart_rule(spec: WorkloadSpec) -> str:
    """The rules for a task that ends with an error, and for one that stalls."""
    stalled = wording.stall_rule(spec.restart_when_stalled, spec.stall_after_seconds)
    end = f"; when it stands still: {stalled}" if stalled else ""
    if spec.restart_policy == "never":
        return f"it is not tried again{end}"
    times = "once" if spec.backoff_limit == 1 else f"{fmt.number(spec.backoff_limit)} times"
    return f"it is tried again, {times} at most{end}"


def avoided(job: Workload) -> str:
    """The nodes and GPUs that the next attempt avoids."""
    return wording.avoided(job)


def gpu_types(spec: WorkloadSpec) -> str:
    """The types of GPUs that will do, and whether the work moves to a better one."""
    return wording.gpu_types(spec)


def room_on(node: Node) -> int:
    """Wholly free GPUs that a job on this node could get; none where no CPU or memory is left."""
    full = (
        node.cpu_allocated_milli >= node.cpu_milli > 0
        or node.memory_allocated_bytes >= node.memory_bytes > 0
    )
    return 0 if full else node.largest_free_gpus


def largest_job(nodes: list[Node]) -> str:
    """The largest job that could start now, as a sentence."""
    largest = max((room_on(node) for node in nodes), default=0)
    if not any(node.devices for node in nodes):
        return "There are no GPUs: jobs without GPUs start on free processors and memory."
    if largest == 0 and any(node.largest_free_gpus for node in nodes):
        return "GPUs are free, but beside them all processors or all memory are taken."
    if largest == 0:
        return "No GPU is wholly free: a job with GPUs that has no guarantee left waits."
    return f"Largest job that would start now: {fmt.gpus(largest)} on one node."


def free_by_size(nodes: list[Node]) -> list[tuple[int, int]]:
    """The number of jobs of 1, 2, 4, ... GPUs on one node that would fit at the same time.

    Sizes go up to the largest node; pairs of (GPUs, jobs).
    """
    most = max((len(node.devices) for node in nodes), default=0)
    sizes = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return [(size, sum(room_on(node) // size for node in nodes)) for size in sizes]


def change_note(span: StateSpan, workload: Workload) -> str:
    """The note at a change of state that has no reason of its own."""
    if span.first and span.phase == "pending":
        return f"Submitted by {workload.created_by or workload.spec.user}."
    if span.phase == "starting":
        return f"A place was found for attempt {span.attempt + 1}."
    return f"Attempt {span.attempt + 1}." if span.phase == "running" else ""


def task_end(task: Task) -> str:
    """The end of a task in words; empty while it runs."""
    if task.ended_at is None:
        return ""
    if task.signal:
        return f"ended by signal {task.signal}"
    if task.exit_code is None:
        return "ended, exit code unknown"
    return "ended well" if task.exit_code == 0 else f"ended with exit code {task.exit_code}"


def can_delete(project: Project) -> bool:
    """Whether a project has no running or pending work, so that its deletion may be tried."""
    return project.use.running == 0 and project.use.waiting == 0


def value(found: Any) -> str:
    """A value of a rule or a template, as people write it."""
    if isinstance(found, float) and found.is_integer():
        return str(int(found))
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, list):
        return " ".join(map(value, found))
    if isinstance(found, dict):
        return ", ".join(f"{name}={value(one)}" for name, one in found.items())
    return str(found)
