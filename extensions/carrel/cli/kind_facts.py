"""What ``carrel describe job`` says of some kinds of work only: their sections, and their parts."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from carrel.cli import units
from carrel.models import Workload
from carrel_schema.sections import EndpointStatus

Facts = list[tuple[str, str]]
OWNER_LABEL: Final = "carrel.dev/owner"
MOST_PARTS: Final = 50
PARTS: Final = {"experiment": "Trials", "inference": "Replicas", "schedule": "Runs"}


def of(workload: Workload, now: float) -> Facts:
    """Named facts about its kind's own part; empty ones are left out by whoever shows them."""
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


def rows(parts: Sequence[Workload]) -> list[list[str]]:
    """Lines about parts, the newest first: name, parameters, state."""
    from carrel.cli import views

    ordered = sorted(parts, key=lambda part: (part.spec.part, part.created_at), reverse=True)
    return [
        [
            part.name,
            views.status_word(part),
            views.nodes_of(part),
            views.gpu_cell(part),
            _values(part.spec.trial.parameters if part.spec.trial else {}) or views.NOTHING,
            ", ".join(f"{key} {one:.4g}" for key, one in part.status.metrics.items())
            or views.NOTHING,
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
    """As measured over the last minute; empty where nobody asked."""
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
    next_run = "" if due is None else f"{_moment(due)} (in {units.duration(due - now)})"
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


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
