"""Conditions: what the rules find in the present state. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from carrel_schema.answers import NodeView
from carrel_schema.governance.alerts import AlertRule, RuleName
from carrel_schema.governance.costs import BudgetPart
from carrel_schema.governance.health import DirectorySync
from carrel_schema.objects import Workload

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
READY: Final = frozenset({"", "ready", "cordoned", "draining", "maintenance"})
"""States of nodes that somebody chose, or that are well."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A project's GPUs in thousandths, and its number of pending workloads."""

    quota_milli: int
    allocated_milli: int
    waiting_milli: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of now.

    Attributes:
        now: epoch seconds.
        nodes, workloads, queues: as the scheduler knows them; queues by project.
        mean_use: utilization (0 to 1) of one GPU, mean of the last hour, of work measured so long,
            by uid.
        lag_seconds: since the scheduler last looked at its inputs.
        disk_used: share of the state folder's disk; ``None``: not known.
        set_aside: inputs that were set aside, and violated invariants.
        budgets: what of each is used and allowed, by scope.
        certificate_ends: when the front's certificate expires; ``None``: it has none.
        disk_free_bytes: of the state folder's disk; ``None``: not known.
        engine: ``local`` or ``kubernetes``.
        trouble: what is in the way of all work, a sentence; empty: nothing.
        parts: why the scheduler does not reach the Hub, the proxy and the gateway, by their names;
            empty: it does. One that was not asked yet is left out.
        channels: why channels did not take their last message, by name; empty: they did.
        directory: how comparing rights with the directory went; ``None``: there is none.
        backup_at: of the last backup by ``carrel backup``; ``None``: none is known.
    """

    now: float
    nodes: Sequence[NodeView] = ()
    workloads: Sequence[Workload] = ()
    queues: Mapping[str, QueueFacts] = field(default_factory=dict)
    mean_use: Mapping[str, float] = field(default_factory=dict)
    lag_seconds: float = 0.0
    disk_used: float | None = None
    set_aside: int = 0
    certificate_ends: float | None = None
    budgets: Mapping[str, Sequence[BudgetPart]] = field(default_factory=dict)
    disk_free_bytes: int | None = None
    engine: str = ""
    trouble: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)
    directory: DirectorySync | None = None
    backup_at: float | None = None


@dataclass(frozen=True, slots=True)
class AlertCondition:
    """A finding of a rule, and since when it holds; 0: since now."""

    rule: RuleName
    subject: str
    summary: str
    since: float = 0.0


Rules = Mapping[RuleName, AlertRule]


def find(facts: Facts, rules: Rules) -> list[AlertCondition]:
    """The conditions that the enabled rules find."""
    found = [*_of_nodes(facts, rules), *_of_work(facts, rules), *_of_queues(facts)]
    found += [*_of_platform(facts, rules), *_of_budgets(facts, rules)]
    found += [*_of_parts(facts, rules)]
    return [one for one in found if rules[one.rule].enabled]


def _of_nodes(facts: Facts, rules: Rules) -> Iterator[AlertCondition]:
    idle_seconds = rules["idle-gpu"].threshold * MINUTE
    for node in facts.nodes:
        subject = f"node/{node.name}"
        if node.status not in READY:
            yield AlertCondition("node-lost", subject, f"Node {node.name} is {node.status}.")
        broken = [one for one in node.devices if one.broken]
        if broken:
            named = ", ".join(f"GPU {one.index} ({one.message})" for one in broken)
            yield AlertCondition(
                "gpu-unhealthy", subject, f"Out of service on {node.name}: {named}."
            )
        for device in node.devices:
            since = device.idle_since
            if not device.allocated_milli or since is None or facts.now - since < idle_seconds:
                continue
            minutes = (facts.now - since) / MINUTE
            for holder in device.holders:
                yield AlertCondition(
                    "idle-gpu",
                    f"workload/{holder.project}/{holder.name}",
                    f"GPU {device.index} of {node.name} has done nothing for {minutes:.0f} min "
                    f"and is held by {holder.project}/{holder.name}.",
                    since + idle_seconds,
                )


def _of_work(facts: Facts, rules: Rules) -> Iterator[AlertCondition]:
    pending_seconds = rules["long-pending"].threshold * HOUR
    for one in facts.workloads:
        status, subject = one.status, f"workload/{one.meta.project}/{one.meta.name}"
        if status.phase == "pending" and not one.spec.suspend and status.queued_at:
            waited = facts.now - status.queued_at
            if waited >= pending_seconds:
                why = f" {status.reason.sentence}" if status.reason is not None else ""
                yield AlertCondition(
                    "long-pending",
                    subject,
                    f"Pending for {waited / HOUR:.0f} h.{why}",
                    status.queued_at + pending_seconds,
                )
        if status.failures >= max(rules["crash-loop"].threshold, 1) and status.phase in (
            "pending",
            "starting",
            "running",
        ):
            told = status.last_failure
            why = f" The last: {told.cause}" if told is not None and told.cause else ""
            yield AlertCondition("crash-loop", subject, f"{status.failures} failures so far.{why}")
        use = facts.mean_use.get(one.meta.uid)
        if use is not None and use * 100 < rules["low-use"].threshold:
            yield AlertCondition("low-use", subject, f"Its GPUs are used to {use:.0%} on average.")


def _of_queues(facts: Facts) -> Iterator[AlertCondition]:
    for name, queue in facts.queues.items():
        short = queue.quota_milli - queue.allocated_milli
        if queue.waiting_milli > 0 and short > 0:
            yield AlertCondition(
                "starved-queue",
                f"project/{name}",
                f"{name} has {queue.allocated_milli / 1000:g} of its {queue.quota_milli / 1000:g} "
                f"GPUs while work for {queue.waiting_milli / 1000:g} is pending.",
            )


def _of_budgets(facts: Facts, rules: Rules) -> Iterator[AlertCondition]:
    threshold = rules["budget"].threshold
    for scope, parts in facts.budgets.items():
        near = [one for one in parts if one.used * 100 >= one.allowed * threshold]
        if near:
            words = " and ".join(map(str, near))
            yield AlertCondition("budget", scope, f"{words} of {scope} are used.")


def _of_platform(facts: Facts, rules: Rules) -> Iterator[AlertCondition]:
    if facts.lag_seconds > rules["scheduler-lag"].threshold:
        summary = f"The scheduler last looked at its inputs {facts.lag_seconds:.0f} s ago."
        yield AlertCondition("scheduler-lag", "platform", summary)
    if facts.disk_used is not None and facts.disk_used * 100 >= rules["disk-full"].threshold:
        summary = f"The disk of the state folder is {facts.disk_used:.0%} full."
        yield AlertCondition("disk-full", "platform", summary)
    if facts.set_aside and facts.set_aside >= rules["set-aside"].threshold:
        summary = f"{facts.set_aside} inputs are set aside or invariants violated; see the faults."
        yield AlertCondition("set-aside", "platform", summary)
    if facts.certificate_ends is not None:
        days = (facts.certificate_ends - facts.now) / DAY
        if days < rules["certificate-expiring"].threshold:
            summary = f"The TLS certificate of the front expires in {max(days, 0):.0f} days."
            yield AlertCondition("certificate-expiring", "platform", summary)
    if facts.trouble:
        yield AlertCondition("not-ready", "platform", facts.trouble)
    if facts.backup_at is not None:
        days = (facts.now - facts.backup_at) / DAY
        if days > rules["backup-old"].threshold:
            yield AlertCondition(
                "backup-old", "platform", f"The last backup is {days:.0f} days old."
            )


def _of_parts(facts: Facts, rules: Rules) -> Iterator[AlertCondition]:
    for name, why in facts.parts.items():
        if why:
            yield AlertCondition("part-unreachable", f"part/{name}", f"The {name} {why}.")
    for name, why in facts.channels.items():
        if why:
            yield AlertCondition("channel-failing", f"channel/{name}", f"Channel {name}: {why}.")
    synced = facts.directory
    if synced is None or facts.now - synced.reported_at > DAY:
        return  # the Hub asks no directory any more
    minutes = (facts.now - synced.succeeded_at) / MINUTE
    if minutes > rules["directory-silent"].threshold:
        since = f"for {minutes:.0f} min" if synced.succeeded_at else "since the Hub started"
        why = f": {synced.error}" if synced.error else ""
        summary = f"Rights were not compared with the directory {since}{why}."
        yield AlertCondition("directory-silent", "platform", summary)
