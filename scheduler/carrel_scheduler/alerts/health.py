"""Health: the conditions that the rules of alerts find, by the part of the platform. Pure.

A check says what is so now, an alert tells somebody once it lasts. A rule that is off finds nothing
here either, which its check says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.alerts.conditions import DAY, HOUR, MINUTE, AlertCondition, Facts, Rules, find
from carrel_schema.governance.alerts import ABOUT, RuleName
from carrel_schema.governance.health import HealthCheck, HealthState

MOST_NAMED: Final = 5
GIB: Final = 2**30
WORST: Final[tuple[HealthState, ...]] = ("failed", "warning", "ok")


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Facts of the ledger that are read for a report only.

    Attributes:
        size_bytes: of its database.
        decided_at: when the scheduler's last decision was recorded; ``None``: there is none.
    """

    size_bytes: int = 0
    decided_at: float | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A part of the platform.

    Attributes:
        rules: that look at it.
        well: what is said of it, found or not.
    """

    name: str
    rules: tuple[RuleName, ...]
    well: Callable[[Facts, LedgerFacts], str]


def report(facts: Facts, rules: Rules, ledger: LedgerFacts) -> list[HealthCheck]:
    """The checks in their order of display."""
    conditions = find(facts, rules)
    return [_check(one, conditions, facts, rules, ledger) for one in SUBJECTS]


def worst(checks: Sequence[HealthCheck]) -> HealthState:
    """The worst state of some checks."""
    states = {one.state for one in checks}
    return next((state for state in WORST if state in states), "ok")


def _check(
    subject: Subject,
    conditions: Sequence[AlertCondition],
    facts: Facts,
    rules: Rules,
    ledger: LedgerFacts,
) -> HealthCheck:
    found = [one for one in conditions if one.rule in subject.rules]
    critical = any(rules[one.rule].severity == "critical" for one in found)
    off = [name for name in subject.rules if not rules[name].enabled]
    said = [one.summary for one in found[:MOST_NAMED]]
    if len(found) > MOST_NAMED:
        said.append(f"And {len(found) - MOST_NAMED} more.")
    said.append(subject.well(facts, ledger))
    if off:
        said.append(f"Not looked for: {', '.join(off)}.")
    actions = dict.fromkeys(ABOUT[one.rule].action for one in found)
    state: HealthState = "failed" if critical else "warning" if found else "ok"
    return HealthCheck(
        name=subject.name,
        state=state,
        summary=" ".join(one for one in said if one),
        action=" ".join(actions),
        rules=subject.rules,
    )


def _of_scheduler(facts: Facts, ledger: LedgerFacts) -> str:
    late = f"It is {facts.lag_seconds:.1f} s behind its inputs"
    if ledger.decided_at is None:
        return f"{late}; it has decided nothing yet."
    return f"{late}; its last decision was {_ago(facts.now - ledger.decided_at)}."


def _of_ledger(facts: Facts, ledger: LedgerFacts) -> str:
    size = f"The ledger has {_size(ledger.size_bytes)}"
    if facts.disk_free_bytes is None or facts.disk_used is None:
        return f"{size}."
    free = _size(facts.disk_free_bytes)
    return f"{size}; the disk of the state folder is {facts.disk_used:.0%} full, {free} are free."


def _of_backup(facts: Facts, _ledger: LedgerFacts) -> str:
    if facts.backup_at is None:
        return "No backup by `carrel backup` is known."
    return f"The last one was made {_ago(facts.now - facts.backup_at)}."


def _of_engine(facts: Facts, _ledger: LedgerFacts) -> str:
    where = "processes of this machine" if facts.engine == "local" else "pods of a cluster"
    return f"Tasks are {where}."


def _of_nodes(facts: Facts, _ledger: LedgerFacts) -> str:
    gpus = sum(len(one.devices) for one in facts.nodes)
    return f"{_count(len(facts.nodes), 'node')} with {_count(gpus, 'GPU')} in all."


def _of_parts(facts: Facts, _ledger: LedgerFacts) -> str:
    answering = [name for name, why in facts.parts.items() if not why]
    if not facts.parts:
        return "None was asked yet."
    return f"Answering: {', '.join(answering)}." if answering else ""


def _of_certificate(facts: Facts, _ledger: LedgerFacts) -> str:
    if facts.certificate_ends is None:
        return "The scheduler is told of no certificate file."
    return f"It is valid for {max((facts.certificate_ends - facts.now) / DAY, 0):.0f} days."


def _of_channels(facts: Facts, _ledger: LedgerFacts) -> str:
    if not facts.channels:
        return "Nobody is told of alerts: there is no channel."
    well = sum(not why for why in facts.channels.values())
    return f"{well} of {len(facts.channels)} channels take what they are told."


def _of_directory(facts: Facts, _ledger: LedgerFacts) -> str:
    synced = facts.directory
    if synced is None or facts.now - synced.reported_at > DAY:
        return "People do not come from a directory."
    if not synced.succeeded_at:
        return ""
    return f"Rights were compared with it {_ago(facts.now - synced.succeeded_at)}."


SUBJECTS: Final = (
    Subject("scheduler", ("scheduler-lag", "set-aside"), _of_scheduler),
    Subject("engine", ("not-ready",), _of_engine),
    Subject("ledger", ("disk-full",), _of_ledger),
    Subject("backup", ("backup-old",), _of_backup),
    Subject("nodes", ("node-lost", "gpu-unhealthy"), _of_nodes),
    Subject("parts", ("part-unreachable",), _of_parts),
    Subject("certificate", ("certificate-expiring",), _of_certificate),
    Subject("channels", ("channel-failing",), _of_channels),
    Subject("directory", ("directory-silent",), _of_directory),
)


def _ago(seconds: float) -> str:
    if seconds < 2 * MINUTE:
        return f"{max(seconds, 0):.0f} s ago"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min ago"
    return f"{seconds / HOUR:.0f} h ago" if seconds < 2 * DAY else f"{seconds / DAY:.0f} days ago"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"
