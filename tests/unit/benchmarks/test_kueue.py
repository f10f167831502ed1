"""The Kueue benchmark's own parts: the generator's arithmetic and the engine without processes."""

import asyncio
import time
from pathlib import Path

import pytest

from benchmarks.kueue_generator import Generator
from benchmarks.simulated_engine import SimulatedEngine
from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    EngineError,
    TaskId,
    TaskPhase,
    TaskSpec,
    TaskStatus,
    UnknownTask,
)

FILE = """
cohorts:
- className: cohort
  count: 2
  queuesSets:
  - className: cq
    count: 3
    nominalQuota: 20
    borrowingLimit: 100
    reclaimWithinCohort: Any
    workloadsSets:
    - count: 5
      creationIntervalMs: 100
      workloads:
      - {className: small, runtimeMs: 200, priority: 50, request: 1}
    - count: 4
      creationIntervalMs: 500
      workloads:
      - {className: large, runtimeMs: 1000, priority: 200, request: 20}
"""
TASK = TaskId("u", 0, 0)


@pytest.fixture
def generator(tmp_path: Path) -> Generator:
    path = tmp_path / "generator.yaml"
    path.write_text(FILE)
    return Generator(path)


def test_a_generator_is_multiplied_out(generator: Generator) -> None:
    assert len(generator.queues) == 6
    assert {(queue.quota, queue.limit) for queue in generator.queues} == {(20, 120)}
    assert len(generator.arrivals) == 6 * 9
    assert len({(one.queue, one.name) for one in generator.arrivals}) == 6 * 9
    times = [one.at for one in generator.arrivals]
    assert times == sorted(times)
    assert max(times) == 1.5
    assert generator.capacity == 120
    # 5 x 0.2 x 1 + 4 x 1 x 20 = 81 unit seconds for each queue of 20.
    assert generator.ideal_seconds == pytest.approx(81 / 20)


def task(seconds: str = "0.01", *command: str) -> TaskSpec:
    return TaskSpec(
        id=TASK,
        name="n",
        project="p",
        user="u",
        node="simulated",
        command=command or ("sleep", seconds),
    )


async def ended(engine: SimulatedEngine, spec: TaskSpec, grace: float | None) -> TaskStatus:
    changes = engine.watch()
    await engine.start(spec)
    assert (await anext(changes)).phase is TaskPhase.RUNNING
    if grace is not None:
        await engine.stop(TASK, grace)
    async with asyncio.timeout(60):
        return await anext(changes)


async def test_a_task_runs_for_its_time_and_once() -> None:
    engine = SimulatedEngine(clock=time.time)
    last = await ended(engine, task("0.05"), None)
    assert (last.phase, last.exit_code, last.signal) == (TaskPhase.ENDED, 0, 0)
    assert 0.04 <= last.ended_at - last.started_at < 60
    assert await engine.list() == (last,)
    await engine.forget(TASK)
    with pytest.raises(AlreadyStarted):
        await engine.start(task())
    with pytest.raises(UnknownTask):
        await engine.stop(TASK, 0)


async def test_a_stop_waits_for_the_grace_period_and_no_longer() -> None:
    one, other = SimulatedEngine(clock=time.time), SimulatedEngine(clock=time.time)
    assert (await ended(one, task("0.05"), 5.0)).exit_code == 0
    assert (await ended(other, task("60"), 0.02)).signal == 9


async def test_what_is_no_sleep_is_not_simulated() -> None:
    engine = SimulatedEngine(clock=time.time)
    for command in (("true",), ("python", "1"), ("sleep", "long")):
        with pytest.raises(EngineError):
            await engine.start(task("", *command))
    assert await engine.list() == ()
