"""Operations of an experiment's workers: taking and ending trials, and the outputs of maps."""

from typing import Final

from carrel_scheduler.api import problems
from carrel_scheduler.api.models import experiments as models
from carrel_scheduler.api.operation import BYTES, Call, Operation, Response
from carrel_scheduler.api.operations.paths import EXPERIMENT, WORKLOAD
from carrel_scheduler.api.operations.results import MOST_BYTES
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.problems import Code
from carrel_scheduler.workloads.controllers.experiments.contract import Ended, StudyTrial, WorkerRun
from carrel_scheduler.workloads.controllers.experiments.parts import environment, filled
from carrel_schema import answers
from carrel_schema.code import digest_of
from carrel_schema.objects import Workload
from carrel_schema.sections import ExperimentSpec

TURN_SECONDS: Final = 60.0
"""A worker that has run for so long ends where work of its project waits; another one queues."""


def experiment_of(call: Call) -> ExperimentSpec:
    """Find the experiment that the path names; raises ``Conflicting`` for other work."""
    spec = call.workload.spec.experiment
    if spec is None:
        raise problems.Conflicting(Code.NOT_AN_EXPERIMENT, "Only an experiment has trials")
    return spec


def _worker(call: Call) -> Workload:
    trial = call.workload.spec.trial
    if trial is None or not trial.worker:
        raise problems.Conflicting(Code.NOT_A_WORKER, "Only a worker of an experiment can do this")
    return call.workload


@Operation(
    "POST",
    f"{WORKLOAD}/trials",
    access=AdmittedCallers.TASK,
    permission="workloads:update",
    others="workloads:enter",
    body=models.WorkerIn,
    answers={200: models.TakenTrials},
    problems=(409,),
)
async def take_trials(call: Call) -> Response:
    """Record how a worker's trials ended, and give it further trials."""
    worker, deps = _worker(call), call.services.deps
    body: models.WorkerIn = call.body
    ends = [_ended(one) for one in body.ended]
    want = 0 if body.want and _leaves(call) else body.want
    taken = await deps.trials.take(worker, ends, body.returned, want)
    owner = await deps.ledger.get_by_uid(Workload, worker.spec.owner) if taken else worker
    return Response(models.TakenTrials(items=[_taken(one, owner) for one in taken]))


def _taken(trial: StudyTrial, owner: Workload) -> models.TakenTrial:
    """Describe a trial for its worker; an item of a map is described by its number alone."""
    if owner.spec.experiment is not None and owner.spec.experiment.map:
        return models.TakenTrial(trial=trial.number)
    return models.TakenTrial(
        trial=trial.number,
        command=filled(owner.spec.command, trial.parameters),
        environment=environment(owner, trial.number, trial.parameters),
    )


def _ended(one: models.EndedTrialIn) -> Ended:
    return Ended(
        number=one.trial,
        state="failed" if one.error else "completed",
        error=one.error,
        run=WorkerRun(seconds=one.seconds, log=one.log, metrics=one.metrics),
        values=tuple((value.step, value.value) for value in one.values),
        result=one.result,
    )


def _leaves(call: Call) -> bool:
    """Decide whether the worker ends, so that pending work of its project gets its resources."""
    deps, status = call.services.deps, call.workload.status
    if status.started_at is None or deps.clock() - status.started_at < TURN_SECONDS:
        return False
    project = call.workload.meta.project
    use = deps.live.project_use(project).get(project)
    return use is not None and use.waiting > 0


@Operation(
    "GET",
    f"{EXPERIMENT}/trial-log",
    access=AdmittedCallers.MEMBER,
    permission="workloads:read",
    query=models.TrialLogQuery,
    answers={200: answers.TrialLog},
    problems=(409,),
)
async def read_trial_log(call: Call) -> Response:
    """Read the end of the output of a trial that a worker ran; the worker's log has all of it."""
    experiment_of(call)
    query: models.TrialLogQuery = call.query
    found = await call.services.deps.trials.table(call.workload)
    for trial in found:
        if trial.number == query.trial and trial.run is not None:
            return Response(answers.TrialLog(trial=trial.number, log=trial.run.log))
    raise problems.Missing(
        Code.NO_LOGS, f"No worker has run a trial {query.trial}; others have logs of their own"
    )


@Operation(
    "PUT",
    f"{WORKLOAD}/outputs/{{digest}}",
    access=AdmittedCallers.TASK,
    permission="workloads:update",
    others="workloads:enter",
    raw_bytes=MOST_BYTES,
    answers={204: None},
    problems=(409,),
)
async def write_output(call: Call) -> Response:
    """Store what items of a map returned; the path is the SHA-256 of the body."""
    worker, digest = _worker(call), call.path["digest"]
    found = digest_of(call.body)
    if found != digest:
        raise problems.invalid_field("digest", Code.INVALID, digest, f"{found}, as the body's is")
    if worker.spec.delete:
        raise problems.Conflicting(
            Code.BEING_DELETED, "The map is being deleted; nobody waits for its outputs"
        )
    if not await call.services.deps.results.put_output(worker.spec.owner, digest, call.body):
        raise problems.Conflicting(
            Code.STORAGE_FULL, "A map returns at most 4 GiB in all; save larger values to files"
        )
    return Response(status=204)


@Operation(
    "GET",
    f"{EXPERIMENT}/outputs",
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    others="workloads:enter",
    answers={200: answers.OutputNames},
    problems=(409,),
)
async def list_outputs(call: Call) -> Response:
    """List the outputs that workers of a map have stored so far."""
    experiment_of(call)
    names = await call.services.deps.results.outputs(call.workload.meta.uid)
    return Response(answers.OutputNames(items=names))


@Operation(
    "GET",
    f"{EXPERIMENT}/outputs/{{digest}}",
    access=AdmittedCallers.OWNER,
    permission="workloads:update",
    others="workloads:enter",
    answers={200: bytes},
    media=BYTES,
    problems=(409,),
)
async def read_output(call: Call) -> Response:
    """Read an output that a worker stored, unchanged."""
    experiment_of(call)
    results, uid = call.services.deps.results, call.workload.meta.uid
    name = call.path["digest"]
    content = await results.get_output(uid, name) if name in await results.outputs(uid) else None
    if content is None:
        raise problems.Missing(Code.NO_RESULT, "There is no such output")
    return Response(content, media=BYTES)


OPERATIONS: Final = (take_trials, read_trial_log, write_output, list_outputs, read_output)
