"""What the reconciler measures of itself, and the line that each pass leaves in the log."""

import logging
import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from carrel_scheduler.core.decide import ACTIONS
from carrel_scheduler.workloads.reconcile.deciding import Inbox
from carrel_scheduler.workloads.reconcile.metrics import LABELS, ReconcilerMetrics
from carrel_scheduler.workloads.state.events import Wake
from unit.workloads.harness import SchedulerHarness

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


def value(harness: SchedulerHarness, name: str, **labels: str) -> float:
    return harness.loop.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_a_cycle_is_counted_with_what_it_decided(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    await harness.project("speech", 2)
    before = value(harness, "carrel_scheduling_cycles_total")
    borrowers = [await harness.submit("vision", f"one-{i}", preemptible=True) for i in range(4)]
    await harness.runs(*borrowers)
    assert value(harness, "carrel_scheduling_cycles_total") > before
    assert value(harness, "carrel_started_tasks_total") == 4
    await harness.submit("speech", "owner", 2)
    assert value(harness, "carrel_evicted_workloads_total", reason="Reclaimed") == 2
    assert value(harness, "carrel_ledger_commit_seconds_count") > 4
    assert value(harness, "carrel_reconcile_pass_seconds_count") > 4
    cycles = value(harness, "carrel_scheduling_cycles_total")
    assert value(harness, "carrel_decide_seconds_count", action="reclaim") == cycles


async def test_searches_that_find_nothing_are_counted(harness: SchedulerHarness) -> None:
    for name, guaranteed in (("vision", 2), ("speech", 3), ("guest", 0)):
        await harness.project(name, guaranteed)
    holders = [await harness.submit("speech", f"held-{i}", preemptible=False) for i in range(3)]
    await harness.runs(*holders, await harness.submit("guest", "borrows", preemptible=True))
    await harness.submit("vision", "asks-for-more-than-is-borrowed", 2, preemptible=False)
    assert value(harness, "carrel_failed_searches_total") > 0


async def test_a_pass_leaves_one_line_at_level_debug(
    harness: SchedulerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await harness.project("vision", 2)
    logger = "carrel_scheduler.workloads.reconcile.metrics"
    with caplog.at_level(logging.DEBUG, logger):
        uid = await harness.submit("vision", "one")
    lines = [one.getMessage() for one in caplog.records if one.name == logger]
    started = next(line for line in lines if "1 events, 1 started, 0 evicted" in line)
    [number] = re.findall(r"^pass (\d+): ", started)
    [bind] = [
        row for row in await harness.ledger.decisions(workload_uid=uid) if row.action == "bind"
    ]
    assert str(bind.cycle) == number


def test_the_oldest_event_tells_how_long_the_inbox_waited() -> None:
    now = [10.0]
    inbox = Inbox(lambda: now[0])
    assert inbox.age_seconds == 0.0
    inbox.put(Wake())
    now[0] = 12.0
    inbox.put(Wake())
    assert (len(inbox), inbox.age_seconds) == (2, 2.0)
    inbox.take()
    inbox.take()
    assert inbox.age_seconds == 0.0


def test_a_watch_ages_until_it_delivers() -> None:
    now = [0.0]
    metrics = ReconcilerMetrics(lambda: now[0])
    now[0] = 7.0
    metrics.delivered("tasks")
    now[0] = 9.0
    ages = {
        name: metrics.registry.get_sample_value("carrel_watch_age_seconds", {"watch": name})
        for name in ("tasks", "devices")
    }
    assert ages == {"tasks": 2.0, "devices": 9.0}


def test_the_page_names_every_metric_and_action() -> None:
    page = PAGE.read_text()
    text = generate_latest(ReconcilerMetrics().registry).decode()
    for name in re.findall(r"^# HELP (\w+)", text, re.MULTILINE):
        assert name.endswith("_created") or f"`{name}`" in page, name
    for label in LABELS.values():
        assert f"`{label}`" in page, label


def test_every_action_has_a_name_in_the_metrics() -> None:
    assert {one.action for one in ACTIONS} == set(LABELS)
