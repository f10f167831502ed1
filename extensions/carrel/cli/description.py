"""``carrel describe job``: everything about one job in plain words."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from carrel.cli import kind_facts, units, views
from carrel.cli.output import fields, say, table
from carrel.models import History, Task, Transition, Workload
from carrel.options import type_word

OWN_FOLDER = "its own, with nothing but the files that came along"


def job(
    workload: Workload, past: History, parts: Sequence[Workload], now: float, service: str
) -> None:
    """Print it."""
    fields(_facts(workload, now, service))
    say()
    if workload.spec.kind in kind_facts.PARTS:
        _parts(kind_facts.PARTS[workload.spec.kind], parts)
    else:
        say("Tasks:")
        _tasks(workload.status.tasks, now)
    say()
    say("Events:")
    _events(past.transitions, now)


def _facts(workload: Workload, now: float, service: str) -> list[tuple[str, str]]:
    spec, status = workload.spec, workload.status
    place = f"{status.queue_position:,} in the queue" if status.queue_position else ""
    url = views.service_url(workload, service)
    return [
        ("Name", workload.name),
        ("Project", workload.project),
        ("User", spec.user or workload.created_by),
        ("Type", type_word(spec.kind)),
        ("Status", views.status_word(workload)),
        ("Why", views.why(workload)),
        ("What would help", status.reason.help if status.reason else ""),
        ("Place", place),
        ("Created", f"{_moment(workload.created_at)} ({_ago(workload.created_at, now)})"),
        ("Ran for", _ran(workload, now)),
        ("GPUs", f"{views.gpu_cell(workload)}{', borrowed' if status.borrowed else ''}"),
        ("MIG instance", spec.mig_profile),
        ("Processors", units.number(spec.cpu_millicores / 1000)),
        ("Memory", units.memory(spec.memory_bytes)),
        ("Shared memory", "large" if spec.large_shm else ""),
        ("Node group", spec.node_group),
        ("Preemptible", "yes" if spec.preemptible else "no"),
        ("Priority", str(spec.priority)),
        *kind_facts.of(workload, now),
        ("Command", shlex.join(spec.command)),
        ("Image", spec.image),
        ("Working dir", spec.working_dir or (OWN_FOLDER if spec.command else "")),
        ("Environment", ", ".join(f"{key}={value}" for key, value in spec.environment.items())),
        ("Volumes", ", ".join(volume.spelt for volume in spec.volumes)),
        ("Inputs", ", ".join(spec.inputs)),
        ("Attempts", _attempts(workload)),
        ("Progress", _progress(workload)),
        ("Metrics", ", ".join(f"{key} {value:.6g}" for key, value in status.metrics.items())),
        ("Checkpoint", _checkpoint(workload, now)),
        ("Last preemption", _preemption(workload, now)),
        ("Stops", _stop(workload, now)),
        ("Service URL", "" if url == views.NOTHING else url),
    ]


def _ran(workload: Workload, now: float) -> str:
    status = workload.status
    over = status.ended_at is not None and workload.at_rest
    if status.started_at is None or not (workload.holds_resources or over):
        return ""
    return units.duration((status.ended_at or now) - status.started_at)


def _attempts(workload: Workload) -> str:
    status = workload.status
    if not status.attempt:
        return ""
    return (
        f"{status.attempt + 1} ({status.failures} failed of at most "
        f"{workload.spec.backoff_limit + 1}, {status.preemptions} preempted)"
    )


def _progress(workload: Workload) -> str:
    progress = workload.status.progress
    if progress is None:
        return ""
    of = "" if progress.total is None else f" of {units.number(progress.total)}"
    rate = "" if progress.rate is None else f", {progress.rate:.3g} per second"
    return f"{progress.unit} {units.number(progress.done)}{of}{rate}"


def _checkpoint(workload: Workload, now: float) -> str:
    checkpoint = workload.status.checkpoint
    if checkpoint is None:
        return ""
    return f"at step {checkpoint.step:,}, {_ago(checkpoint.at, now)}"


def _preemption(workload: Workload, now: float) -> str:
    """When, for whom, under which rule, what was lost."""
    facts = workload.status.last_preemption
    if facts is None:
        return ""
    whom = f"`{facts.for_workload}` of `{facts.for_project}`"
    if not facts.for_workload:
        whom = f"a member of `{facts.for_project}`"
    step = "" if facts.checkpoint_step is None else f" since step {facts.checkpoint_step:,}"
    lost = f"{units.duration(facts.lost_seconds)} of work lost{step}"
    return f"{_ago(facts.at, now)}, for {whom} ({facts.rule}); {lost}"


def _stop(workload: Workload, now: float) -> str:
    limits = workload.status.limits
    if limits is None or limits.stops_at is None:
        return ""
    idle = "its GPUs do nothing" if workload.spec.kind == "training" else "nobody uses it"
    why = {"TimeLimit": "its time limit", "Idle": idle}
    because = why.get(limits.stops_because, limits.stops_because)
    return f"in {units.duration(limits.stops_at - now)} ({because})"


def _parts(title: str, parts: Sequence[Workload]) -> None:
    say(f"{title}:")
    if not parts:
        say("None yet.")
        return
    headers = ("NAME", "STATUS", "NODE", "GPUs Allocated (Requested)", "PARAMETERS", "METRICS")
    table(headers, kind_facts.rows(parts))
    if len(parts) > kind_facts.MOST_PARTS:
        say(f"... and {len(parts) - kind_facts.MOST_PARTS:,} older ones.")


def _tasks(tasks: Sequence[Task], now: float) -> None:
    if not tasks:
        say("None now: it has no place yet, or gave it back.")
        return
    rows = [
        [
            str(task.index),
            task.node or views.NOTHING,
            ",".join(map(str, task.devices)) or views.NOTHING,
            str(task.pid) if task.pid else views.NOTHING,
            views.NOTHING
            if task.started_at is None
            else units.duration((task.ended_at or now) - task.started_at),
            _ending(task),
        ]
        for task in tasks
    ]
    table(("TASK", "NODE", "GPUs", "PROCESS", "AGE", "ENDED"), rows)


def _ending(task: Task) -> str:
    if task.signal:
        return f"signal {task.signal}"
    if task.exit_code is not None:
        return f"exit code {task.exit_code}"
    return task.message or views.NOTHING


def _events(transitions: Sequence[Transition], now: float) -> None:
    if not transitions:
        say("None yet.")
        return
    rows = [
        [
            _ago(row.at, now),
            row.to_phase.capitalize(),
            row.node or views.NOTHING,
            (row.reason.sentence or row.reason.token) if row.reason else views.NOTHING,
        ]
        for row in transitions
    ]
    table(("WHEN", "STATUS", "NODE", "MESSAGE"), rows)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(at: float, now: float) -> str:
    return f"{units.duration(now - at)} ago"
