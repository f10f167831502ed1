"""Reports and requests of running trials, and the views of trials for users.

A value of the metric is stored before its sender gets its answer. The pruner judges it at
once: a trial that asks gets the answer, and has its grace period to end by itself; one that does
not ask is stopped by the controller.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from carrel_scheduler.engines.contract import Engine, EngineError, LogRequest
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.workloads.controllers.contract import is_part_of
from carrel_scheduler.workloads.controllers.experiments import workers
from carrel_scheduler.workloads.controllers.experiments.contract import Ended, Study, StudyTrial
from carrel_scheduler.workloads.controllers.experiments.controller import Experiments
from carrel_scheduler.workloads.controllers.experiments.parts import LINES
from carrel_scheduler.workloads.controllers.experiments.studies import Studies
from carrel_scheduler.workloads.controllers.manager import part_uid
from carrel_scheduler.workloads.state.phases import FINAL
from carrel_schema.history import Report
from carrel_schema.objects import Workload
from carrel_schema.sections import ExperimentSpec, Parameter

T = TypeVar("T")
Values = Sequence[tuple[int | None, float]]
MOST_BYTES: Final = 64 * 1024
TOLD_SECONDS: Final = 1.0
"""The interval at which an experiment's counts are updated while workers report ends."""


class Composites(Protocol):
    """The methods of the manager that trials need."""

    epoch: int

    def wake(self, uid: str) -> None:
        """Reconcile a composite workload soon."""
        ...


class TrialController:
    """See the module. ``clock`` gives epoch seconds."""

    def __init__(
        self, studies: Studies, composites: Composites, *, clock: Callable[[], float]
    ) -> None:
        self._studies, self._composites, self._clock = studies, composites, clock
        self._told: dict[str, float] = {}

    async def report(
        self,
        trial: Workload,
        values: Values,
        *,
        result: float | None = None,
        asks: bool = False,
        number: int | None = None,
    ) -> bool:
        """Take values of the metric; returns whether the trial is pruned.

        Args:
            trial: the trial's workload.
            values: steps and values; a step of ``None`` is the one after the last.
            result: the value that counts, whatever was reported.
            asks: the trial waits for the answer and ends by itself if it is pruned.
            number: of the trial, where a worker reports.

        Raises ``ObjectNotFound`` when the experiment is gone.
        """
        until = self._clock() + trial.spec.grace_seconds
        owner = await self._owner(trial)
        number = trial.spec.part if number is None else number

        def take(study: Study) -> tuple[bool, bool]:
            before = study.pruned(number)
            study.report(number, values)
            if result is not None:
                study.result(number, result)
            pruned = study.leave(number, until, asks=asks)
            return pruned, pruned and not before

        pruned, newly = await self._use(owner, take)
        if newly:
            self._composites.wake(owner.meta.uid)
        return pruned

    async def take(
        self, worker: Workload, ends: Sequence[Ended], returned: Sequence[int], want: int
    ) -> list[StudyTrial]:
        """Handle a worker's request: end the trials that it finished, and assign new ones.

        Args:
            worker: the worker's workload.
            ends: of trials that it has; others are ignored: it was thought lost meanwhile.
            returned: numbers of trials that it has and does not run.
            want: how many it would take; none are given while the experiment ends.

        Raises ``ObjectNotFound`` when the experiment is gone.
        """
        owner = await self._owner(worker)
        spec = owner.spec.experiment or ExperimentSpec()
        number, attempt = worker.spec.part, worker.status.attempt
        gone = owner.spec.suspend or owner.spec.delete or worker.spec.suspend or worker.spec.delete

        def work(study: Study) -> tuple[list[StudyTrial], bool]:
            for end in ends:
                workers.finish(study, number, attempt, end)
            workers.give_back(study, number, attempt, returned)
            found = [] if gone else workers.take(study, spec, number, attempt, want)
            standing = study.standing() if ends else None
            over = standing is not None and (
                not standing.open or standing.failed > spec.max_failed_trials
            )
            return found, over

        found, over = await self._use(owner, work)
        now = self._clock()
        if over or (ends and now - self._told.get(owner.meta.uid, 0.0) >= TOLD_SECONDS):
            self._told[owner.meta.uid] = now
            self._composites.wake(owner.meta.uid)
        if over:
            del self._told[owner.meta.uid]
        return found

    async def trial_of(self, part: Workload, number: int) -> StudyTrial | None:
        """The open or pruned trial that a worker has; ``None``: it has no such trial."""
        owner = await self._owner(part)

        def find(study: Study) -> StudyTrial | None:
            held = workers.held(study, part.spec.part, part.status.attempt, number)
            return None if held is None else study.trial(number)

        return await self._use(owner, find)

    async def heard(self, workload: Workload, said: Report) -> None:
        """A job's report: of a trial, the experiment's metric counts like a value of its own."""
        if workload.spec.trial is None or workload.spec.trial.worker:
            return
        owner = await self._owner(workload)
        metric = "" if owner.spec.experiment is None else owner.spec.experiment.metric
        if metric in said.metrics:
            await self.report(workload, [(said.step, said.metrics[metric])])

    async def suggest(
        self, trial: Workload, name: str, parameter: Parameter, *, number: int | None = None
    ) -> Any:
        """Suggest a parameter that the trial defines as it runs; ``number``: of a worker's trial.

        Raises ``BadSuggestion``; ``ObjectNotFound`` when the experiment is gone.
        """
        owner = await self._owner(trial)
        which = trial.spec.part if number is None else number
        return await self._use(owner, lambda study: study.suggest(which, name, parameter))

    async def table(self, owner: Workload) -> list[StudyTrial]:
        """All trials of an experiment."""
        if not await self._studies.begun(owner.meta.uid):
            return []
        return await self._use(owner, lambda study: study.trials())

    async def _owner(self, trial: Workload) -> Workload:
        """The experiment of a trial. Raises ``ObjectNotFound``."""
        owner = await self._studies.owner(trial.spec.owner)
        if not is_part_of(trial, owner):
            raise ObjectNotFound(f"{trial.meta.name} is no trial of {owner.meta.name}")
        return owner

    async def _use(self, owner: Workload, work: Callable[[Study], T]) -> T:
        result = await self._studies.use(owner, work)
        if owner.status.phase in FINAL:
            self._studies.let_go(owner.meta.uid)
        return result


def wired(
    ledger: Ledger, engine: Engine, composites: Composites, *, clock: Callable[[], float]
) -> tuple[Experiments, TrialController, Studies]:
    """Build the controller of experiments, its API, and the studies of both."""
    studies = Studies(ledger, epoch=lambda: composites.epoch)

    async def tail(uid: str) -> str:
        return await log_tail(engine.logs(uid, LogRequest(tail_lines=LINES)))

    async def made(owner: Workload, number: int) -> bool:
        uid = part_uid(owner.meta.uid, number)
        return bool(await ledger.transitions(workload_uid=uid, limit=1))

    controller = Experiments(studies, tail=tail, made=made)
    return controller, TrialController(studies, composites, clock=clock), studies


async def log_tail(pieces: AsyncIterator[bytes]) -> str:
    """The end of a log; empty where there is none: a trial may fail before it ran."""
    found = b""
    try:
        async for piece in pieces:
            found = (found + piece)[-MOST_BYTES:]
    except EngineError:
        return ""
    return found.decode("utf-8", "replace")
