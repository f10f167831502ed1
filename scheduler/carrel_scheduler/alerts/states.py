"""The states of alerts: which conditions last, which alerts fire, which are over. Pure.

An alert is pending from the first look that finds its condition, fires once after the rule's time,
and resolves once when a look does not find it any more. A pending one that goes away was none. The
states are plain data, so that after a restart nothing fires or resolves twice.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from carrel_scheduler.alerts.conditions import AlertCondition, Rules
from carrel_schema.governance.alerts import AlertOut, SilenceOut

KEPT_SECONDS: Final = 7 * 86_400.0
MOST_KEPT: Final = 1000
"""Resolved alerts that are kept to be shown."""


class AlertStates:
    """The latest alert of each rule and subject."""

    def __init__(self, alerts: Iterable[AlertOut] = ()) -> None:
        self._alerts = {(one.rule, one.subject): one for one in alerts}

    @property
    def alerts(self) -> list[AlertOut]:
        """The alerts: firing, then pending, then ended ones; the latest first."""
        order = {"firing": 0, "pending": 1, "resolved": 2}
        return sorted(self._alerts.values(), key=lambda one: (order[one.state], -one.since))

    def step(
        self, conditions: Iterable[AlertCondition], rules: Rules, now: float
    ) -> list[AlertOut]:
        """Apply the found conditions; returns what fired or resolved."""
        found: dict[tuple[str, str], AlertCondition] = {}
        for one in conditions:
            found.setdefault((one.rule, one.subject), one)
        changed = [
            change
            for key, condition in found.items()
            if (change := self._seen(key, condition, rules, now)) is not None
        ]
        for key in [key for key in self._alerts if key not in found]:
            alert = self._alerts[key]
            if alert.state == "pending":
                del self._alerts[key]
            elif alert.state == "firing":
                over = msgspec.structs.replace(alert, state="resolved", resolved_at=now)
                self._alerts[key] = over
                changed.append(over)
        self._forget(now)
        return changed

    def _seen(
        self, key: tuple[str, str], condition: AlertCondition, rules: Rules, now: float
    ) -> AlertOut | None:
        rule, known = rules[condition.rule], self._alerts.get(key)
        if known is None or known.state == "resolved":
            since = min(condition.since or now, now)
            known = AlertOut(rule=condition.rule, subject=condition.subject, since=since)
        told = msgspec.structs.replace(known, summary=condition.summary, severity=rule.severity)
        fires = told.state == "pending" and now - told.since >= rule.for_seconds
        if fires:
            told = msgspec.structs.replace(told, state="firing", fired_at=now)
        self._alerts[key] = told
        return told if fires else None

    def _forget(self, now: float) -> None:
        over = [one for one in self._alerts.values() if one.state == "resolved"]
        over.sort(key=lambda one: -one.resolved_at)
        for number, one in enumerate(over):
            if number >= MOST_KEPT or now - one.resolved_at > KEPT_SECONDS:
                del self._alerts[one.rule, one.subject]


def silenced_until(alert: AlertOut, silences: Iterable[SilenceOut], now: float) -> float:
    """The end of an alert's silence; 0 if it is not silenced."""
    return max(
        (
            one.until
            for one in silences
            if one.until > now
            and fnmatchcase(alert.rule, one.rule)
            and fnmatchcase(alert.subject, one.subject)
        ),
        default=0.0,
    )
