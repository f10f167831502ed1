"""Every condition is broken once: its alert fires once and resolves once, also over a restart."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from carrel_scheduler.alerts.conditions import AlertCondition, Facts, QueueFacts, find
from carrel_scheduler.alerts.delivery import MOST_WAITING, Delivery
from carrel_scheduler.alerts.messages import NotDelivered, body_of
from carrel_scheduler.alerts.states import MOST_KEPT, AlertStates, silenced_until
from carrel_schema.answers import DeviceHolder, DeviceView, NodeView
from carrel_schema.governance.alerts import (
    ABOUT,
    AlertOut,
    AlertRule,
    AlertState,
    ChannelFields,
    RuleName,
    Severity,
    SilenceOut,
)
from carrel_schema.governance.costs import BudgetPart
from carrel_schema.governance.health import DirectorySync
from carrel_schema.objects import Failure, Meta, Workload, WorkloadSpec, WorkloadStatus

START = 1_790_000_000.0
HOUR = 3600.0
RULES: dict[RuleName, AlertRule] = {name: about.default for name, about in ABOUT.items()}


def work(**status: Any) -> Workload:
    return Workload(
        meta=Meta(name="train", project="vision", uid="u1"),
        spec=WorkloadSpec(),
        status=WorkloadStatus(**status),
    )


def node(status: str = "ready", **device: Any) -> NodeView:
    holder = DeviceHolder(project="vision", name="train")
    return NodeView(
        name="n1", status=status, devices=[DeviceView(index=0, holders=[holder], **device)]
    )


BROKEN: dict[RuleName, Callable[[float], dict[str, Any]]] = {
    "idle-gpu": lambda now: {
        "nodes": [node(allocated_milli=1000, idle_since=min(now, START) - HOUR)]
    },
    "low-use": lambda _: {"workloads": [work(phase="running")], "mean_use": {"u1": 0.02}},
    "long-pending": lambda _: {"workloads": [work(phase="pending", queued_at=START - 25 * HOUR)]},
    "crash-loop": lambda _: {"workloads": [work(phase="pending", failures=3)]},
    "node-lost": lambda _: {"nodes": [node(status="lost")]},
    "gpu-unhealthy": lambda _: {"nodes": [node(broken=True, message="Xid 79")]},
    "starved-queue": lambda _: {"queues": {"vision": QueueFacts(2000, 1000, 1000)}},
    "scheduler-lag": lambda _: {"lag_seconds": 31.0},
    "disk-full": lambda _: {"disk_used": 0.95},
    "set-aside": lambda _: {"set_aside": 1},
    "budget": lambda _: {"budgets": {"project/vision": [BudgetPart(81.0, 100.0, "EUR")]}},
    "certificate-expiring": lambda now: {"certificate_ends": now + 10 * 86_400},
    "not-ready": lambda _: {"trouble": "The disk of the ledger is full."},
    "part-unreachable": lambda _: {"parts": {"Hub": "", "gateway": "answered 502"}},
    "channel-failing": lambda _: {"channels": {"ops": "it answered 500", "mail": ""}},
    "directory-silent": lambda now: {"directory": DirectorySync(reported_at=now)},
    "backup-old": lambda now: {"backup_at": now - 8 * 86_400},
}
WELL: dict[str, Any] = {
    "nodes": [node(allocated_milli=1000), node(status="cordoned")],
    "workloads": [work(phase="pending", queued_at=START), work(phase="failed", failures=9)],
    "queues": {"vision": QueueFacts(2000, 2000, 1000), "speech": QueueFacts(2000, 0, 0)},
    "mean_use": {"u1": 0.5},
    "disk_used": 0.5,
    "budgets": {"project/vision": [BudgetPart(79.0, 100.0, "EUR")]},
    "certificate_ends": START + 90 * 86_400,
    "parts": {"Hub": "", "proxy": ""},
    "channels": {"ops": ""},
    "directory": DirectorySync(reported_at=START, succeeded_at=START + 6600),
    "backup_at": START,
}


def test_a_rule_of_each_name_is_broken_here() -> None:
    assert BROKEN.keys() == ABOUT.keys()


@pytest.mark.parametrize("name", BROKEN)
def test_each_fires_once_and_resolves_once(name: RuleName) -> None:
    book, told = AlertStates(), list[tuple[str, str]]()

    def look(now: float, **facts: Any) -> None:
        nonlocal book
        changed = book.step(find(Facts(now=now, **facts), RULES), RULES, now)
        told.extend((one.rule, one.state) for one in changed)
        stored = msgspec.json.encode([one for one in book.alerts if one.state != "pending"])
        if told:  # the scheduler is started anew after each look
            book = AlertStates(msgspec.json.decode(stored, type=list[AlertOut]))

    look(START, **WELL)
    assert told == []
    for minute in range(100):
        now = START + 60 * minute
        look(now, **BROKEN[name](now))
    assert told == [(name, "firing")]
    for minute in range(100, 110):
        look(START + 60 * minute, **WELL)
    assert told == [(name, "firing"), (name, "resolved")]
    disabled = {**RULES, name: msgspec.structs.replace(RULES[name], enabled=False)}
    assert find(Facts(now=START, **BROKEN[name](START)), disabled) == []


def test_what_does_not_last_is_no_alert() -> None:
    book = AlertStates()
    lost = [AlertCondition("node-lost", "node/n1", "Node n1 is lost.")]
    assert book.step(lost, RULES, START) == []
    assert [one.state for one in book.alerts] == ["pending"]
    assert book.step([], RULES, START + 60) == []
    assert book.alerts == []
    assert book.step(lost, RULES, START + 119) == []
    [fired] = book.step(lost, RULES, START + 240)
    assert (fired.since, fired.fired_at) == (START + 119, START + 240)
    [over] = book.step([], RULES, START + 300)
    assert over.resolved_at == START + 300
    [again] = book.step(lost, {**RULES, "node-lost": AlertRule(for_seconds=0)}, START + 400)
    assert (again.state, again.resolved_at) == ("firing", 0.0)


def test_old_alerts_are_forgotten() -> None:
    book = AlertStates()
    many = [AlertCondition("disk-full", f"node/{n}", "full") for n in range(MOST_KEPT + 5)]
    rules = {**RULES, "disk-full": AlertRule(for_seconds=0)}
    assert len(book.step(many, rules, START)) == MOST_KEPT + 5
    book.step([], rules, START + 1)
    assert len(book.alerts) == MOST_KEPT
    book.step([], rules, START + 8 * 86_400)
    assert book.alerts == []


def test_silences_match_rule_and_subject() -> None:
    alert = AlertOut(rule="node-lost", subject="node/n1")
    until = START + HOUR

    def silence(rule: str, subject: str, until: float = until) -> SilenceOut:
        return SilenceOut(name="s", rule=rule, subject=subject, until=until)

    assert silenced_until(alert, [silence("*", "node/*")], START) == until
    assert silenced_until(alert, [silence("node-lost", "*")], START) == until
    assert silenced_until(alert, [silence("disk-full", "*")], START) == 0
    assert silenced_until(alert, [silence("*", "*", START - 1)], START) == 0


class Channels:
    """Takes alerts; while ``broken`` it does not."""

    def __init__(self) -> None:
        self.now, self.broken, self.took = START, False, list[str]()
        self.seconds_each = 0.0
        self.delivery = Delivery(self.send, lambda: self.now)
        self.known = {"hook": ChannelFields(kind="webhook", url="https://h.example.org/x")}

    async def send(self, _: str, __: ChannelFields, alert: AlertOut) -> None:
        if self.broken:
            raise NotDelivered("it answered 500")
        self.now += self.seconds_each
        self.took.append(alert.subject)

    def flush(self) -> None:
        asyncio.run(self.delivery.flush(self.known))


def test_what_is_not_taken_is_tried_again_and_then_given_up() -> None:
    channels = Channels()
    channels.broken = True
    for n in range(MOST_WAITING + 10):
        channels.delivery.put(channels.known, AlertOut(rule="r", subject=str(n), state="firing"))
    channels.flush()
    state = channels.delivery.state("hook")
    assert (state.error, state.dropped, len(state.waiting)) == ("it answered 500", 10, MOST_WAITING)
    channels.broken = False
    channels.flush()
    assert channels.took == [], "not before its pause is over"
    channels.now += 10
    channels.flush()
    assert channels.took[0] == "10"
    assert len(channels.took) == MOST_WAITING
    assert state.error == ""
    channels.broken = True
    channels.delivery.put(channels.known, AlertOut(rule="r", subject="late", state="firing"))
    for _ in range(20):
        channels.now += 300
        channels.flush()
    assert (len(state.waiting), state.dropped) == (0, 11)


def test_a_slow_channel_does_not_hold_the_next_look_up() -> None:
    channels = Channels()
    channels.seconds_each = 9.0
    for n in range(20):
        channels.delivery.put(channels.known, AlertOut(rule="r", subject=str(n), state="firing"))
    channels.flush()
    assert channels.now - START < 20
    for _ in range(20):
        channels.flush()
    assert channels.took == [str(n) for n in range(20)]


def test_channels_are_told_what_they_ask_for() -> None:
    channels = Channels()
    channels.known = {
        "hook": ChannelFields(
            kind="slack", url="https://h/x", severities=["critical"], send_resolved=False
        )
    }
    told: list[tuple[Severity, AlertState]] = [
        ("warning", "firing"),
        ("critical", "firing"),
        ("critical", "resolved"),
    ]
    for severity, state in told:
        alert = AlertOut(rule="r", subject=f"{severity} {state}", severity=severity, state=state)
        channels.delivery.put(channels.known, alert)
    channels.flush()
    assert channels.took == ["critical firing"]


def test_bodies_are_those_that_others_take() -> None:
    alert = AlertOut(
        rule="node-lost",
        subject="node/n1",
        state="resolved",
        severity="critical",
        summary="Node n1 is lost.",
        fired_at=START,
        resolved_at=START + 60,
    )
    manager = ChannelFields(kind="alertmanager", url="http://am:9093")
    [sent] = body_of(manager, alert, "https://c/alerts")
    assert sent["labels"]["alertname"] == "node-lost"
    assert sent["endsAt"] == "2026-09-21T14:14:20+00:00"
    slack = body_of(ChannelFields(kind="slack", url="http://x/y"), alert, "https://c/alerts")
    assert slack["text"].startswith("Resolved: node-lost (node/n1)\nNode n1 is lost.")


def test_a_failure_says_what_the_last_one_was() -> None:
    failed = work(
        phase="pending", failures=4, last_failure=Failure(at=START, attempt=3, cause="OOM")
    )
    [found] = find(Facts(now=START, workloads=[failed]), RULES)
    assert found.summary == "4 failures so far. The last: OOM"
