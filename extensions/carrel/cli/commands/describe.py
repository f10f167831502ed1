"""``carrel describe job``: everything about one job: its request, status, tasks and history."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from carrel import units, wording
from carrel.cli import cells
from carrel.cli.common import fields, say, table
from carrel.models import History, Task, Transition, Workload
from carrel.options import type_word
from carrel_schema.sections import EndpointStatus
from carrel_schema.text.preemption_cost import preemption_cost

Facts = list[tuple[str, str]]
OWNER_LABEL: Final = "carrel.dev/owner"
MOST_PARTS: Final = 50
HELP: Final = "What would help"
PARTS: Final = {"experiment": "Trials", "inference": "Replicas", "schedule": "Runs"}


def kind_facts(workload: Workload, now: float) -> Facts:
    """Named facts of the workload's kind; empty ones are not printed."""
    spec, found = workload.spec, []
    if spec.tasks > 1 or spec.elastic or spec.rendezvous:
        found += _gang(workload)
    makers: Mapping[str, Callable[[Workload, float], Facts]] = {
        "experiment": _experiment,
        "inference": _endpoint,
        "notebook": _notebook,
        "schedule": _schedule,
        "tensorboard": _board,
    }
    if spec.kind in makers:
        found += makers[spec.kind](workload, now)
    found += [
        ("Port", f"{route.name or 'main'} {route.port or 'chosen'}, for {_access(route.access)}")
        for route in spec.routes
    ]
    return found


def part_rows(parts: Sequence[Workload]) -> list[list[str]]:
    """Lines about parts, the newest first: name, parameters, state."""
    ordered = sorted(parts, key=lambda part: (part.spec.part, part.created_at), reverse=True)
    return [
        [
            part.name,
            cells.status_word(part),
            cells.nodes_of(part),
            cells.gpu_cell(part),
            _values(part.spec.trial.parameters if part.spec.trial else {}) or cells.NOTHING,
            ", ".join(f"{key} {one:.4g}" for key, one in part.status.metrics.items())
            or cells.NOTHING,
        ]
        for part in ordered[:MOST_PARTS]
    ]


def _gang(workload: Workload) -> Facts:
    spec = workload.spec
    least = "" if spec.elastic is None else f", at least {spec.elastic.min_tasks or spec.tasks}"
    if spec.elastic is not None and spec.elastic.gpus_of_task:
        least = ", its GPUs as there is room"
    launcher = "" if spec.rendezvous is None else spec.rendezvous.launcher
    return [("Workers", f"{spec.tasks}{least}"), ("Launcher", launcher)]


def _experiment(workload: Workload, _: float) -> Facts:
    spec, status = workload.spec.experiment, workload.status.experiment
    if spec is None:
        return []
    facts = [
        ("Search", f"{spec.sampler}, pruner {spec.pruner}, {spec.direction} {spec.metric}"),
        ("At once", f"{spec.parallelism} of {spec.completions} trials"),
    ]
    facts += [("Parameter", f"{name}: {_space(one)}") for name, one in spec.parameters.items()]
    if status is None:
        return facts
    counts = (
        f"{status.completed} completed, {status.running} running, {status.pruned} pruned, "
        f"{status.failed} failed of at most {spec.max_failed_trials}"
    )
    best = ""
    if status.best_trial is not None and status.best_value is not None:
        values = _values(status.best_parameters)
        best = f"{status.best_value:.6g} in trial {status.best_trial}"
        best += f" ({values})" if values else ""
    return [*facts, ("Trials", counts), ("Best", best)]


def _endpoint(workload: Workload, now: float) -> Facts:
    spec, status = workload.spec.inference, workload.status.endpoint
    if spec is None:
        return []
    facts = [("Replicas", f"{spec.min_replicas} to {spec.max_replicas}")]
    if status is None:
        return facts
    asked = status.last_request_at
    return [
        *facts,
        ("Now", f"{status.ready} ready, {status.starting} starting of {status.wanted} wanted"),
        ("Updating", f"to revision {spec.revision}" if status.updating else ""),
        (
            "Requests",
            f"{units.number(status.requests_per_second)} per second, {status.in_flight} in flight",
        ),
        ("Latency", _latency(status)),
        ("Last request", "" if asked is None else f"{units.duration(now - asked)} ago"),
    ]


def _latency(status: EndpointStatus) -> str:
    """The latency over the last minute; empty without requests."""
    half, most = status.latency_p50_seconds, status.latency_p99_seconds
    if half is None or most is None:
        return ""
    return f"{units.number(half * 1000)} ms (p99 {units.number(most * 1000)} ms)"


def _notebook(workload: Workload, _: float) -> Facts:
    spec, status = workload.spec.notebook, workload.status.notebook
    if spec is None:
        return []
    facts = [("Notebook", spec.path), ("Parameters", _values(spec.parameters))]
    if status is None:
        return [*facts, ("Output", spec.output)]
    resumed = "" if status.resumed_from is None else f", on from cell {status.resumed_from}"
    return [
        *facts,
        ("Cells", f"{status.cell} of {status.cells} done{resumed}" if status.cells else ""),
        ("Output", status.output or spec.output),
        ("Error", status.error),
    ]


def _schedule(workload: Workload, now: float) -> Facts:
    spec, status = workload.spec.schedule, workload.status.schedule
    if spec is None:
        return []
    facts = [("Schedule", f"{spec.cron} ({spec.time_zone})"), ("Overlap", spec.overlap)]
    if status is None:
        return facts
    due = status.next_at
    next_run = "" if due is None else f"{_minute(due)} (in {units.duration(due - now)})"
    return [
        *facts,
        ("Next run", next_run),
        ("Last run", status.last_run),
        ("Left out", f"{status.missed} missed" if status.missed else ""),
    ]


def _board(workload: Workload, _: float) -> Facts:
    spec = workload.spec.tensorboard
    return [] if spec is None else [("Jobs", ", ".join(spec.jobs))]


def _space(one: Any) -> str:
    if one.type == "categorical":
        return ", ".join(map(str, one.choices))
    step = "" if one.step is None else f" in steps of {one.step:g}"
    shape = ", logarithmic" if one.log else ""
    return f"{one.type} {one.low:g} to {one.high:g}{step}{shape}"


def _values(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in parameters.items())


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _access(word: str) -> str:
    return {"user": "its user", "project": "its project", "everyone": "everyone"}.get(word, word)


def _minute(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


OWN_FOLDER = "its own, with nothing but the files that came along"


def show_job(
    workload: Workload,
    past: History,
    parts: Sequence[Workload],
    now: float,
    service: str,
    helps: Sequence[str] = (),
) -> None:
    """Print everything about a job; ``helps``: sentences on what would unblock it."""
    facts = _facts(workload, now, service)
    fields([fact for fact in facts if not helps or fact[0] != HELP])
    say()
    if helps:
        say(f"{HELP}:")
        for sentence in (dict(facts)[HELP], *helps):
            if sentence:
                say(sentence)
        say()
    if workload.spec.kind in PARTS:
        _parts(PARTS[workload.spec.kind], parts)
    else:
        say("Tasks:")
        _tasks(workload.status.tasks, now)
    say()
    say("Events:")
    _events(past.transitions, now)


def _facts(workload: Workload, now: float, service: str) -> list[tuple[str, str]]:
    spec, status = workload.spec, workload.status
    place = f"{status.queue_position:,} in the queue" if status.queue_position else ""
    url = cells.service_url_cell(workload, service)
    return [
        ("Name", workload.name),
        ("Project", workload.project),
        ("User", spec.user or workload.created_by),
        ("Type", type_word(spec.kind)),
        ("Status", cells.status_word(workload)),
        ("Why", cells.why(workload)),
        (HELP, status.reason.help if status.reason else ""),
        ("Place", place),
        ("Created", f"{_moment(workload.created_at)} ({_ago(workload.created_at, now)})"),
        ("Ran for", _ran(workload, now)),
        ("GPUs", f"{cells.gpu_cell(workload)}{', borrowed' if status.borrowed else ''}"),
        ("GPU shares", _shares(workload)),
        ("GPU memory", units.memory(spec.gpu_memory_bytes) if spec.gpu_memory_bytes else ""),
        ("MIG instance", spec.mig_profile),
        ("Processors", units.number(spec.cpu_millicores / 1000)),
        ("Memory", units.memory(spec.memory_bytes)),
        ("Shared memory", "large" if spec.large_shm else ""),
        ("Node group", spec.node_group),
        ("GPU types", wording.gpu_types(spec)),
        ("Topology", _topology(workload)),
        ("Preemptible", "yes" if spec.preemptible else "no"),
        ("Priority", str(spec.priority)),
        *kind_facts(workload, now),
        ("Submitted by", spec.parent),
        ("Starts after", _dependencies(workload)),
        ("Command", shlex.join(spec.command)),
        ("Image", spec.image),
        ("Working dir", spec.working_dir or (OWN_FOLDER if spec.command else "")),
        ("Environment", ", ".join(f"{key}={value}" for key, value in spec.environment.items())),
        ("Volumes", ", ".join(volume.spelt for volume in spec.volumes)),
        ("Inputs", ", ".join(spec.inputs)),
        ("When stalled", wording.stall_rule(spec.restart_when_stalled, spec.stall_after_seconds)),
        ("Attempts", _attempts(workload)),
        ("Avoids", wording.avoided(workload)),
        ("Progress", _progress(workload)),
        ("Metrics", ", ".join(f"{key} {value:.6g}" for key, value in status.metrics.items())),
        ("Checkpoint", _checkpoint(workload, now)),
        ("Last preemption", _preemption(workload, now)),
        ("Stops", _stop(workload, now)),
        ("Service URL", "" if url == cells.NOTHING else url),
    ]


def _dependencies(workload: Workload) -> str:
    """The work that a workload waits or waited for, and the phase of each."""
    waits = set(workload.spec.blocked_by)
    return ", ".join(
        f"{one.name} ({one.unmet or ('pending' if one.name in waits else 'met')}"
        f"{'' if one.condition == 'ok' else ', any end'})"
        for one in workload.spec.after
    )


def show_list(heading: str, others: Sequence[Workload]) -> None:
    """Print other work below a heading, if there is any."""
    if not others:
        return
    say()
    say(heading)
    rows = [[one.name, cells.status_word(one), type_word(one.spec.kind)] for one in others]
    table(("NAME", "STATUS", "TYPE"), rows)


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


def _shares(workload: Workload) -> str:
    """``0.25 of each of 2``: a share of several GPUs."""
    spec = workload.spec
    if spec.gpu_devices == 1:
        return ""
    return f"{units.number(spec.gpus)} of each of {spec.gpu_devices}" if spec.gpus else ""


def _topology(workload: Workload) -> str:
    spec = workload.spec
    required, preferred = spec.topology_required, spec.topology_preferred
    parts = [
        f"together in one {required}" if required else "",
        f"in one {preferred} if possible" if preferred else "",
    ]
    return ", ".join(part for part in parts if part)


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
    """The words about the last preemption: when, for whom, under which rule, what was lost."""
    facts = workload.status.last_preemption
    if facts is None:
        return ""
    whom = f", for a member of `{facts.for_project}`" if facts.for_project else ""
    if facts.for_workload:
        whom = f", for `{facts.for_workload}` of `{facts.for_project}`"
    happened = f"{_ago(facts.at, now)}{whom} ({wording.preemption_rule(facts.rule)})"
    if workload.status.phase == "preempting":
        return happened
    return f"{happened}; {preemption_cost(facts)}"


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
    table(headers, part_rows(parts))
    if len(parts) > MOST_PARTS:
        say(f"... and {len(parts) - MOST_PARTS:,} older ones.")


def _tasks(tasks: Sequence[Task], now: float) -> None:
    if not tasks:
        say("None now: it has no place yet, or gave it back.")
        return
    rows = [
        [
            str(task.index),
            task.node or cells.NOTHING,
            ",".join(map(str, task.devices)) or cells.NOTHING,
            str(task.pid) if task.pid else cells.NOTHING,
            cells.NOTHING
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
    return task.message or cells.NOTHING


def _events(transitions: Sequence[Transition], now: float) -> None:
    if not transitions:
        say("None yet.")
        return
    rows = [
        [
            _ago(row.at, now),
            row.to_phase.capitalize(),
            row.node or cells.NOTHING,
            (row.reason.sentence or row.reason.token) if row.reason else cells.NOTHING,
        ]
        for row in transitions
    ]
    table(("WHEN", "STATUS", "NODE", "MESSAGE"), rows)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(at: float, now: float) -> str:
    return f"{units.duration(now - at)} ago"
