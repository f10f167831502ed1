"""What GPUs did, in a bounded number of points: the means stay right however long it lasts."""

import pytest

from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.gpu_series import MOST_POINTS, GpuSeries
from unit.workloads.harness import SchedulerHarness


def test_the_mean_survives_the_thinning() -> None:
    series = GpuSeries()
    for second in range(20_000):
        series.add(float(second), 1.0 if second < 10_000 else 0.0, 100)
    points = series.points()
    assert MOST_POINTS / 2 <= len(points) <= MOST_POINTS
    assert sum(point.gpus for point in points) / len(points) == pytest.approx(0.5, abs=0.02)
    assert [point.at for point in points] == sorted({point.at for point in points})
    assert {point.memory_mib for point in points} == {100}
    assert points[-1].at == 19_999.0


async def test_readings_of_a_workload_are_told(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", 2)
    live = LiveState(harness.loop)
    await harness.runs(uid)
    await harness.gpus_work(0)
    await harness.wait(60.0)
    await harness.gpus_work()
    await harness.wait(60.0)
    found = live.gpu_use(uid)
    assert found is not None
    assert found.project == "vision"
    assert found.points[0].gpus > 0.0
    assert found.points[-1].gpus == 0.0
    assert live.gpu_use("nobody") is None
