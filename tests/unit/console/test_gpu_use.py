"""Small lines of GPU use: what they say, where they break, and what counts as idle."""

from carrel.models import GpuUsePoint
from carrel_hub.console.pictures import gpu_use


def points(*gpus: float, every: float = 10.0) -> list[GpuUsePoint]:
    return [
        GpuUsePoint(at=number * every, gpus=value, memory_mib=1024 * number)
        for number, value in enumerate(gpus)
    ]


def test_the_words_are_of_all_its_gpus() -> None:
    assert "GPU use: 50 % now, 75 % in the mean" in gpu_use.use_line(points(2.0, 1.0), 2.0)
    assert "1 GiB now, 1 GiB at most" in gpu_use.memory_line(points(2.0, 1.0))


def test_nothing_measured_is_said_and_a_gap_is_no_line() -> None:
    assert "no measurement" in gpu_use.use_line([], 1.0)
    assert "no measurement" in gpu_use.memory_line([])
    whole = points(1.0, 1.0, 1.0, 1.0)
    later = [GpuUsePoint(at=one.at + 3600.0, gpus=1.0) for one in whole]
    assert gpu_use.use_line(whole, 1.0).count("<polyline") == 1
    assert gpu_use.use_line(points(*[1.0] * 99) + later, 1.0).count("<polyline") == 2


def test_idle_since_it_last_worked_and_only_while_that_is_known() -> None:
    assert gpu_use.idle_seconds(points(0.5, 0.0, 0.0), 25.0) == 25.0
    assert gpu_use.idle_seconds(points(0.0, 0.0), 20.0) == 20.0
    assert gpu_use.idle_seconds(points(0.0, 0.5), 12.0) is None
    assert gpu_use.idle_seconds(points(0.0, 0.0), 10.0 + gpu_use.FRESH_SECONDS + 1.0) is None
    assert gpu_use.idle_seconds([], 10.0) is None
