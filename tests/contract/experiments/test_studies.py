"""Studies in Optuna over a real ledger: distinct configurations, restarts, pruning, what counts."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Fenced, Ledger
from carrel_scheduler.workloads.controllers.experiments.contract import (
    MOST_STEPS,
    BadSuggestion,
    Ended,
    Study,
    StudyTrial,
)
from carrel_scheduler.workloads.controllers.experiments.studies import Studies
from carrel_schema.objects import Meta, Workload, WorkloadSpec
from carrel_schema.sections import ExperimentSpec, Parameter

FINITE = {
    "width": Parameter(type="int", low=1, high=4),
    "net": Parameter(type="categorical", choices=("a", "b", 3)),
}
OPEN = {
    "rate": Parameter(type="float", low=1e-5, high=1e-1, log=True),
    "drop": Parameter(type="float", low=0.0, high=0.95, step=0.1),
    "width": Parameter(type="int", low=8, high=64, step=8),
}


class Keeper:
    """A ledger with one experiment, and its study as often opened as asked."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.epoch = ledger, 0
        self.studies = Studies(ledger, epoch=lambda: self.epoch)
        self.owner: Workload | None = None

    async def begin(self, **experiment: Any) -> None:
        self.epoch = await self.ledger.begin_epoch()
        spec = WorkloadSpec(kind="experiment", experiment=ExperimentSpec(**experiment))
        self.owner = await self.ledger.create(
            Workload(meta=Meta(name="sweep", project="vision", uid="e1"), spec=spec)
        )

    async def use(self, work: Any) -> Any:
        assert self.owner is not None
        return await self.studies.use(self.owner, work)

    async def trials(self) -> list[StudyTrial]:
        return cast("list[StudyTrial]", await self.use(lambda study: study.trials()))

    def restart(self) -> None:
        self.studies.close()
        self.studies = Studies(self.ledger, epoch=lambda: self.epoch)

    async def make(self, many: int) -> list[tuple[Any, ...]]:
        """So many trials, each ended with a value before the next; the configurations."""
        for _ in range(many):
            number = len(await self.trials())
            if not await self.use(lambda study: study.ask()):
                break
            await self.use(lambda study, number=number: study.report(number, [(0, number % 3)]))
            await self.use(
                lambda study, number=number: study.tell(Ended(number=number, state="completed"))
            )
        return [tuple(one.parameters.values()) for one in await self.trials()]


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    ledger = await open_ledger(
        f"sqlite:///{tmp_path}/ledger.sqlite", clock=lambda: 1000.0, ids=iter("abcdefg").__next__
    )
    made = Keeper(ledger)
    yield made
    made.studies.close()
    await ledger.close()


def report(number: int, values: Sequence[tuple[int | None, float]]) -> Any:
    return lambda study: study.report(number, values)


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid", "cmaes"])
async def test_a_finite_space_is_tried_without_repetition(keeper: Keeper, sampler: str) -> None:
    await keeper.begin(parameters=FINITE, sampler=sampler, completions=20)
    made = await keeper.make(20)
    assert (len(made), len(set(made))) == (12, 12)
    assert (await keeper.use(lambda study: study.standing())).exhausted


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes"])
async def test_a_restart_changes_no_draw(tmp_path: Path, sampler: str) -> None:
    found = []
    for restarts in (False, True):
        url = f"sqlite:///{tmp_path}/{restarts}.sqlite"
        ledger = await open_ledger(url, clock=lambda: 1000.0, ids=lambda: "x")
        keeper = Keeper(ledger)
        await keeper.begin(parameters=OPEN, sampler=sampler, seed=11)
        await keeper.make(7)
        if restarts:
            keeper.restart()
        found.append(await keeper.make(7))
        keeper.studies.close()
        await ledger.close()
    assert found[0] == found[1]
    assert len(set(found[0])) == 14


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
async def test_a_bad_trial_is_pruned_at_once_and_stays_pruned(keeper: Keeper, pruner: str) -> None:
    await keeper.begin(parameters=OPEN, pruner=pruner, seed=1)
    for number in range(12):
        await keeper.use(lambda study: study.ask())
        await keeper.use(report(number, [(step, float(number)) for step in range(1, 31)]))
        if not await keeper.use(lambda study, number=number: study.pruned(number)):
            ended = Ended(number=number, state="completed")
            await keeper.use(lambda study, ended=ended: study.tell(ended))
    pruned = [one.number for one in await keeper.trials() if one.state == "pruned"]
    assert pruned
    steps = [len(one.steps) for one in await keeper.trials()]
    assert all(steps[number] < 30 for number in pruned)
    await keeper.use(report(pruned[0], [(50, 0.0)]))
    keeper.restart()
    await keeper.use(lambda study: study.tell(Ended(number=pruned[0], state="completed")))
    assert (await keeper.trials())[pruned[0]].state == "pruned"


async def test_a_trial_of_those_that_ask_may_leave_from_its_report_on(keeper: Keeper) -> None:
    """Its report may be stored, and judged, before its question comes."""
    await keeper.begin(parameters=OPEN, pruner="median")
    await keeper.make(5)
    for asks, until in ((False, {}), (True, {6: 30.0})):
        await keeper.use(lambda study: study.ask())
        number = (await keeper.trials())[-1].number
        await keeper.use(lambda study, number=number: study.report(number, [(0, 100.0)]))
        assert await keeper.use(
            lambda study, number=number: study.leave(number, 30.0, asks=False)
        ), "pruned"
        assert (await keeper.use(lambda study: study.standing())).leaving == until
        await keeper.use(lambda study, asks=asks: study.leave(0, 10.0, asks=not asks))


async def test_the_value_is_the_result_else_what_was_reported_last(keeper: Keeper) -> None:
    await keeper.begin(parameters=OPEN)

    def tell(study: Study) -> None:
        for _ in range(4):
            study.ask()
        study.report(0, [(None, 5.0), (None, 4.0)])
        study.report(1, [(0, 3.0), (1, 2.0), (2, 1.0), (0, 9.0)])
        study.report(2, [(0, 3.0)])
        study.result(2, 0.5)
        for number in range(4):
            study.tell(Ended(number=number, state="completed"))

    await keeper.use(tell)
    trials = await keeper.trials()
    assert [one.value for one in trials] == [4.0, 9.0, 0.5, None]
    assert (trials[0].steps, trials[1].steps[0]) == (((0, 5.0), (1, 4.0)), (0, 9.0))
    assert (trials[3].state, "without a value" in trials[3].error) == ("failed", True)


async def test_of_very_many_values_the_first_are_kept_and_the_last_counts(keeper: Keeper) -> None:
    await keeper.begin(parameters=OPEN)
    many = [(step, float(step)) for step in range(MOST_STEPS + 500)]

    def tell(study: Study) -> None:
        study.ask()
        study.report(0, many)
        study.report(0, [(3, 0.0)])
        study.tell(Ended(number=0, state="completed", latest=many[-1][1]))

    await keeper.use(tell)
    [trial] = await keeper.trials()
    assert (len(trial.steps), trial.steps[3], trial.value) == (MOST_STEPS, (3, 0.0), many[-1][1])


async def test_a_parameter_defined_on_the_way_is_the_same_ever_after(keeper: Keeper) -> None:
    await keeper.begin()
    await keeper.use(lambda study: study.ask())
    one = Parameter(type="int", low=0, high=1000)

    def suggest(study: Study) -> Any:
        return study.suggest(0, "x", one)

    value = await keeper.use(suggest)
    other = await keeper.use(lambda study: study.suggest(0, "y", one))
    keeper.restart()
    assert await keeper.use(suggest) == value
    assert (await keeper.trials())[0].parameters == {"x": value, "y": other}
    await keeper.use(lambda study: study.ask())
    words = Parameter(type="categorical", choices=("a",))
    with pytest.raises(BadSuggestion):
        await keeper.use(lambda study: study.suggest(1, "x", words))
    assert [one.parameters for one in await keeper.trials()][1] == {}


async def test_what_is_not_stored_has_not_happened(keeper: Keeper) -> None:
    await keeper.begin(parameters=OPEN)
    await keeper.use(lambda study: study.ask())
    keeper.epoch = await keeper.ledger.begin_epoch() - 1
    with pytest.raises(Fenced):
        await keeper.use(lambda study: study.ask())
    keeper.epoch += 1
    assert len(await keeper.trials()) == 1


async def test_the_study_goes_with_its_experiment(keeper: Keeper) -> None:
    await keeper.begin(parameters=OPEN)
    await keeper.use(lambda study: study.ask())
    assert await keeper.ledger.study("e1")
    await keeper.ledger.delete(Workload, "sweep", "vision")
    assert await keeper.ledger.study("e1") == []
