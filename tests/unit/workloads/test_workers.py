"""Workers of an experiment in virtual time: how many, who has what, and what a loss costs."""

from typing import Any, cast

import pytest

from carrel_scheduler.workloads.controllers.experiments import workers
from carrel_scheduler.workloads.controllers.experiments.contract import Ended, Study, WorkerRun
from carrel_scheduler.workloads.controllers.experiments.items import ItemStudy
from carrel_schema.objects import WorkloadStatus
from carrel_schema.sections import ExperimentSpec
from unit.workloads.test_experiments import Bench

FIRST = workers.FIRST_NUMBER


def bench_of(**experiment: Any) -> Bench:
    facts: dict[str, Any] = {"trial_process": "warm", "completions": 8, "max_failed_trials": 3}
    bench = Bench(**facts | experiment)
    bench.owner.spec.command = ["python", "train.py", "--x={x}"]
    return bench


def take(bench: Bench, worker: int, want: int) -> list[int]:
    spec, part = bench.owner.spec.experiment, bench.parts[FIRST + worker]
    assert spec is not None
    found = workers.take(
        cast("Study", bench.study), spec, part.spec.part, part.status.attempt, want
    )
    return [one.number for one in found]


def end(bench: Bench, worker: int, number: int, value: float) -> None:
    said = WorkerRun(seconds=0.1, log="hello", metrics={"objective": value})
    ended = Ended(number=number, state="completed", run=said, values=((1, value),))
    workers.finish(cast("Study", bench.study), FIRST + worker, 0, ended)


async def test_as_many_workers_as_may_run_at_once_take_trials_until_none_is_left() -> None:
    bench = bench_of()
    await bench.look()
    assert [part.meta.name for part in bench.parts.values()] == ["sweep-w0", "sweep-w1"]
    spec = bench.parts[FIRST].spec
    assert spec.command == ["python", "-m", workers.MODULE, "--", "python", "train.py", "--x={x}"]
    assert (spec.kind, spec.trial and spec.trial.worker) == ("trial", True)
    assert take(bench, 0, want=100) == [0, 1]  # never so many that others have nothing at the end
    assert take(bench, 1, want=1) == [2]
    for number in (0, 1):
        end(bench, 0, number, float(number))
    assert (await bench.look()).created == []
    for number in range(3, 8):
        assert take(bench, 0, want=1) == [number]
        end(bench, 0, number, float(number))
    assert take(bench, 0, want=1) == []
    await bench.end(FIRST)
    assert bench.owner.status.phase == "running"  # one trial is still another worker's
    end(bench, 1, 2, 2.0)
    await bench.end(FIRST + 1)
    assert (bench.owner.status.phase, len(bench.parts)) == ("succeeded", 2)
    run = bench.study.trials_made[7].run
    assert run is not None
    assert (run.worker, run.seconds, run.log) == (FIRST, 0.1, "hello")


async def test_what_a_preempted_worker_had_goes_to_others_and_it_is_not_heard() -> None:
    bench = bench_of()
    await bench.look()
    assert take(bench, 0, want=2) == [0, 1]
    bench.parts[FIRST].status = WorkloadStatus(phase="pending", attempt=1, preemptions=1)
    await bench.look()
    assert take(bench, 1, want=1) == [0]
    end(bench, 0, 0, 1.0)  # by the attempt that was preempted
    assert bench.states()[0] == "open"
    end(bench, 1, 0, 2.0)
    assert bench.study.values[0] == 2.0
    workers.give_back(cast("Study", bench.study), FIRST + 1, 0, [1])  # which it does not have
    assert bench.study.trials_made[1].run == WorkerRun(worker=-1)


async def test_a_trial_that_was_there_at_each_crash_of_its_worker_has_failed() -> None:
    bench = bench_of(parallelism=1)
    await bench.look()
    for crash in range(workers.MOST_LOSSES):
        # The first time with others; then alone, as it may be the cause.
        assert take(bench, crash, want=100)[0] == 0
        assert bench.states()[0] == "open"
        await bench.end(FIRST + crash, "failed")
    assert bench.states()[0] == "failed"
    assert "lost 3 times" in bench.study.trials_made[0].error
    await bench.end(FIRST + workers.MOST_LOSSES, "failed")
    reason = bench.owner.status.reason
    assert reason is not None
    assert (bench.owner.status.phase, reason.token) == ("failed", "WorkersFailed")


async def test_workers_come_by_themselves_once_trials_were_short_and_go_when_they_fail() -> None:
    bench = bench_of(trial_process="auto", completions=40, parallelism=1)
    for number in range(workers.TRIALS_TO_JUDGE):
        await bench.look()
        status = bench.parts[number].status
        status.started_at, status.ended_at = bench.now, bench.now + 0.2
        await bench.end(number, value=1.0)
    assert max(bench.parts) == FIRST
    taken = take(bench, 0, want=1)
    await bench.end(FIRST, "failed")
    assert [*bench.parts][-1] == taken[0]  # as a workload of its own
    assert bench.parts[taken[0]].spec.command[-1] == f"--x={taken[0]}"


@pytest.mark.parametrize(("seconds", "command"), [(60.0, "python"), (0.1, "train")])
async def test_long_trials_and_other_programs_keep_a_process_each(
    seconds: float, command: str
) -> None:
    bench = bench_of(trial_process="auto", completions=40, parallelism=1)
    bench.owner.spec.command = [command, "train.py"]
    for number in range(workers.TRIALS_TO_JUDGE):
        await bench.look()
        status = bench.parts[number].status
        status.started_at, status.ended_at = bench.now, bench.now + seconds
        await bench.end(number, value=1.0)
    assert max(bench.parts) == workers.TRIALS_TO_JUDGE


def test_ten_thousand_items_are_a_few_entries_and_the_same_after_a_restart() -> None:
    spec = ExperimentSpec(map=True, completions=10_000, parallelism=8)
    entries: list[str] = []
    study = ItemStudy(spec, entries)
    while taken := workers.take(study, spec, FIRST, 0, 256):
        for one in taken[1:]:
            ended = Ended(number=one.number, state="failed" if one.number == 7 else "completed")
            workers.finish(study, FIRST, 0, ended)
        entries += study.take_pending()
    again = ItemStudy(spec, entries)
    assert len(entries) < 200
    assert again.standing() == study.standing()
    standing = again.standing()
    assert (standing.failed, standing.completed + len(standing.open)) == (1, 9_999)
    assert again.trials() == study.trials()
