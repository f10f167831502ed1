"""The words of the pages for each kind of work: its noun, its address, its own facts."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from carrel.models import Workload
from carrel_hub.console import format as fmt
from carrel_hub.console.settings import Urls

NOUNS: Final[Mapping[str, str]] = {
    "distributed": "distributed training",
    "inference": "endpoint",
    "notebook": "notebook job",
    "tensorboard": "TensorBoard",
}
"""Names of kinds for people, where they are not those of the API."""
PLURALS: Final[Mapping[str, str]] = {
    "training": "trainings",
    "distributed": "distributed trainings",
    "experiment": "experiments",
    "inference": "endpoints",
    "notebook": "notebook jobs",
    "schedule": "schedules",
    "tensorboard": "TensorBoards",
    "workspace": "workspaces",
}
_REPORTS: Final = frozenset({"training", "distributed", "trial", "notebook"})
_WITHOUT_TASKS: Final = frozenset({"experiment", "inference", "schedule"})


def noun(workload: Workload) -> str:
    """The noun for a kind of work: ``workspace``, ``training``, ``endpoint``."""
    return NOUNS.get(workload.spec.kind, workload.spec.kind)


def reports(workload: Workload) -> bool:
    """Whether work of this kind reports metrics."""
    return workload.spec.kind in _REPORTS


def has_tasks(workload: Workload) -> bool:
    """Whether it runs by itself; others are made of trials, replicas or runs."""
    return workload.spec.kind not in _WITHOUT_TASKS


def addresses(workload: Workload, urls: Urls) -> list[str]:
    """The present addresses of a workload, as paths below the Hub; empty while nothing answers."""
    spec, status = workload.spec, workload.status
    if workload.at_rest or status.phase == "pending":
        return []
    if spec.kind == "workspace":
        running = status.phase == "running"
        found = [urls.workspace(spec.user, spec.server_name)] if running else []
    else:
        found = []
    if spec.kind not in ("experiment", "schedule"):
        base = f"{urls.services}gateway/{quote(workload.project)}/{quote(workload.name)}/"
        found += [f"{base}~{route.name}/" if route.name else base for route in spec.routes]
    return found


def facts(workload: Workload, now: float) -> list[tuple[str, str]]:
    """The facts that only its kind has, as names and values; times are ``fmt.moment``s."""
    return [
        (name, value)
        for found in (_experiment, _endpoint, _notebook, _schedule, _board)
        for name, value in found(workload, now)
    ]


def _experiment(workload: Workload, _now: float) -> list[tuple[str, str]]:
    spec, status = workload.spec.experiment, workload.status.experiment
    if spec is None:
        return []
    found = [("Looks for", f"the {_most(spec.direction)} {spec.metric}, by {spec.sampler}")]
    if status is not None:
        counts = {
            "running": status.running,
            "completed": status.completed,
            "pruned": status.pruned,
            "failed": status.failed,
        }
        said = " · ".join(f"{fmt.number(count)} {word}" for word, count in counts.items() if count)
        found.append(("Trials", f"{said or 'none yet'}, of {fmt.number(spec.completions)}"))
        if status.best_value is not None:
            values = ", ".join(
                f"{name} {_short(value)}" for name, value in sorted(status.best_parameters.items())
            )
            best = f"{fmt.measured(status.best_value)} (trial {status.best_trial})"
            found.append(("Best so far", f"{best}: {values}" if values else best))
    return found


def _most(direction: str) -> str:
    return "smallest" if direction == "minimize" else "largest"


def _short(value: object) -> str:
    return fmt.measured(value) if isinstance(value, float) else str(value)


def _endpoint(workload: Workload, now: float) -> list[tuple[str, str]]:
    spec, status = workload.spec.inference, workload.status.endpoint
    if spec is None:
        return []
    found = [("Replicas", f"{spec.min_replicas} to {spec.max_replicas}")]
    if status is None:
        return found
    ready = f"{status.ready} ready of {status.wanted} wanted"
    starting = f", {status.starting} starting" if status.starting else ""
    found[0] = ("Replicas", f"{ready}{starting}; {found[0][1]} allowed")
    requests = f"{fmt.measured(status.requests_per_second)} a second, {status.in_flight} in flight"
    found.append(("Requests", requests))
    if status.latency_p50_seconds is not None and status.latency_p99_seconds is not None:
        half, most = (
            f"{fmt.measured(seconds * 1000)} ms"
            for seconds in (status.latency_p50_seconds, status.latency_p99_seconds)
        )
        found.append(("Answers begin within", f"{half} (half of them), {most} (99 of 100)"))
    if status.last_request_at is not None:
        found.append(("Last request", fmt.moment(status.last_request_at, now)))
    revision = f"{status.revision}, and a new one is coming" if status.updating else ""
    found.append(("Revision", revision or str(status.revision)))
    return found


def _notebook(workload: Workload, _now: float) -> list[tuple[str, str]]:
    spec, status = workload.spec.notebook, workload.status.notebook
    if spec is None:
        return []
    found = [("Notebook", spec.path)]
    if spec.parameters:
        pairs = ", ".join(f"{name} = {value}" for name, value in sorted(spec.parameters.items()))
        found.append(("Parameters", pairs))
    if status is not None:
        if status.cells:
            found.append(("Cells done", f"{status.cell} of {status.cells}"))
        if status.output:
            found.append(("Executed notebook", status.output))
        if status.error:
            found.append(("Error", status.error))
    return found


def _schedule(workload: Workload, now: float) -> list[tuple[str, str]]:
    spec, status = workload.spec.schedule, workload.status.schedule
    if spec is None:
        return []
    found = [("Runs", f"a {spec.runs} at {spec.cron} ({spec.time_zone})")]
    if status is not None:
        coming = fmt.moment(status.next_at, now) if status.next_at else "not while it is suspended"
        found.append(("Next run", coming))
        if status.last_at is not None:
            found.append(("Last run", fmt.moment(status.last_at, now)))
        left_out = f", {status.skipped} skipped, {status.missed} missed"
        begun = f"{fmt.number(status.runs)} begun"
        found.append(("So far", begun + (left_out if status.skipped or status.missed else "")))
    return found


def _board(workload: Workload, _now: float) -> list[tuple[str, str]]:
    spec = workload.spec.tensorboard
    return [] if spec is None else [("Shows", ", ".join(spec.jobs))]
