"""Samples become means of five minutes and of hours, and old ones go; in virtual time."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from carrel_scheduler.service.sampling import Sampler, of_node
from carrel_schema.answers import DeviceView, NodeView
from carrel_schema.samples import Sample, Step, mean

HOUR = 3600
START = 1_790_000_000 - 1_790_000_000 % HOUR


class Kept:
    """``Samples`` in memory."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Step, int], Mapping[str, Sample]] = {}
        self.pruned: list[tuple[Step, float]] = []
        self.down = False

    async def add(self, step: Step, at: int, means: Mapping[str, Sample]) -> None:
        if self.down:
            raise OSError("the ledger does not answer")
        self.rows[step, at] = means

    async def read(
        self, step: Step, subjects: Sequence[str], since: float, until: float
    ) -> Mapping[str, Sequence[tuple[int, Sample]]]:
        raise AssertionError("the sampler reads whole spans")

    async def of_span(self, step: Step, since: int, until: int) -> Mapping[str, Sequence[Sample]]:
        found = defaultdict(list)
        for (length, at), means in self.rows.items():
            if length == step and since <= at < until:
                for subject, sample in means.items():
                    found[subject].append(sample)
        return found

    async def latest(self, step: Step) -> int | None:
        return max((at for length, at in self.rows if length == step), default=None)

    async def prune(self, step: Step, before: float) -> int:
        self.pruned.append((step, before))
        return 0


def test_means_are_those_of_the_minutes() -> None:
    kept, now = Kept(), [0.0]
    # The GPUs that are allocated: as many as the minute of the hour.
    sampler = Sampler(
        kept,
        lambda: {"cluster": Sample(gpus=8, gpus_allocated=(now[0] - START) / 60)},
        lambda: now[0],
    )
    for minute in range(67):
        now[0] = START + 60.0 * minute + 0.5
        asyncio.run(sampler.once())
    spans = {
        at: means["cluster"].gpus_allocated
        for (step, at), means in kept.rows.items()
        if step == 300
    }
    assert len(spans) == 13
    assert round(spans[START], 1) == 2.0  # minutes 0 to 4
    assert round(spans[START + 3300], 1) == 57.0
    [hour] = [means["cluster"] for (step, _), means in kept.rows.items() if step == 3600]
    assert round(hour.gpus_allocated, 1) == 29.5
    assert hour.gpus == 8
    end = START + HOUR
    assert [(step, round((end - before) / 86_400)) for step, before in kept.pruned] == [
        (300, 14),
        (3600, 400),
    ]


def test_means_are_kept_as_long_as_administrators_say() -> None:
    kept, now = Kept(), [float(START)]

    async def settings() -> dict[str, Any]:
        return {"retention": {"sample_days": 30, "hourly_sample_days": 60}}

    sampler = Sampler(kept, lambda: {"cluster": Sample(gpus=4)}, lambda: now[0], settings)
    for seconds in (0, HOUR):
        now[0] = float(START + seconds)
        asyncio.run(sampler.once())
    assert [(step, (now[0] - before) / 86_400) for step, before in kept.pruned] == [
        (300, 30),
        (3600, 60),
    ]


def test_after_a_pause_the_mean_is_of_what_was_seen() -> None:
    kept, now = Kept(), [float(START)]
    sampler = Sampler(kept, lambda: {"cluster": Sample(gpus=4)}, lambda: now[0])
    for seconds in (0, 60, 2 * HOUR, 2 * HOUR + 300):
        now[0] = float(START + seconds)
        asyncio.run(sampler.once())
    assert sorted(at - START for step, at in kept.rows if step == 300) == [0, 2 * HOUR]
    assert [at - START for step, at in kept.rows if step == 3600] == [0]


def test_what_could_not_be_written_is_tried_again() -> None:
    kept, now = Kept(), [float(START)]
    sampler = Sampler(kept, lambda: {"cluster": Sample(gpus=4)}, lambda: now[0])
    asyncio.run(sampler.once())
    kept.down, now[0] = True, START + 300.0
    with pytest.raises(OSError, match="does not answer"):
        asyncio.run(sampler.once())
    kept.down, now[0] = False, START + 360.0
    asyncio.run(sampler.once())
    assert kept.rows[300, START]["cluster"].gpus == 4


def test_the_hour_in_which_a_scheduler_ended_has_its_mean() -> None:
    kept, now = Kept(), [float(START)]
    for began in (0, 5 * HOUR):
        sampler = Sampler(kept, lambda: {"cluster": Sample(gpus=4)}, lambda: now[0])
        for seconds in range(0, 901, 300):
            now[0] = float(START + began + seconds)
            asyncio.run(sampler.once())
    hours = {at - START for step, at in kept.rows if step == 3600}
    assert hours == {0}, "the one of the first scheduler, whose end nobody saw"


def test_a_node_counts_what_is_idle_and_what_is_used() -> None:
    devices = [
        DeviceView(index=0, allocated_milli=1000, utilization=0.8),
        DeviceView(index=1, allocated_milli=500, utilization=0.0, idle_since=START - 400.0),
        DeviceView(index=2, allocated_milli=1000, idle_since=START - 10.0),
    ]
    node = NodeView(
        name="n", status="cordoned", gpu_milli=3000, gpu_allocated_milli=2500, devices=devices
    )
    found = of_node(node, START)
    assert (found.gpus, found.gpus_ready, found.gpus_allocated) == (3, 0, 2.5)
    assert (found.gpus_idle, found.gpus_used) == (0.5, 0.8)
    assert mean([found, Sample()]).gpus == 1.5
