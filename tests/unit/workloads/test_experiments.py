"""The controller of experiments in virtual time, on a study that is a list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from carrel_scheduler.workloads.controllers.contract import DesiredState
from carrel_scheduler.workloads.controllers.experiments.contract import (
    Ended,
    StudyState,
    StudyTrial,
    WorkerRun,
)
from carrel_scheduler.workloads.controllers.experiments.controller import Experiments
from carrel_scheduler.workloads.controllers.experiments.studies import Studies
from carrel_schema.objects import Meta, ReasonInfo, Workload, WorkloadSpec, WorkloadStatus
from carrel_schema.sections import ExperimentSpec, Parameter

T = TypeVar("T")


@dataclass
class ListedStudy:
    """Configurations x = 0, 1, 2, ...; of the values that were reported the last counts."""

    size: int = 1000
    trials_made: list[StudyTrial] = field(default_factory=list)
    values: dict[int, float] = field(default_factory=dict)
    leaving: dict[int, float] = field(default_factory=dict)

    def standing(self) -> StudyState:
        def of(state: str) -> list[StudyTrial]:
            return [one for one in self.trials_made if one.state == state]

        failed, completed = of("failed"), of("completed")
        return StudyState(
            open={one.number: one.parameters for one in of("open")},
            pruned=frozenset(one.number for one in of("pruned")),
            leaving=dict(self.leaving),
            made=len(self.trials_made),
            completed=len(completed),
            failed=len(failed),
            exhausted=len(self.trials_made) >= self.size,
            best=min(completed, key=lambda one: one.value or 0.0, default=None),
            last_error=failed[-1].error if failed else "",
            in_workers={one.number: one.run for one in of("open") if one.run is not None},
        )

    def assign(self, number: int, run: WorkerRun | None) -> StudyTrial:
        self._change(number, run=run)
        return self.trials_made[number]

    def trial(self, number: int) -> StudyTrial | None:
        return self.trials_made[number] if number < len(self.trials_made) else None

    def ask(self) -> bool:
        number = len(self.trials_made)
        if number >= self.size:
            return False
        self.trials_made.append(StudyTrial(number=number, state="open", parameters={"x": number}))
        return True

    def tell(self, ended: Ended) -> None:
        if self.trials_made[ended.number].state != "open":
            return
        value = self.values.get(ended.number)
        state = ended.state
        if state == "completed" and value is None:
            state = "failed"
        run = ended.run or self.trials_made[ended.number].run
        self._change(ended.number, state=state, value=value, error=ended.error, run=run)

    def report(self, number: int, values: Sequence[tuple[int | None, float]]) -> None:
        for _, value in values:
            self.values[number] = value

    def prune(self, number: int) -> None:
        self._change(number, state="pruned")

    def _change(self, number: int, **facts: Any) -> None:
        self.trials_made[number] = msgspec.structs.replace(self.trials_made[number], **facts)


@dataclass
class ListedStudies:
    study: ListedStudy
    let_gone: list[str] = field(default_factory=list)

    async def use(self, owner: Workload, work: Callable[[ListedStudy], T]) -> T:
        return work(self.study)

    def let_go(self, uid: str) -> None:
        self.let_gone.append(uid)


class Bench:
    """An experiment, its trials' workloads, and the controller."""

    def __init__(self, size: int = 1000, **experiment: Any) -> None:
        facts = {"completions": 4, "parallelism": 2, "max_failed_trials": 1} | experiment
        self.study = ListedStudy(size)
        self.studies = ListedStudies(self.study)
        self.once_made: set[int] = set()
        self.parts: dict[int, Workload] = {}
        self.now = 1000.0
        self.owner = Workload(
            meta=Meta(name="sweep", project="vision", uid="e1", labels={"team": "a"}),
            spec=WorkloadSpec(
                kind="experiment",
                user="ada",
                command=["train", "--x={x}", "{y}"],
                environment={"SEED": "1"},
                experiment=ExperimentSpec(
                    parameters={"x": Parameter(type="int", low=0, high=9)}, **facts
                ),
            ),
        )
        self.controller = Experiments(
            cast("Studies", self.studies), tail=self._tail, made=self._made
        )

    async def _tail(self, uid: str) -> str:
        return "Traceback ...\nValueError: boom"

    async def _made(self, owner: Workload, number: int) -> bool:
        return number in self.once_made

    async def look(self) -> DesiredState:
        """One look; what it wants is made true as the manager and the reconciler would."""
        ordered = [self.parts[number] for number in sorted(self.parts)]
        wanted = await self.controller.look(self.owner, ordered, self.now)
        for part in wanted.changed:
            self.parts[part.spec.part] = part
            part.status.phase = "stopped" if part.spec.suspend else "pending"
        for new in wanted.created:
            spec = msgspec.structs.replace(new.spec, owner="e1", part=new.number)
            meta = Meta(name=new.name, uid=f"t{new.number}", labels=dict(new.labels))
            self.parts[new.number] = Workload(
                meta=meta, spec=spec, status=WorkloadStatus(phase="running")
            )
            self.once_made.add(new.number)
        self.owner.status = wanted.status
        return wanted

    async def end(
        self, number: int, phase: str = "succeeded", value: float | None = None
    ) -> DesiredState:
        if value is not None:
            self.study.values[number] = value
        self.parts[number].status.phase = phase  # type: ignore[assignment]
        return await self.look()

    def states(self) -> list[str]:
        return [one.state for one in self.study.trials_made]

    def phases(self) -> Mapping[int, str]:
        return {number: part.status.phase for number, part in self.parts.items()}


async def test_a_trial_is_the_experiments_work_with_its_parameters() -> None:
    bench = Bench()
    wanted = await bench.look()
    assert [new.name for new in wanted.created] == ["sweep-0", "sweep-1"]
    part = bench.parts[1]
    assert (part.spec.kind, part.spec.command) == ("trial", ["train", "--x=1", "{y}"])
    told = part.spec.environment
    assert (told["CARREL_PARAM_X"], told["CARREL_PARAMETERS"]) == ("1", '{"x": 1}')
    assert (told["CARREL_TRIAL"], told["CARREL_EXPERIMENT"], told["SEED"]) == ("1", "sweep", "1")
    assert part.spec.files == {"parameters.json": '{"x": 1}'}
    assert (part.spec.restart_policy, part.spec.experiment) == ("never", None)
    assert part.meta.labels == {"team": "a"}
    assert wanted.status.phase == "running"
    assert wanted.status.experiment is not None
    assert wanted.status.experiment.running == 2


async def test_another_follows_each_that_ends_until_all_are_made() -> None:
    bench = Bench()
    await bench.look()
    for number in range(4):
        assert len([one for one in bench.phases().values() if one == "running"]) <= 2
        await bench.end(number, value=float(10 - number))
    counts = bench.owner.status.experiment
    assert counts is not None
    assert (bench.owner.status.phase, counts.completed) == ("succeeded", 4)
    assert (counts.best_trial, counts.best_value, counts.best_parameters) == (3, 7.0, {"x": 3})
    assert sorted(bench.parts) == [0, 1, 2, 3]
    assert bench.studies.let_gone == ["e1"]


async def test_what_was_asked_for_and_not_made_is_made_with_the_same_parameters() -> None:
    bench = Bench()
    bench.study.ask()
    bench.study.ask()
    wanted = await bench.look()
    assert [new.number for new in wanted.created] == [0, 1]
    assert len(bench.study.trials_made) == 2


async def test_a_trial_whose_workload_was_deleted_is_not_made_again() -> None:
    bench = Bench()
    await bench.look()
    del bench.parts[0]
    await bench.look()
    assert bench.states()[:3] == ["stopped", "open", "open"]
    assert sorted(bench.parts) == [1, 2]
    bench.parts[1].spec.delete = True
    await bench.look()
    assert bench.states()[1] == "stopped"
    assert bench.study.standing().failed == 0


async def test_a_preempted_trial_keeps_its_place() -> None:
    bench = Bench()
    await bench.look()
    bench.parts[0].status = WorkloadStatus(phase="pending", attempt=1, preemptions=1)
    wanted = await bench.look()
    assert (wanted.created, wanted.changed, bench.states()) == ([], [], ["open", "open"])


async def test_a_crash_is_counted_and_kept_and_another_trial_follows() -> None:
    bench = Bench()
    await bench.look()
    bench.parts[0].status.reason = ReasonInfo(token="Failed", sentence="Failed: exit code 1.")
    await bench.end(0, "failed")
    assert bench.study.trials_made[0].error == (
        "Failed: exit code 1.\nTraceback ...\nValueError: boom"
    )
    assert sorted(bench.parts) == [0, 1, 2]
    assert bench.owner.status.phase == "running"


async def test_too_many_crashes_stop_what_runs_and_end_it() -> None:
    bench = Bench(completions=10, parallelism=3)
    await bench.look()
    await bench.end(0, "failed")
    running = await bench.end(1, "failed")
    assert running.status.phase == "stopping"
    assert bench.phases() == {0: "failed", 1: "failed", 2: "stopped", 3: "stopped"}
    await bench.look()
    assert bench.owner.status.phase == "failed"
    assert bench.states() == ["failed", "failed", "stopped", "stopped"]
    reason = bench.owner.status.reason
    assert reason is not None
    assert (reason.token, "ValueError: boom" in reason.sentence) == ("TooManyFailedTrials", True)


async def test_a_trial_stopped_by_a_limit_has_failed_one_suspended_by_hand_waits() -> None:
    bench = Bench()
    await bench.look()
    bench.parts[1].spec.suspend = True
    bench.parts[1].status.phase = "stopped"
    await bench.end(0, "stopped")
    assert bench.states() == ["failed", "open", "open"]


async def test_suspended_and_resumed() -> None:
    bench = Bench()
    await bench.look()
    bench.owner.spec.suspend = True
    assert (await bench.look()).status.phase == "stopping"
    assert (await bench.look()).status.phase == "stopped"
    assert bench.phases() == {0: "stopped", 1: "stopped"}
    bench.owner.spec.suspend = False
    bench.owner.spec.resumes += 1
    assert (await bench.look()).status.phase == "running"
    assert bench.phases() == {0: "pending", 1: "pending"}
    assert bench.owner.status.observed_resumes == 1
    assert (await bench.look()).changed == []


async def test_a_pruned_trial_is_ended_and_counts_until_its_work_is_over() -> None:
    bench = Bench()
    await bench.look()
    bench.study.prune(0)
    wanted = await bench.look()
    assert [part.meta.uid for part in wanted.changed] == ["t0"]
    assert wanted.created == []
    assert [new.number for new in (await bench.look()).created] == [2]


async def test_a_trial_that_asked_has_time_to_end_by_itself() -> None:
    bench = Bench()
    await bench.look()
    bench.study.prune(0)
    bench.study.leaving[0] = bench.now + 30
    wanted = await bench.look()
    assert (wanted.changed, wanted.look_again_at) == ([], bench.now + 30)
    bench.now += 30
    assert [part.meta.uid for part in (await bench.look()).changed] == ["t0"]


async def test_it_ends_when_no_configuration_is_left() -> None:
    bench = Bench(size=1)
    await bench.look()
    await bench.end(0, value=1.0)
    assert bench.owner.status.phase == "succeeded"


async def test_without_a_value_at_the_end_it_has_failed() -> None:
    bench = Bench(size=1)
    await bench.look()
    await bench.end(0)
    reason = bench.owner.status.reason
    assert reason is not None
    assert (bench.owner.status.phase, reason.token) == ("failed", "NoTrialCompleted")


async def test_an_experiment_that_is_gone_is_let_go() -> None:
    bench = Bench()
    await bench.controller.removed(bench.owner)
    assert bench.studies.let_gone == ["e1"]
