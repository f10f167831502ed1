"""Health is what the rules of alerts find, by part of the platform."""

from typing import Any

import pytest

from carrel_scheduler.alerts.conditions import DAY, Facts, Rules, find
from carrel_scheduler.alerts.health import SUBJECTS, LedgerFacts, report, worst
from carrel_schema.answers import NodeView
from carrel_schema.governance.alerts import ABOUT, AlertRule
from carrel_schema.governance.health import DirectorySync, HealthCheck

NOW = 1_790_000_000.0
RULES: Rules = {name: about.default for name, about in ABOUT.items()}
LOST = NodeView(name="n1", status="lost")


def checks(rules: Rules = RULES, **facts: Any) -> dict[str, HealthCheck]:
    made = report(Facts(now=NOW, **facts), rules, LedgerFacts(2**30, NOW - 30))
    return {one.name: one for one in made}


def synced(reported: float, succeeded: float, error: str = "") -> DirectorySync:
    """Reported and succeeded so many seconds ago."""
    return DirectorySync(
        reported_at=NOW - reported, succeeded_at=succeeded and NOW - succeeded, error=error
    )


def test_a_platform_that_is_well_says_so() -> None:
    found = checks(
        disk_used=0.5,
        disk_free_bytes=5 * 2**30,
        parts={"Hub": "", "proxy": "", "gateway": ""},
        directory=synced(60, 60),
        channels={"ops": ""},
        backup_at=NOW - DAY,
        certificate_ends=NOW + 90 * DAY,
    )
    assert {one.state for one in found.values()} == {"ok"}
    assert not any(one.action for one in found.values())
    assert "its last decision was 30 s ago" in found["scheduler"].summary
    assert "The ledger has 1.0 GiB; the disk of the state folder is 50%" in found["ledger"].summary
    assert found["parts"].summary == "Answering: Hub, proxy, gateway."
    assert "valid for 90 days" in found["certificate"].summary
    assert worst(list(found.values())) == "ok"


@pytest.mark.parametrize(
    ("facts", "name", "state", "said"),
    [
        ({"lag_seconds": 100.0}, "scheduler", "failed", "last looked at its inputs 100 s ago"),
        ({"set_aside": 2}, "scheduler", "warning", "2 inputs are set aside"),
        ({"trouble": "The disk is full."}, "engine", "failed", "The disk is full."),
        ({"disk_used": 0.95, "disk_free_bytes": 2**20}, "ledger", "failed", "1.0 MiB are free"),
        ({"backup_at": NOW - 9 * DAY}, "backup", "warning", "9 days old"),
        ({"nodes": [LOST]}, "nodes", "failed", "Node n1 is lost."),
        ({"parts": {"Hub": "answered 502"}}, "parts", "failed", "The Hub answered 502."),
        ({"certificate_ends": NOW + DAY}, "certificate", "warning", "expires in 1 days"),
        ({"channels": {"ops": "it answered 500"}}, "channels", "warning", "ops: it answered 500."),
        ({"directory": synced(60, 3600, "no answer")}, "directory", "warning", "for 60 min: no"),
        ({"directory": synced(60, 0, "refused")}, "directory", "warning", "Hub started: refused"),
    ],
)
def test_what_a_rule_finds_is_told_with_what_to_do(
    facts: dict[str, Any], name: str, state: str, said: str
) -> None:
    found = checks(**facts)
    assert (found[name].state, found[name].action != "") == (state, True)
    assert said in found[name].summary
    assert {one.state for other, one in found.items() if other != name} == {"ok"}
    [condition] = find(Facts(now=NOW, **facts), RULES)
    assert condition.summary in found[name].summary


@pytest.mark.parametrize(
    "facts",
    [
        {"directory": synced(2 * DAY, 2 * DAY)},
        {"directory": synced(60, 60)},
        {"backup_at": None},
        {"parts": {}},
    ],
)
def test_what_is_not_in_use_is_no_trouble(facts: dict[str, Any]) -> None:
    assert find(Facts(now=NOW, **facts), RULES) == []


def test_a_rule_of_the_administrators_counts_here_too() -> None:
    off = checks({**RULES, "node-lost": AlertRule(enabled=False)}, nodes=[LOST])["nodes"]
    assert (off.state, "Not looked for: node-lost." in off.summary) == ("ok", True)
    mild = checks({**RULES, "node-lost": AlertRule(severity="warning")}, nodes=[LOST])["nodes"]
    assert mild.state == "warning"


def test_of_many_the_first_are_named() -> None:
    many = [NodeView(name=f"n{number}", status="lost") for number in range(8)]
    assert "And 3 more." in checks(nodes=many)["nodes"].summary


def test_each_rule_belongs_to_one_subject_at_most() -> None:
    named = [rule for one in SUBJECTS for rule in one.rules]
    assert len(set(named)) == len(named)
    assert set(named) <= set(ABOUT)
