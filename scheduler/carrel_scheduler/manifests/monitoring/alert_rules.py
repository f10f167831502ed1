"""Rules of alerts for Prometheus: those of the scheduler as PromQL, from their own descriptions.

What metrics say is decided by Prometheus itself, with the thresholds that the rules have by
default. What the scheduler alone knows (budgets, backups, channels, ...) arrives as
``carrel_firing_alerts``, with the thresholds that administrators set. Rules about the parts
themselves come first: nobody else tells that the scheduler is gone.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from carrel_schema.governance.alerts import ABOUT, AlertRule, RuleDescription, RuleName

JOB: Final = "carrel-scheduler"
"""The scrape job of the scheduler, on a cluster and on one machine."""
MINUTE, HOUR = 60, 3600
PERCENT: Final = 100
Expression = Callable[[AlertRule], str]

_WORK: Final = "sum by (project, workload)"
EXPRESSIONS: Final[Mapping[RuleName, Expression]] = {
    "idle-gpu": lambda rule: (
        f"(carrel_gpu_idle_seconds_per_gpu >= {rule.threshold * MINUTE:g}) "
        "and (carrel_gpu_allocated_per_gpu > 0)"
    ),
    "low-use": lambda rule: (
        f"{_WORK} (avg_over_time(carrel_workload_gpu_utilization[1h])) / "
        f"{_WORK} (avg_over_time(carrel_workload_allocated_gpus[1h])) "
        f"< {rule.threshold / PERCENT:g}"
    ),
    "long-pending": lambda rule: f"carrel_queue_oldest_seconds >= {rule.threshold * HOUR:g}",
    "node-lost": lambda _rule: "carrel_node_ready == 0",
    "gpu-unhealthy": lambda _rule: "carrel_gpu_broken_per_gpu == 1",
    "starved-queue": lambda _rule: (
        "(carrel_allocated_gpu_count_per_project < carrel_project_guaranteed_gpus) "
        "and (carrel_project_waiting_gpus > 0)"
    ),
    "scheduler-lag": lambda rule: f"carrel_inbox_age_seconds > {rule.threshold:g}",
    "set-aside": lambda rule: (
        f"(carrel_set_aside_inputs >= {rule.threshold:g}) "
        "or (increase(carrel_invariant_violations_total[10m]) > 0)"
    ),
}
"""Rules that metrics decide; all others are asked from the scheduler."""
_SUBJECTS: Final[Mapping[RuleName, str]] = {
    "idle-gpu": "GPU {{ $labels.gpu }} of {{ $labels.node }}",
    "low-use": "{{ $labels.project }}/{{ $labels.workload }}",
    "long-pending": "project {{ $labels.project }}",
    "node-lost": "node {{ $labels.node }}",
    "gpu-unhealthy": "GPU {{ $labels.gpu }} of {{ $labels.node }}",
    "starved-queue": "project {{ $labels.project }}",
}
"""The subject as a template of Prometheus; none: the platform."""

_FAILED: Final = '{code=~"5.."}'
_UNSERVED: Final = '{status="5xx"}'


def _answered(which: str = "") -> str:
    """Requests to the API in a second."""
    return f"sum(rate(carrel_api_request_seconds_count{which}[5m]))"


def _served(which: str = "") -> str:
    """Requests to each endpoint in a second."""
    return f"sum by (project, endpoint) (rate(carrel_endpoint_requests_total{which}[5m]))"


_PARTS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "CarrelSchedulerDown": (
        f'absent(up{{job="{JOB}"}} == 1)',
        "5m",
        "The scheduler's metrics cannot be read.",
        "Look whether the scheduler runs, and whether Prometheus has the key of metrics.",
    ),
    "CarrelApiFailing": (
        f"{_answered(_FAILED)} / {_answered()} > 0.05",
        "10m",
        "More than one of twenty requests to the API fails.",
        "Read the scheduler's log, and `carrel health`.",
    ),
    "CarrelEndpointFailing": (
        f"{_served(_UNSERVED)} / {_served()} > 0.05",
        "10m",
        "More than one of twenty requests to an endpoint fails.",
        "Read the logs of its servers: `carrel logs`.",
    ),
}
_SEVERITY: Final = "{{ $labels.severity }}"
"""The severity that administrators set for what the scheduler reports."""
_SEVERITIES: Final = {"CarrelSchedulerDown": "critical"}


def groups() -> list[dict[str, Any]]:
    """The groups of a file of rules, and of a ``PrometheusRule``."""
    parts = [
        _rule(name, expression, lasting, _SEVERITIES.get(name, "warning"), summary, action)
        for name, (expression, lasting, summary, action) in _PARTS.items()
    ]
    measured = [_measured(name, ABOUT[name]) for name in EXPRESSIONS]
    told = [_told(name, about) for name, about in ABOUT.items() if name not in EXPRESSIONS]
    return [
        {"name": "carrel-parts", "rules": parts},
        {"name": "carrel-metrics", "rules": measured},
        {"name": "carrel-alerts", "rules": told},
    ]


def alert_name(rule: str) -> str:
    """The rule's name as Prometheus' alerts are named: ``CarrelIdleGpu``."""
    return "Carrel" + "".join(word.capitalize() for word in rule.split("-"))


def _measured(name: RuleName, about: RuleDescription) -> dict[str, Any]:
    rule = about.default
    lasting = f"{rule.for_seconds:g}s"
    expression = EXPRESSIONS[name](rule)
    summary = f"{about.description} ({_SUBJECTS.get(name, 'platform')})"
    return _rule(alert_name(name), expression, lasting, rule.severity, summary, about.action)


def _told(name: RuleName, about: RuleDescription) -> dict[str, Any]:
    """A rule for an alert of the scheduler, which knows durations and silences itself."""
    expression = (
        "max by (rule, subject, severity) "
        f'(carrel_firing_alerts{{rule="{name}",silenced="false"}}) == 1'
    )
    summary = f"{about.description} ({{{{ $labels.subject }}}})"
    return _rule(alert_name(name), expression, "0s", _SEVERITY, summary, about.action)


def _rule(
    name: str, expression: str, lasting: str, severity: str, summary: str, action: str
) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": lasting,
        "labels": {"severity": severity, "part_of": "carrel"},
        "annotations": {"summary": summary, "description": action},
    }
