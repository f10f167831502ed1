"""What alerts are decided on: how much of its GPUs work has used."""

import pytest

from carrel_scheduler.service.alert_facts import mean_use
from carrel_scheduler.workloads.state.gpu_series import GpuSeries

HOUR = 3600


def series(*readings: tuple[int, float]) -> GpuSeries:
    """(until, GPUs' worth of work), measured each minute."""
    found, at = GpuSeries(), 0
    for until, gpus in readings:
        for moment in range(at, until, 60):
            found.add(float(moment), gpus, 1000)
        at = until
    return found


@pytest.mark.parametrize(
    ("measured", "gpus", "mean"),
    [
        (series((HOUR, 1.0)), 2.0, 0.5),
        (series((HOUR, 2.0), (2 * HOUR, 0.0)), 2.0, 0.0),
        (series((5 * HOUR, 2.0), (5 * HOUR + HOUR // 2, 0.0)), 2.0, 0.5),
        (series((1500, 0.0)), 1.0, None),
        (series((HOUR, 1.0)), 0.0, None),
        (GpuSeries(), 1.0, None),
    ],
)
def test_the_mean_is_that_of_the_last_hour(
    measured: GpuSeries, gpus: float, mean: float | None
) -> None:
    points = measured.points()
    now = points[-1].at if points else 0.0
    found = mean_use(measured, now, gpus)
    assert found == (None if mean is None else pytest.approx(mean, abs=0.02))


def test_what_was_measured_long_ago_says_nothing_of_now() -> None:
    assert mean_use(series((HOUR, 1.0)), 10.0 * HOUR, 1.0) is None
