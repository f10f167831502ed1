"""How long what is kept, over REST: what a change would free, and what then goes."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from carrel_scheduler.engines.files.contract import NoFiles
from carrel_scheduler.ledger.records import Decision
from carrel_scheduler.workloads.retention import Retention, RetentionRules
from carrel_scheduler.workloads.state.cache import WorkloadCache
from carrel_schema.samples import Sample
from contract.api.service import ApiHarness

DAY = 86_400.0
USUAL = {"audit_days": None, "decision_days": None, "sample_days": 14, "hourly_sample_days": 400}
Ask = Callable[..., Awaitable[dict[str, Any]]]


def decision(at: float) -> Decision:
    return Decision(
        at=at, epoch=1, cycle=1, input_version=1, action="start", workload_uid="u",
        workload="train", project="vision", node="n1", devices=(0, 1), reason=None,
    )  # fmt: skip


@pytest.fixture
async def old(harness: ApiHarness) -> ApiHarness:
    """Five decisions and three means, of which two and one are a hundred days old."""
    now, ledger = harness.clock.now, harness.ledger
    await ledger.remove_decisions(now - 200 * DAY, 100)  # of the harness itself
    epoch = await ledger.begin_epoch()
    moments = [now - 101 * DAY, now - 100 * DAY, now - DAY, now - DAY, now]
    await ledger.record(epoch=epoch, decisions=[decision(at) for at in moments])
    for age in (100, 5, 1):
        await ledger.samples.add(300, int(now - age * DAY), {"cluster": Sample(gpus=1)})
    return harness


def kinds(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in report["kinds"]}


async def test_what_is_kept_is_counted_with_what_sets_its_time(old: ApiHarness) -> None:
    assert (await old.ask("GET", "/retention", "ada")).status == 403
    same = {"retention_days": None, "syslog": ""}
    assert (await old.ask("PUT", "/audit/settings", "root", json=same)).status == 200
    report = (await old.ask("GET", "/retention", "root")).body
    assert report["settings"] == USUAL
    found = kinds(report)
    assert found["decisions"] | {"size_bytes": 0} == {
        "name": "decisions",
        "description": "Why work was started or evicted, in its history",
        "days": None,
        "until": "for ever",
        "field": "decision_days",
        "option": "",
        "rows": found["decisions"]["rows"],
        "size_bytes": 0,
        "oldest_at": old.clock.now - 101 * DAY,
        "freed_rows": 0,
        "freed_bytes": 0,
    }
    assert found["decisions"]["rows"] == 5
    assert (found["samples"]["rows"], found["samples"]["freed_rows"]) == (3, 1)
    assert (found["hourly-samples"]["rows"], found["hourly-samples"]["oldest_at"]) == (0, None)
    assert found["audit-entries"]["rows"] == 1
    assert found["artifacts"]["option"] == "CARREL_ARTIFACT_DAYS"
    assert (found["artifacts"]["days"], found["checkpoints"]["days"]) == (90, 30)
    assert found["logs"]["until"] == "until its work is deleted"


async def test_a_dry_run_tells_what_a_change_frees_and_changes_nothing(old: ApiHarness) -> None:
    wanted = USUAL | {"decision_days": 30, "sample_days": 7, "audit_days": 1}
    told = await old.ask("PUT", "/retention?dry_run=true", "root", json=wanted)
    freed = kinds(told.body)["decisions"]
    assert (told.body["settings"], freed["freed_rows"]) == (wanted, 2)
    assert 100 < freed["freed_bytes"] < freed["size_bytes"]
    assert kinds(told.body)["audit-entries"]["freed_rows"] == 0
    assert (await old.ask("GET", "/retention", "root")).body["settings"] == USUAL


async def test_what_is_saved_is_removed_by_the_next_sweep(old: ApiHarness) -> None:
    wanted = USUAL | {"decision_days": 30, "audit_days": 90}
    syslog = {"retention_days": None, "syslog": "udp://log.example:514"}
    await old.ask("PUT", "/audit/settings", "root", json=syslog)
    saved = await old.ask("PUT", "/retention", "root", json=wanted)
    assert (saved.status, saved.body["settings"]) == (200, wanted)
    before = kinds(saved.body)["decisions"]["rows"]
    await Retention(NoFiles(), old.ledger, WorkloadCache(), RetentionRules(), old.clock).sweep()
    after = kinds((await old.ask("GET", "/retention", "root")).body)["decisions"]
    assert (after["rows"], after["freed_rows"]) == (before - 2, 0)
    assert after["oldest_at"] == old.clock.now - DAY
    audit = (await old.ask("GET", "/audit/settings", "root")).body
    assert audit == {"retention_days": 90, "syslog": "udp://log.example:514"}
    other = {"retention_days": 60, "syslog": ""}
    await old.ask("PUT", "/audit/settings", "root", json=other)
    assert (await old.ask("GET", "/retention", "root")).body["settings"]["audit_days"] == 60


@pytest.mark.parametrize(
    "change",
    [{"sample_days": 6}, {"hourly_sample_days": 30}, {"decision_days": 0}, {"audit_days": 1e9}],
)
async def test_times_that_are_too_short_or_long_are_refused(
    old: ApiHarness, change: dict[str, Any]
) -> None:
    refused = await old.ask("PUT", "/retention", "root", json=USUAL | change)
    assert (refused.status, list(refused.fields)) == (422, list(change))
    assert (await old.ask("PUT", "/retention", "ada", json=USUAL)).status == 403
