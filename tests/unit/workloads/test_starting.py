"""What a turn starts is got ready while it is recorded, and started afterwards."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from carrel_scheduler import ids
from carrel_scheduler.ledger.records import Fenced
from carrel_scheduler.workloads.state.events import TaskSeen
from carrel_schema.objects import Meta
from unit.workloads.harness import SchedulerHarness


class Recording:
    """Stands in for ``Ledger.record``: goes on once the secrets were asked for."""

    def __init__(self, harness: SchedulerHarness, failure: Exception | None = None) -> None:
        self._harness, self._failure = harness, failure
        self._record, self._secrets_of = harness.ledger.record, harness.ledger.secrets_of
        self._asked = asyncio.Event()
        self.started: list[int] = []

    async def secrets_of(self, uids: Sequence[str]) -> Any:
        self._asked.set()
        return await self._secrets_of(uids)

    async def record(self, **turn: Any) -> Sequence[Meta]:
        if any(row.to_phase == "starting" for row in turn["transitions"]):
            async with asyncio.timeout(30):
                await self._asked.wait()
            self.started.append(len(self._harness.engine.specs))
            if self._failure is not None:
                raise self._failure
        return await self._record(**turn)


def stand_in(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch, recording: Recording
) -> None:
    monkeypatch.setattr(harness.ledger, "record", recording.record)
    monkeypatch.setattr(harness.ledger, "secrets_of", recording.secrets_of)


async def test_secrets_are_read_meanwhile_and_nothing_starts_before(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 2)
    recording = Recording(harness)
    stand_in(harness, monkeypatch, recording)
    await harness.submit("vision", "train-1")
    assert recording.started == [0]
    assert len(harness.engine.specs) == 1


async def test_what_could_not_be_recorded_is_not_started(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 2)
    stand_in(harness, monkeypatch, Recording(harness, Fenced("another scheduler")))
    with pytest.raises(Fenced):
        await harness.submit("vision", "train-1")
    await harness.loop.executor.idle()
    assert not harness.engine.specs


def test_uids_begin_with_the_time_and_are_all_different(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(1_700_000_000_000_000_000, 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: next(now))
    made = [ids.new_id() for _ in range(250)]
    assert made == sorted(made)
    assert {len(uid) for uid in made} == {32}
    assert len({uid[12:] for uid in made}) == 250


async def test_what_a_start_waits_for_is_shown_until_it_runs(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    (task,) = harness.tasks_of(uid)
    pulling = msgspec.structs.replace(
        harness.engine.alive[task], message="pulling image a:1: 3 MiB"
    )
    harness.loop.enqueue(TaskSeen(pulling))
    await harness.settle()
    status = (await harness.stored(uid)).status
    assert status.phase == "starting"
    assert status.reason is not None
    assert status.reason.sentence == "Starting: pulling image a:1: 3 MiB."
    await harness.runs(uid)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.reason, status.tasks[0].message) == ("running", None, "")
