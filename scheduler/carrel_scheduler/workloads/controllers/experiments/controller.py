"""Experiments: asks for configurations, runs each of them, and records their results.

One pass: ends of trials are recorded in the study; new ones are asked for while fewer than
``parallelism`` are under way and fewer than ``completions`` were made; every open trial that has no
workload gets one; pruned ones are ended. The study is stored before workloads are made, and a
trial's workload has the same uid whoever makes it, so a scheduler that is killed at any point goes
on with the same configurations, each of which runs once.

A preempted trial is still its workload, pending again: it runs again with the same parameters.

Short trials are run by workers, which take them themselves (``workers``): one pass then makes the
workers that are wanted, and takes back what a lost one had.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from carrel_scheduler.workloads.controllers import contract as saying
from carrel_scheduler.workloads.controllers.contract import DesiredState, NewPart
from carrel_scheduler.workloads.controllers.experiments import parts as words
from carrel_scheduler.workloads.controllers.experiments import workers
from carrel_scheduler.workloads.controllers.experiments.contract import (
    Ended,
    Study,
    StudyState,
    WorkerRun,
)
from carrel_scheduler.workloads.controllers.experiments.parts import new_part
from carrel_scheduler.workloads.controllers.experiments.studies import Studies
from carrel_scheduler.workloads.state import reasons
from carrel_scheduler.workloads.state.phases import FINAL
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Phase, ReasonInfo, Workload
from carrel_schema.sections import ExperimentSpec, ExperimentStatus

Tail = Callable[[str], Awaitable[str]]
Made = Callable[[Workload, int], Awaitable[bool]]


@dataclass(slots=True)
class ReconcileInput:
    """The experiment and its trials in one pass.

    Attributes:
        parts: the trials' workloads by number.
        ending: the experiment makes no more trials and stops those that run.
        warm: workers run its trials; only they ask for new ones.
    """

    owner: Workload
    spec: ExperimentSpec
    parts: Mapping[int, Workload]
    now: float
    ending: bool = False
    warm: bool = False
    created: list[NewPart] = field(default_factory=list)

    def under_way(self, standing: StudyState) -> set[int]:
        """Trials that run, wait or have not been given back; ``parallelism`` limits them."""
        busy = {number for number, part in self.parts.items() if not saying.at_rest(part)}
        return busy | set(standing.open)

    def workers_failed(self) -> ReasonInfo | None:
        """The reason why the experiment ends where workers fail again and again."""
        return workers.too_many_failed(self.workers) if self.warm else None

    @property
    def workers(self) -> list[Workload]:
        """The experiment's workers in the order of their numbers, ended ones included."""
        return [part for part in self.parts.values() if workers.is_worker(part)]

    def may_ask(self, standing: StudyState) -> bool:
        """Whether another trial is wanted now."""
        return (
            not self.ending
            and not self.warm
            and not standing.exhausted
            and standing.failed <= self.spec.max_failed_trials
            and standing.made < self.spec.completions
            and len(self.under_way(standing)) < self.spec.parallelism
        )


class Experiments:
    """See the module.

    Args:
        studies: keeps and stores what Optuna knows.
        tail: the last lines of a workload's log, by its uid.
        made: whether an experiment's trial had a workload once, by its number.
    """

    kind: Final[WorkloadKind] = "experiment"

    def __init__(self, studies: Studies, *, tail: Tail, made: Made) -> None:
        self._studies, self._tail, self._made = studies, tail, made

    async def look(self, owner: Workload, parts: Sequence[Workload], now: float) -> DesiredState:
        """See ``Controller``."""
        spec = owner.spec.experiment or ExperimentSpec()
        scene = ReconcileInput(owner, spec, {part.spec.part: part for part in parts}, now)
        scene.ending = owner.spec.suspend
        scene.warm = workers.wanted(spec, owner.spec.command, scene.parts)
        standing = await self._studies.use(owner, lambda study: study.standing())
        ends = await self._ends(scene, standing)
        lost = workers.lost(standing, scene.parts)
        if ends or lost or scene.may_ask(standing):
            standing = await self._studies.use(
                owner, lambda study: _advance(study, scene, ends, lost)
            )
        if standing.failed > spec.max_failed_trials or scene.workers_failed() is not None:
            standing = await self._give_up(scene, standing)
        if not scene.ending:
            scene.created = _new_parts(scene, standing)
        wanted = _wanted(scene, standing)
        if wanted.status.phase in FINAL:
            self._studies.let_go(owner.meta.uid)
        return wanted

    async def removed(self, owner: Workload) -> None:
        """Remove the study of a deleted experiment."""
        self._studies.let_go(owner.meta.uid)

    async def _ends(self, scene: ReconcileInput, standing: StudyState) -> list[Ended]:
        """The outcomes of open trials whose workloads have ended."""
        found: list[Ended] = []
        for number in sorted(standing.open.keys() - standing.in_workers.keys()):
            part = scene.parts.get(number)
            if part is None:
                if await self._made(scene.owner, number):
                    found.append(Ended(number=number, state="stopped", error=words.DELETED))
            elif (end := await self._end(part, scene.spec.metric)) is not None:
                found.append(end)
        return found

    async def _end(self, part: Workload, metric: str) -> Ended | None:
        number, status = part.spec.part, part.status
        if part.spec.delete:
            return Ended(number=number, state="stopped", error=words.DELETED)
        if status.phase == "succeeded":
            return Ended(number=number, state="completed", latest=status.metrics.get(metric))
        if status.phase == "failed" or (status.phase == "stopped" and not part.spec.suspend):
            why = status.reason.sentence if status.reason else ""
            log = await self._tail(part.meta.uid)
            return Ended(number=number, state="failed", error=words.error(why, log))
        return None

    async def _give_up(self, scene: ReconcileInput, standing: StudyState) -> StudyState:
        """Stop an experiment with too many failed trials: no new ones, the running ones end."""
        scene.ending = True
        over = [
            Ended(number=number, state="stopped", error=words.GIVEN_UP)
            for number in standing.open
            if (part := scene.parts.get(number)) is None or saying.at_rest(part)
        ]
        return await self._studies.use(scene.owner, lambda study: _advance(study, scene, over))


def _new_parts(scene: ReconcileInput, standing: StudyState) -> list[NewPart]:
    """Workloads to create: one for each trial that needs its own, and missing workers."""
    found = [
        new_part(scene.owner, number, parameters)
        for number, parameters in standing.open.items()
        if number not in scene.parts and number not in standing.in_workers
    ]
    if scene.warm:
        found += workers.missing(scene.owner, scene.spec, standing, scene.parts)
    return found


def _advance(
    study: Study,
    scene: ReconcileInput,
    ends: Sequence[Ended],
    lost: Mapping[int, WorkerRun] | None = None,
) -> StudyState:
    for end in ends:
        study.tell(end)
    workers.return_lost(study, lost or {}, warm=scene.warm)
    standing = study.standing()
    while scene.may_ask(standing) and study.ask():
        standing = study.standing()
    return standing


def _wanted(scene: ReconcileInput, standing: StudyState) -> DesiredState:
    phase, reason = _phase(scene, standing)
    status = saying.moved(scene.owner, phase, scene.now, reason)
    status.experiment = _counts(standing)
    changed, again = _changes(scene, standing)
    status.observed_resumes = scene.owner.spec.resumes
    return DesiredState(status, changed=changed, created=scene.created, look_again_at=again)


def _phase(scene: ReconcileInput, standing: StudyState) -> tuple[Phase, ReasonInfo | None]:
    busy = any(not saying.at_rest(part) for part in scene.parts.values())
    if (failed := scene.workers_failed()) is not None:
        return ("stopping" if busy or standing.open else "failed"), failed
    if standing.failed > scene.spec.max_failed_trials:
        if busy or standing.open:
            return "stopping", words.too_many_failed(scene.spec, standing)
        return "failed", words.too_many_failed(scene.spec, standing)
    if scene.owner.spec.suspend:
        return ("stopping" if busy else "stopped"), reasons.suspended(scene.owner.spec)
    over = standing.made >= scene.spec.completions or standing.exhausted
    if not over or standing.open or busy or scene.created:
        return "running", None
    if scene.spec.map and standing.failed:
        return "failed", words.items_failed(standing)
    if standing.completed or scene.spec.map:
        return "succeeded", None
    return "failed", words.none_completed(standing)


def _counts(standing: StudyState) -> ExperimentStatus:
    best = standing.best
    return ExperimentStatus(
        running=len(standing.open),
        completed=standing.completed,
        pruned=len(standing.pruned),
        failed=standing.failed,
        best_trial=None if best is None else best.number,
        best_value=None if best is None else best.value,
        best_parameters={} if best is None else best.parameters,
    )


def _changes(scene: ReconcileInput, standing: StudyState) -> tuple[list[Workload], float | None]:
    """Parts to suspend or resume, and when to check those that were given time to end."""
    if scene.ending:
        return saying.to_suspend(tuple(scene.parts.values())), None
    leaving = {number: until for number, until in standing.leaving.items() if until > scene.now}
    pruned = [part for number, part in scene.parts.items() if number in standing.pruned]
    changed = saying.to_suspend([part for part in pruned if part.spec.part not in leaving])
    if not scene.warm:
        changed += saying.to_suspend(scene.workers)
    if scene.owner.spec.resumes > scene.owner.status.observed_resumes:
        waiting = [part for number, part in scene.parts.items() if number in standing.open]
        changed += saying.to_resume(waiting)
    busy = [leaving[part.spec.part] for part in pruned if _leaves(part, leaving)]
    return changed, min(busy, default=None)


def _leaves(part: Workload, leaving: Mapping[int, float]) -> bool:
    return part.spec.part in leaving and not saying.at_rest(part)
