"""Inputs that cannot be processed are set aside, counted, and named in the log once."""

import logging
from typing import Any

import pytest

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.quarantine import MOST_KEPT, Quarantine, Skipped
from carrel_scheduler.workloads.reconcile.live import LiveState
from unit.workloads.harness import SchedulerHarness


def quarantine(now: float = 5.0) -> Quarantine:
    return Quarantine(lambda: now)


def test_an_input_that_fails_is_set_aside_until_it_can_be_processed() -> None:
    held = quarantine()
    with held.guard("node", "gpu-1"):
        raise InvalidEvent("too_many_devices", "devices", 900, "at most 64")
    [kept] = held.items
    assert kept == Skipped("node", "gpu-1", "too_many_devices", 5.0, kept.message)
    assert "at most 64" in kept.message
    assert held.holds("node", "gpu-1")
    with held.guard("node", "gpu-1"):
        pass
    assert not list(held.items)
    assert held.counts == {("node", "too_many_devices"): 1}


def test_the_name_that_people_know_is_kept() -> None:
    held = quarantine()
    with held.guard("workload", "uid1", name="vision/train-1"):
        raise KeyError("x")
    held.put("workload", "uid1", ValueError("y\nz"))
    assert [(one.name, one.message) for one in held.items] == [("vision/train-1", "'y\\nz'")]


async def test_live_work_is_named_by_its_project_and_name(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "job")
    harness.loop.quarantine.put("task", f"rendezvous {uid}", ValueError("x"))
    harness.loop.quarantine.put("node", "gpu-1", ValueError("x"))
    found = LiveState(harness.loop).faults().set_aside
    assert [(one.key, one.name) for one in found] == [
        (f"rendezvous {uid}", "vision/job"),
        ("gpu-1", ""),
    ]


def test_what_concerns_more_than_one_input_is_raised() -> None:
    held = quarantine()
    with pytest.raises(MemoryError), held.guard("record", "x", fatal=(MemoryError,)):
        raise MemoryError
    with pytest.raises(KeyboardInterrupt), held.guard("record", "x"):
        raise KeyboardInterrupt
    assert not list(held.items)


def test_each_failure_counts_and_the_first_for_a_reason_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = quarantine()
    for error in (KeyError("a"), KeyError("b"), ValueError("c"), ValueError("d")):
        held.put("workload", "uid1", error)
    assert held.counts == {("workload", "KeyError"): 2, ("workload", "ValueError"): 2}
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert said == [
        "workload uid1 is set aside: KeyError: 'a'",
        "workload uid1 is set aside: ValueError: c",
    ]


def test_no_text_of_an_input_forges_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    held = quarantine()
    held.put("pod", "a\nERROR all is lost" + "x" * 5000, ValueError("b\r\nc" + "y" * 5000))
    [record] = caplog.records
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 700
    assert len(held.items[0].key) <= 200


def test_reasons_are_tokens_whatever_an_error_claims() -> None:
    class OddError(Exception):
        code: Any = "a user's text\n"

    held = quarantine()
    held.put("message", "x", OddError())
    assert held.items[0].reason == "OddError"


def test_many_failing_inputs_take_bounded_memory() -> None:
    held = quarantine()
    for number in range(3 * MOST_KEPT):
        held.put("task", str(number), ValueError())
    assert len(held.items) == MOST_KEPT
    assert held.items[-1].key == str(3 * MOST_KEPT - 1)
    assert held.counts["task", "ValueError"] == 3 * MOST_KEPT
