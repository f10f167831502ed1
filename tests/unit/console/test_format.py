"""Amounts and times are written one way."""

import math

import pytest

from carrel_hub.console import format as fmt

NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (45.9, "45 s"),
        (60, "1 min"),
        (12 * 60 + 59, "12 min"),
        (3 * 3600 + 5 * 60, "3 h 05 min"),
        (8 * 3600, "8 h"),
        (2 * 86_400 + 4 * 3600, "2 d 4 h"),
        (86_400, "1 d"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert fmt.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "no GPU"),
        (0.25, "0.25 GPU"),
        (0.5, "0.5 GPU"),
        (1, "1 GPU"),
        (1.5, "1.5 GPUs"),
        (2, "2 GPUs"),
        (1200, "1,200 GPUs"),
    ],
)
def test_gpus(value: float, text: str) -> None:
    assert fmt.gpus(value) == text


def test_cpus_memory_and_shares() -> None:
    assert fmt.cpus(500) == "0.5 CPU"
    assert fmt.cpus(4000) == "4 CPUs"
    assert fmt.gib(24 * fmt.GIB) == "24 GiB"
    assert fmt.gib(2 * 1024**2) == "2 MiB"
    assert fmt.gib(0) == "0 GiB"
    assert fmt.share(0.873) == "87 %"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.314159, "0.3142"),
        (1200.0, "1,200"),
        (12345.6, "12,346"),
        (2.1e-06, "2.1e-06"),
        (math.nan, "not a number"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (3.0, "3"),
    ],
)
def test_reported_values(value: float, text: str) -> None:
    assert fmt.measured(value) == text


def test_moments_carry_the_exact_time_with_its_zone() -> None:
    text = fmt.moment(NOW - 180, NOW)
    assert ">3 min ago</time>" in text
    assert 'title="2026-09-21 14:10:20 UTC"' in text
    assert 'datetime="2026-09-21T14:10:20+00:00"' in text
    assert ">in 12 min</time>" in fmt.moment(NOW + 720, NOW)
    assert ">now</time>" in fmt.moment(NOW, NOW)
    assert ">45 s</time>" in fmt.since(NOW - 45, NOW)
