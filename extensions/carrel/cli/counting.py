"""How much a workload has and how much it asks for, whatever kind of work it is.

Work that has parts (experiments, endpoints) is counted by its parts; elastic work by what it holds
now; everything else is all there or not at all.
"""

from typing import NamedTuple

from carrel.models import Workload


class Counts(NamedTuple):
    """Tasks (or parts) that run and that wait, GPUs held and asked for."""

    running: int
    waiting: int
    held: float
    requested: float


def counts(workload: Workload) -> Counts:
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
        return Counts(0, 0, 0.0, 0.0)
    requested = spec.gpus * spec.tasks
    if not workload.holds_resources:
        return Counts(0, 0 if workload.at_rest else spec.tasks, 0.0, requested)
    if spec.elastic is not None:
        live = [task for task in status.tasks if task.ended_at is None]
        held = sum(len(task.devices) if spec.gpus >= 1 else spec.gpus for task in live)
        return Counts(len(live), spec.tasks - len(live), float(held), requested)
    if status.phase == "starting":
        return Counts(0, spec.tasks, requested, requested)
    return Counts(spec.tasks, 0, requested, requested)


def _trials(workload: Workload) -> tuple[int, int]:
    experiment, now = workload.spec.experiment, workload.status.experiment
    if experiment is None or workload.at_rest:
        return 0, 0
    if now is None:
        return 0, min(experiment.parallelism, experiment.completions)
    done = now.completed + now.pruned + now.failed
    left = max(0, experiment.completions - done - now.running)
    return now.running, min(left, max(0, experiment.parallelism - now.running))


def _of_parts(workload: Workload, running: int, waiting: int) -> Counts:
    each = workload.spec.gpus * workload.spec.tasks
    if workload.at_rest:
        return Counts(0, 0, 0.0, each)
    return Counts(running, waiting, running * each, (running + waiting) * each)
