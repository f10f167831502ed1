"""Workers: workloads that run trials one after the other, so that short ones cost no process each.

A worker is a part of the experiment like a trial's own workload: queued, placed, preempted under
the same quota. It takes a few trials at a time and reports several ends at once; which trials it
has is noted in the study before it hears of them. What a worker had when it was lost, evicted or
suspended goes to another one, with the same parameters; a trial whose worker crashed is run alone
afterwards, and has failed after ``MOST_LOSSES`` crashes.

Everything here is pure: it acts on a ``Study`` and on what is known of the parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

from carrel_scheduler.workloads.controllers.contract import NewPart, at_rest
from carrel_scheduler.workloads.controllers.experiments.contract import (
    Ended,
    Study,
    StudyState,
    StudyTrial,
    WorkerRun,
)
from carrel_scheduler.workloads.controllers.experiments.parts import PARAMETER_FILE, part_name
from carrel_schema.objects import ReasonInfo, Workload
from carrel_schema.sections import ExperimentSpec, TrialSpec

FIRST_NUMBER: Final = 1_000_000
"""Numbers of workers among an experiment's parts; smaller ones are trials."""
MOST_LOSSES: Final = 3
MOST_FAILED: Final = 3
MOST_TAKEN: Final = 256
SHORT_SECONDS: Final = 5.0
TRIALS_TO_JUDGE: Final = 16
MODULE: Final = "carrel.job.worker"
LOST: Final = f"The worker that ran it was lost {MOST_LOSSES} times, each time with this trial."


def is_worker(part: Workload) -> bool:
    """Whether a part of an experiment is a worker."""
    return part.spec.part >= FIRST_NUMBER


def wanted(spec: ExperimentSpec, command: Sequence[str], parts: Mapping[int, Workload]) -> bool:
    """Whether trials are run by workers from now on.

    With ``auto`` that is so once enough trials of a Python script were short, unless a worker
    failed: another program may not be fit for it.
    """
    if spec.map or spec.trial_process == "warm":
        return True
    if spec.trial_process == "fresh" or not _is_python(command):
        return False
    workers = [part for part in parts.values() if is_worker(part)]
    if workers:
        return all(part.status.phase != "failed" for part in workers)
    seconds = sorted(
        part.status.ended_at - part.status.started_at
        for part in parts.values()
        if part.status.phase == "succeeded" and part.status.ended_at and part.status.started_at
    )
    return len(seconds) >= TRIALS_TO_JUDGE and seconds[len(seconds) // 2] < SHORT_SECONDS


def _is_python(command: Sequence[str]) -> bool:
    return bool(command) and PurePosixPath(command[0]).name.startswith("python")


def new_worker(owner: Workload, number: int) -> NewPart:
    """A new worker's workload. The command's parameters are filled in for each trial."""
    spec = owner.spec
    experiment = spec.experiment or ExperimentSpec()
    python = spec.command[0] if _is_python(spec.command) else "python"
    of_map = ["--map"] if experiment.map else []
    return NewPart(
        number=number,
        name=part_name(owner.meta.name, f"w{number - FIRST_NUMBER}"),
        spec=msgspec.structs.replace(
            spec,
            kind="trial",
            command=[python, "-m", MODULE, *of_map, "--", *spec.command],
            environment={
                **spec.environment,
                "CARREL_EXPERIMENT": owner.meta.name,
                "CARREL_METRIC": experiment.metric,
                "CARREL_PARAMETER_FILE": "" if PARAMETER_FILE in spec.files else PARAMETER_FILE,
            },
            trial=TrialSpec(number=number - FIRST_NUMBER, worker=True),
            experiment=None,
            restart_policy="never",
            suspend=False,
            delete=False,
            resumes=0,
        ),
        labels=owner.meta.labels,
    )


def missing(
    owner: Workload, spec: ExperimentSpec, standing: StudyState, parts: Mapping[int, Workload]
) -> list[NewPart]:
    """The workers to make: as many as have something to do, at most ``parallelism`` at once."""
    busy = sum(not at_rest(part) for part in parts.values())
    to_make = 0 if standing.exhausted else spec.completions - standing.made
    idle = sum(run.worker < 0 for run in standing.in_workers.values())
    count = min(spec.parallelism - busy, to_make + idle)
    first = max(max(parts, default=0) + 1, FIRST_NUMBER)
    return [new_worker(owner, first + index) for index in range(max(0, count))]


def lost(standing: StudyState, parts: Mapping[int, Workload]) -> dict[int, WorkerRun]:
    """Open trials whose worker does not run any more, as they are to be noted."""
    found: dict[int, WorkerRun] = {}
    for number, run in standing.in_workers.items():
        if run.worker < 0:
            continue
        part = parts.get(run.worker)
        if part is not None and _has(part, run):
            continue
        crashed = part is not None and part.status.phase == "failed"
        found[number] = msgspec.structs.replace(run, worker=-1, losses=run.losses + crashed)
    return found


def _has(part: Workload, run: WorkerRun) -> bool:
    """Whether the attempt to which a trial was assigned still holds its allocation."""
    status = part.status
    return not at_rest(part) and status.phase != "pending" and status.attempt == run.attempt


def return_lost(study: Study, runs: Mapping[int, WorkerRun], *, warm: bool) -> None:
    """Let other workers have the trials of a lost one, or workloads of their own."""
    for number, run in runs.items():
        study.assign(number, run if warm else None)
        if run.losses >= MOST_LOSSES:
            study.tell(Ended(number=number, state="failed", error=LOST, run=run))


def take(
    study: Study, spec: ExperimentSpec, worker: int, attempt: int, want: int
) -> list[StudyTrial]:
    """Give a worker trials to run: those that another one lost first, then new ones.

    As many as it wants, but never so many that others have nothing left at the end.
    """
    standing = study.standing()
    waiting = [number for number, run in standing.in_workers.items() if run.worker < 0]
    left = len(waiting) + (0 if standing.exhausted else spec.completions - standing.made)
    count = min(want, MOST_TAKEN, max(1, left // (2 * spec.parallelism)), left)
    found: list[StudyTrial] = []
    for number in waiting[:count]:
        run = standing.in_workers[number]
        if run.losses and found:
            break
        mine = msgspec.structs.replace(run, worker=worker, attempt=attempt)
        found.append(study.assign(number, mine))
        if run.losses:
            return found
    fresh = range(standing.made, standing.made + count - len(found))
    for number in () if standing.failed > spec.max_failed_trials else fresh:
        if not study.ask():
            break
        found.append(study.assign(number, WorkerRun(worker=worker, attempt=attempt)))
    return found


def finish(study: Study, worker: int, attempt: int, end: Ended) -> None:
    """End a worker's trial, with the values that were reported for it."""
    run = held(study, worker, attempt, end.number)
    if run is None:
        return
    study.report(end.number, end.values)
    if end.result is not None:
        study.result(end.number, end.result)
    said = end.run or run
    kept = msgspec.structs.replace(run, seconds=said.seconds, log=said.log, metrics=said.metrics)
    study.tell(msgspec.structs.replace(end, run=kept))


def give_back(study: Study, worker: int, attempt: int, numbers: Iterable[int]) -> None:
    """Return trials that a worker has not begun, or can no longer run."""
    for number in numbers:
        if (run := held(study, worker, attempt, number)) is not None:
            study.assign(number, msgspec.structs.replace(run, worker=-1))


def held(study: Study, worker: int, attempt: int, number: int) -> WorkerRun | None:
    """The run of an open trial that this attempt of a worker has, else ``None``."""
    trial = study.trial(number)
    if trial is None or trial.state not in ("open", "pruned") or trial.run is None:
        return None
    run = trial.run
    return run if (run.worker, run.attempt) == (worker, attempt) else None


def too_many_failed(workers: Sequence[Workload]) -> ReasonInfo | None:
    """The reason of an experiment whose workers fail repeatedly."""
    failed = [part for part in workers if part.status.phase == "failed"]
    if len(failed) <= MOST_FAILED:
        return None
    last = failed[-1]
    why = last.status.reason.sentence if last.status.reason else "It failed."
    return ReasonInfo(
        token="WorkersFailed",  # noqa: S106 - a reason's name
        cls="failed",
        sentence=f"{len(failed)} of its workers have failed. `{last.meta.name}`: {why}",
        help=f"Read `carrel logs {last.meta.name}`, or run each trial as a process of its own: "
        "`trial_process` of `fresh`.",
        data={"failed": len(failed)},
    )
