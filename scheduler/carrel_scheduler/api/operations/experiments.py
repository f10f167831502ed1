"""Operations on experiments: trials, the best trial, the study's log, reports and suggestions."""

from typing import Any, Final

import msgspec

from carrel_scheduler.api import convert, problems
from carrel_scheduler.api.models import experiments as models
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.paths import EXPERIMENT, WORKLOAD
from carrel_scheduler.api.operations.workers import experiment_of
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code
from carrel_scheduler.core.resources import MIB
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.workloads.controllers.experiments.contract import BadSuggestion, StudyTrial
from carrel_scheduler.workloads.controllers.experiments.parts import environment, filled
from carrel_scheduler.workloads.controllers.manager import part_uid
from carrel_scheduler.workloads.state.phases import HOLDING
from carrel_schema import answers
from carrel_schema.history import Report, StudyLog
from carrel_schema.objects import Workload
from carrel_schema.sections import Parameter


async def _trial(call: Call, number: int | None) -> Workload:
    """Find the workload that acts for a trial: the trial's own, or the worker that runs it."""
    found = call.workload
    if found.spec.trial is None or found.spec.trial.worker != (number is not None):
        raise problems.Conflicting(Code.NOT_A_TRIAL, "Only a trial of an experiment can do this")
    if number is not None and await call.services.deps.trials.trial_of(found, number) is None:
        raise problems.Conflicting(Code.NOT_A_TRIAL, f"This worker does not have trial {number}")
    return found


@Operation(
    "GET",
    f"{EXPERIMENT}/trials",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    answers={200: answers.Trials},
    problems=(409,),
    for_jobs=True,
)
async def list_trials(call: Call) -> Response:
    """List all trials of an experiment with their parameters, values and errors."""
    spec, owner, deps = experiment_of(call), call.workload, call.services.deps
    found = await deps.trials.table(owner)
    parts = await deps.ledger.list(
        Workload, projects=[owner.meta.project], workload_kind="trial", user=owner.spec.user
    )
    by_number = {part.spec.part: part for part in parts.items if part.spec.owner == owner.meta.uid}
    status, now = owner.status.experiment, deps.clock()
    return Response(
        answers.Trials(
            metric=spec.metric,
            direction=spec.direction,
            best=None if status is None else status.best_trial,
            items=[_shown(trial, by_number.get(_part(trial)), now) for trial in found],
        )
    )


def _part(trial: StudyTrial) -> int:
    """Answer the number of the part that runs the trial, or ran it."""
    return trial.number if trial.run is None else trial.run.worker


def _shown(trial: StudyTrial, part: Workload | None, now: float) -> answers.TrialOut:
    status = None if part is None else part.status
    state: str = trial.state
    if state == "open":
        state = "running" if status is not None and status.phase in HOLDING else "waiting"
    seconds = None if trial.run is None else trial.run.seconds
    if trial.run is None and status is not None and status.first_started_at is not None:
        seconds = max(0.0, (status.ended_at or now) - status.first_started_at)
    return answers.TrialOut(
        number=trial.number,
        state=state,
        parameters=trial.parameters,
        value=trial.value,
        steps=trial.steps,
        workload="" if part is None else part.meta.name,
        phase="" if status is None else status.phase,
        attempt=0 if status is None else status.attempt,
        seconds=seconds,
        error=trial.error,
        metrics={} if trial.run is None else trial.run.metrics,
    )


@Operation(
    "POST",
    f"{EXPERIMENT}/best",
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    body=models.BestIn,
    answers={200: answers.Draft},
    problems=(409,),
    for_jobs=True,
)
async def draft_best(call: Call) -> Response:
    """Make the request of a workload with the best trial's parameters, for the caller to submit."""
    experiment_of(call)
    body: models.BestIn = call.body
    owner, status = call.workload, call.workload.status.experiment
    if status is None or status.best_trial is None:
        raise problems.Conflicting(Code.NO_BEST_TRIAL, "No trial has come to an end with a value")
    parameters = status.best_parameters
    spec = owner.spec
    told = environment(owner, status.best_trial, parameters)
    del told["CARREL_TRIAL"]  # it is none: it reports like any other job
    workload: dict[str, Any] = {
        "name": body.name or f"{owner.meta.name[:57].rstrip('-')}-best",
        "project": owner.meta.project,
        "kind": body.kind,
        "command": filled(body.command or spec.command, parameters),
        "environment": {**spec.environment, **told},
        "files": spec.files,
        "working_dir": spec.working_dir,
        "volumes": convert.volumes(spec),
        "image": spec.image,
        "gpus": convert.gpus(spec.resources.gpu_milli),
        "cpu_millicores": spec.resources.cpu_milli,
        "memory_bytes": spec.resources.memory_bytes,
        "large_shm": spec.large_shm,
        "node_group": spec.node_group,
        "gpu_types": spec.gpu_types,
        "move_to_better_type": spec.move_to_better_type,
        "labels": {**owner.meta.labels, "carrel.dev/experiment": owner.meta.name},
    }
    ledger = call.services.deps.ledger
    try:
        best = await ledger.get_by_uid(Workload, part_uid(owner.meta.uid, status.best_trial))
        workload["continue_from"] = best.meta.name
    except ObjectNotFound:  # deleted since: its parameters are known, its checkpoints are not found
        pass
    if spec.resources.gpu_memory_mib:
        workload |= {"gpus": 0.0, "gpu_memory_bytes": spec.resources.gpu_memory_mib * MIB}
    if spec.resources.gpu_devices > 1:
        workload["gpu_devices"] = spec.resources.gpu_devices
    if spec.resources.mig_profile:
        workload["mig_profile"] = spec.resources.mig_profile
    if spec.resources.cpu_limit_milli:
        workload["cpu_limit_millicores"] = spec.resources.cpu_limit_milli
    if body.kind == "inference":
        workload["inference"] = {}
    secrets = await ledger.secrets(owner.meta.uid)
    return Response(
        answers.Draft(trial=status.best_trial, workload=workload, secrets=sorted(secrets))
    )


@Operation(
    "GET",
    f"{EXPERIMENT}/log",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    query=models.StudyLogQuery,
    answers={200: StudyLog},
    problems=(409,),
    for_jobs=True,
)
async def read_study_log(call: Call) -> Response:
    """Read the study as a log in the format of Optuna's journal storage."""
    spec = experiment_of(call)
    query: models.StudyLogQuery = call.query
    if spec.map:
        raise problems.Conflicting(
            Code.NOT_AN_EXPERIMENT, "A map searches nothing: it has no study"
        )
    entries = await call.services.deps.ledger.study(
        call.workload.meta.uid, first=query.first, limit=query.limit
    )
    return Response(
        StudyLog(
            entries=[msgspec.Raw(entry.encode()) for entry in entries],
            next=query.first + len(entries),
        )
    )


@Operation(
    "POST",
    f"{WORKLOAD}/trial",
    access=AdmittedCallers.TASK,
    permission="workloads:update",
    others="workloads:enter",
    body=models.TrialReportIn,
    answers={200: models.TrialAnswer},
    problems=(409,),
)
async def report_trial(call: Call) -> Response:
    """Record values of a trial's metric, and answer whether the trial is pruned."""
    body: models.TrialReportIn = call.body
    trial, deps = await _trial(call, body.trial), call.services.deps
    values = [(one.step, one.value) for one in body.values]
    pruned = await deps.trials.report(
        trial, values, result=body.result, asks=body.asks, number=body.trial
    )
    metric = trial.spec.environment.get("CARREL_METRIC", "")
    for step, value in values if metric and body.trial is None else ():
        said = Report(at=deps.clock(), step=step, metrics={metric: value})
        await deps.live.report(trial.meta.uid, said)
    return Response(models.TrialAnswer(should_prune=pruned))


@Operation(
    "POST",
    f"{WORKLOAD}/suggestions",
    access=AdmittedCallers.TASK,
    permission="workloads:update",
    others="workloads:enter",
    body=models.SuggestionIn,
    answers={200: models.Suggestion},
    problems=(409,),
)
async def suggest_parameter(call: Call) -> Response:
    """Suggest a value for a parameter of a running trial; repeated calls get the same value."""
    body: models.SuggestionIn = call.body
    trial = await _trial(call, body.trial)
    parameter = msgspec.convert(body, Parameter, from_attributes=True)
    trials = call.services.deps.trials
    try:
        value = await trials.suggest(trial, body.name, parameter, number=body.trial)
    except BadSuggestion as error:
        raise problems.Conflicting(Code.BAD_SUGGESTION, f"`{body.name}`: {error}") from error
    return Response(models.Suggestion(value=value))


OPERATIONS: Final = (
    list_trials,
    draft_best,
    read_study_log,
    report_trial,
    suggest_parameter,
)
