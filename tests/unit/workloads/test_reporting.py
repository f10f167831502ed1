"""What a job reports of itself is bounded: everybody's lists carry it."""

import pytest

from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.reconcile.recording import TooManyMetrics
from carrel_schema.constraints import MOST_METRICS
from carrel_schema.history import Report
from unit.workloads.harness import SchedulerHarness


async def test_a_job_has_so_many_metrics_and_no_more(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    uid = await harness.submit("vision", "job")
    await harness.runs(uid)
    live = LiveState(harness.loop)
    for number in range(MOST_METRICS):
        await live.report(uid, Report(at=harness.now, step=1, metrics={f"m{number}": 1.0}))
    with pytest.raises(TooManyMetrics, match="'more' is one more"):
        await live.report(uid, Report(at=harness.now, step=2, metrics={"m0": 3.0, "more": 2.0}))
    await live.report(uid, Report(at=harness.now, parameters={"lr": 0.1, "net": "small"}))
    await live.report(uid, Report(at=harness.now, parameters={"lr": 0.2}))
    many = {f"p{number}": 1 for number in range(MOST_METRICS)}
    with pytest.raises(TooManyMetrics, match="200 parameters by name"):
        await live.report(uid, Report(at=harness.now, parameters=many))
    await live.report(uid, Report(at=harness.now, step=2, metrics={"m0": 2.0}))
    await harness.wait(2.0)
    status = (await harness.stored(uid)).status
    metrics = status.metrics
    assert status.parameters == {"lr": 0.2, "net": "small"}
    assert len(metrics) == MOST_METRICS
    assert metrics["m0"] == 2.0
