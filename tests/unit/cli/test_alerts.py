"""``carrel alert``."""

from carrel.testing import FakeScheduler
from unit.cli.conftest import NOW, Run


def test_alerts_are_listed(run: Run, fake: FakeScheduler) -> None:
    fake.alerts.append(
        {"rule": "node-lost", "subject": "node/n1", "severity": "critical", "state": "firing",
         "summary": "Node n1 is lost.", "since": NOW - 300}
    )  # fmt: skip
    fake.alerts.append({"rule": "disk-full", "subject": "platform", "state": "resolved"})
    shown = run("alert", "list").out
    assert "firing  critical  node-lost  node/n1" in shown
    assert "disk-full" not in shown
    assert "disk-full" in run("alert", "list", "--all").out


def test_rules_silences_and_channels_are_written(run: Run, fake: FakeScheduler) -> None:
    assert "idle-gpu" in run("alert", "rules").out
    run("alert", "set-rule", "idle-gpu", "--threshold", "60", "--for", "10m", "--disable")
    rule = fake.alerting["alert-rules", "idle-gpu"]
    assert rule == {"enabled": False, "severity": "warning", "threshold": 60, "for_seconds": 600}
    assert run("alert", "set-rule", "nothing").code == 2
    made = run("alert", "silence", "--for", "2h", "--rule", "node-lost", "--comment", "move")
    assert made.out == "Silence s1: node-lost of * for 2h.\n"
    assert "move" in run("alert", "silences").out
    assert run("alert", "unsilence", "s1").code == 0
    run("alert", "set-channel", "ops", "--kind", "slack", "--url", "https://h/x")
    assert "https://h/x" in run("alert", "channels").out
    assert run("alert", "test-channel", "ops").out == "Channel ops took a message.\n"
    refused = run("alert", "test-channel", "broken")
    assert (refused.code, "answered 500" in refused.err) == (1, True)
    run("alert", "delete-channel", "ops")
    assert ("notification-channels", "ops") not in fake.alerting


def test_one_is_told_of_ones_own_work(run: Run, fake: FakeScheduler) -> None:
    assert "You are told of nothing" in run("notify", "show").out
    refused = run("notify", "set", "--kind", "mail", "--address", "ada@elsewhere.org")
    assert (refused.code, "an address at example.org" in refused.err) == (1, True)
    done = run("notify", "set", "--kind", "mail", "--address", "ada@example.org")
    assert done.out.startswith("You are told of finished, failed, preempted, long-pending, idle-g")
    run("notify", "set", "--kind", "slack", "--url", "https://h/x", "--event", "failed")
    assert fake.subscriptions["ada"] == {
        "kind": "slack", "address": "", "url": "https://h/x", "events": ["failed"],
    }  # fmt: skip
    assert "Told by:         slack" in run("notify", "show").out
    assert run("notify", "test").out == "A message was taken.\n"
    assert run("notify", "delete").code == 0
    assert fake.subscriptions == {}
