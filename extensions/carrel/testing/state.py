"""The state of the fake scheduler: people, projects, workloads in their wire form, and streams.

Everything here runs in the fake's own event loop.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from carrel_schema.code import CodeFolder

Json = dict[str, Any]
NOT_PREEMPTIBLE = ("workspace", "inference", "replica", "tensorboard")
AT_REST = ("succeeded", "failed", "stopped")
NO_QUOTA = {"gpus": None, "cpu_millicores": None, "memory_bytes": None}
INTERACTIVE = {
    "time_limit_seconds": None,
    "idle_timeout_seconds": None,
    "busy_cap_seconds": 86_400.0,
    "warn_before_seconds": 600.0,
    "extend_seconds": 3600.0,
    "max_extensions": 0,
    "apply_to_running": False,
}
TRAINING = {"idle_gpu_seconds": None, "time_limit_seconds": None, "apply_to_running": False}


class Refusal(Exception):  # noqa: N818 - an answer, not a mishap
    """A problem to answer with."""

    def __init__(self, status: int, code: str, detail: str, field: str = "") -> None:
        super().__init__(detail)
        self.status = status
        errors = [{"field": field, "code": code, "expected": ""}] if field else []
        self.body = {
            "type": "about:blank",
            "title": code.replace("_", " ").capitalize(),
            "status": status,
            "code": code,
            "detail": detail,
            "errors": errors,
        }


class SchedulerState:
    """The state, and the only ways it changes."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.tokens: dict[str, str] = {}
        self.admins: set[str] = set()
        self.members: dict[str, list[str]] = {}
        self.projects: dict[str, Json] = {}
        self.departments: dict[str, Json] = {}
        self.quota_findings: list[Json] = []
        self.workloads: dict[tuple[str, str], Json] = {}
        self.nodes: list[Json] = []
        self.gpu_use: dict[str, list[Json]] = {}
        self.faults: Json = {"set_aside": [], "violated_invariants": []}
        self.logs: dict[tuple[str, str], list[tuple[float, str]]] = {}
        self.history: dict[tuple[str, str], Json] = {}
        self.remedies: dict[tuple[str, str], list[Json] | None] = {}
        self.metrics: dict[tuple[str, str], dict[str, list[Json]]] = {}
        self.reports: list[tuple[str, str, Json]] = []
        self.results: dict[tuple[str, str], bytes] = {}
        self.artifacts: dict[tuple[str, str], dict[str, bytes]] = {}
        self.models: dict[str, list[Json]] = {}
        self.documents: dict[tuple[str, str, str], Json] = {}
        self.access_rules: list[Json] = []
        self.catalogue: list[Json] = []
        self.assets: dict[tuple[str, str, str], Json] = {}
        self.service_accounts: dict[str, Json] = {}
        self.alerts: list[Json] = []
        self.budgets: dict[str, Json] = {}
        self.node_groups: dict[str, Json] = {}
        self.samples: Json = {"step_seconds": 300, "times": [], "values": {}}
        self.alerting: dict[tuple[str, str], Json] = {}
        self.subscriptions: dict[str, Json] = {}
        self.retention: Json = {
            "settings": {"sample_days": 14, "hourly_sample_days": 400},
            "kinds": [{"name": "decisions", "until": "for ever", "field": "decision_days"}],
        }
        self.health: Json = {"state": "ok", "checks": []}
        self.cluster_access: Json = {}
        self.people: dict[str, Json] = {}
        self.identities: dict[str, Json] = {}
        self.directory_groups: dict[str, Json] = {}
        self.directory_groups_away = False
        self.effective_rules: Json = {}
        self.project_rules: dict[str, Json] = {}
        self.usage_facts: Json = {}
        self.audit: list[Json] = []
        self.audit_settings: Json = {"retention_days": None, "syslog": ""}
        self.chunks: dict[str, bytes] = {}
        self.folders: dict[str, CodeFolder] = {}
        self.keys: dict[str, tuple[str, str]] = {}
        self.files: dict[tuple[str, str], dict[str, str]] = {}
        self.secrets: dict[tuple[str, str], dict[str, str]] = {}
        self.listeners: set[asyncio.Queue[tuple[int, str, Json] | None]] = set()
        self.past: list[tuple[int, str, Json]] = []
        self.changed = asyncio.Condition()
        self._version = itertools.count(1)
        self._uids = itertools.count(1)

    def add_project(self, body: Mapping[str, Any], members: list[str]) -> Json:
        """Create a project. Raises ``Refusal`` when it exists."""
        name = str(body["name"])
        if name in self.projects:
            raise Refusal(409, "already_exists", f"There is already a project `{name}`.", "name")
        base: Json = {"description": "", "over_quota": True, "weight": None, "rank": 0}
        self.projects[name] = (
            base
            | {"quota": NO_QUOTA | {"gpus": 0}, "limit": NO_QUOTA, "interactive": INTERACTIVE}
            | {"training": TRAINING, "department": None}
            | {"color": len(self.projects) % 12, "created_at": self.now(), "use": {}}
        )
        self.members[name] = list(members)
        return self.change_project(name, body)

    def change_project(self, name: str, body: Mapping[str, Any]) -> Json:
        """Merge changes into a project."""
        self.projects[name] = merged(self.projects[name], body)
        self.projects[name]["resource_version"] = next(self._version)
        return self.projects[name]

    def color(self, project: str) -> int | None:
        """A project's colour number; ``None`` for one that is not there."""
        return self.projects[project]["color"] if project in self.projects else None

    def with_colors(self, node: Json) -> Json:
        """A node whose holders carry the colours of their projects."""
        devices = [
            device | {"holders": [one | {"color": self.color(one["project"])} for one in holders]}
            if (holders := device.get("holders"))
            else device
            for device in node.get("devices", [])
        ]
        return node | {"devices": devices}

    def create(self, body: Mapping[str, Any], user: str) -> Json:
        """Add a Pending workload. Raises ``Refusal`` when the name is taken."""
        project = str(body["project"])
        name = str(body.get("name") or "") or self._next_name(project, str(body["name_prefix"]))
        if (project, name) in self.workloads:
            raise Refusal(
                409, "already_exists", f"There is already a job `{name}` in `{project}`.", "name"
            )
        workload = self.draft(body, name, user)
        self.workloads[project, name] = workload
        self.files[project, name] = dict(body.get("files", {}))
        self.secrets[project, name] = dict(body.get("secret_environment", {}))
        self.logs[project, name] = []
        self.history[project, name] = {"transitions": [], "decisions": []}
        self._transition(workload, "")
        self.publish("workload", workload)
        return workload

    def draft(self, body: Mapping[str, Any], name: str, user: str) -> Json:
        """A workload as it would be."""
        identity = ("name", "name_prefix", "project", "labels", "secret_environment", "files")
        spec = {key: value for key, value in body.items() if key not in identity}
        files = {name: len(text) for name, text in body.get("files", {}).items()}
        kind = spec.get("kind", "training")
        return {
            "name": name,
            "project": body["project"],
            "uid": f"uid-{next(self._uids)}",
            "resource_version": 0,
            "generation": 1,
            "created_at": self.now(),
            "created_by": user,
            "labels": dict(body.get("labels", {})),
            "spec": {"user": user, "preemptible": kind not in NOT_PREEMPTIBLE}
            | spec
            | {"kind": kind, "files": files},
            "status": {"phase": "pending", "queued_at": self.now(), "tasks": [], "attempt": 0},
        }

    def find(self, project: str, name: str) -> Json:
        """Find a workload. Raises ``Refusal`` when there is none."""
        if (project, name) not in self.workloads:
            raise Refusal(404, "not_found", f"There is no job `{name}` in project `{project}`.")
        return self.workloads[project, name]

    def change(self, project: str, name: str, status: Mapping[str, Any]) -> Json:
        """Change a workload's status and publish an event."""
        old = self.find(project, name)
        workload = {**old, "status": {**old["status"], **status}}
        self.workloads[project, name] = workload
        if workload["status"]["phase"] != old["status"]["phase"]:
            self._transition(workload, old["status"]["phase"])
        self.publish("workload", workload)
        return workload

    def remove(self, project: str, name: str) -> Json:
        """Take a workload away."""
        workload = self.find(project, name)
        del self.workloads[project, name]
        self.publish("deleted", workload)
        return workload

    def take_report(self, project: str, name: str, report: Mapping[str, Any]) -> None:
        """Apply a report of a job."""
        workload = self.find(project, name)
        at, step = report.get("at") or self.now(), report.get("step") or 0
        self.reports.append((project, name, dict(report)))
        status = {"metrics": {**workload["status"].get("metrics", {}), **report.get("metrics", {})}}
        said = {**workload["status"].get("parameters", {}), **report.get("parameters", {})}
        status["parameters"] = said
        curves = self.metrics.setdefault((project, name), {})
        for key, value in report.get("metrics", {}).items():
            curves.setdefault(key, []).append({"at": at, "step": step, "value": value})
        done = report.get("done", report.get("step"))
        if done is not None:
            known = {"total": report.get("total"), "rate": report.get("rate")}
            unit = report.get("unit", "step")
            status["progress"] = {"done": done, "unit": unit, "at": at, **known}
        if report.get("checkpoint_step") is not None:
            status["checkpoint"] = {"step": report["checkpoint_step"], "at": at}
        if report.get("notebook") is not None:
            status["notebook"] = dict(report["notebook"])
        changed = {**workload, "status": {**workload["status"], **status}}
        self.workloads[project, name] = changed
        self.publish("report", changed | {"report": dict(report)})

    def publish(self, kind: str, workload: Json) -> None:
        """Send an event to every listener."""
        version = next(self._version)
        workload["resource_version"] = version
        message = (version, kind, workload)
        self.past.append(message)
        for listener in self.listeners:
            listener.put_nowait(message)

    def _transition(self, workload: Json, old: str) -> None:
        status = workload["status"]
        row = {"at": self.now(), "from_phase": old, "to_phase": status["phase"]}
        row |= {"attempt": status["attempt"], "reason": status.get("reason")}
        row |= {"node": next((task["node"] for task in status["tasks"]), "")}
        self.history[workload["project"], workload["name"]]["transitions"].append(row)

    def _next_name(self, project: str, prefix: str) -> str:
        names = (f"{prefix}-{number}" for number in itertools.count(1))
        return next(name for name in names if (project, name) not in self.workloads)


def merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> Json:
    """A merge patch applied: mappings merge, everything else replaces."""
    new = dict(old)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(old.get(key), Mapping)
        new[key] = merged(old[key], value) if both else value
    for field in ("node_group_limits", "node_group_quotas"):
        if field in new:
            amounts = new[field] or {}
            new[field] = {group: gpus for group, gpus in amounts.items() if gpus is not None}
    return new


STATES = {"pending": "waiting", "succeeded": "completed", "failed": "failed", "stopped": "stopped"}


def trials_of(state: SchedulerState, project: str, name: str) -> Json:
    """All trials of an experiment. Raises ``Refusal`` when it is not there."""
    owner = state.find(project, name)
    spec = owner["spec"]["experiment"]
    metric = spec.get("metric", "objective")
    parts = [one for one in state.workloads.values() if one["spec"].get("owner") == owner["uid"]]
    return {
        "metric": metric,
        "direction": spec.get("direction", "minimize"),
        "best": None,
        "items": [_row(part, metric) for part in parts],
    }


def best_of(state: SchedulerState, project: str, name: str, kind: str) -> Json:
    """A workload with the best trial's parameters. Raises ``Refusal`` when there is none."""
    table = trials_of(state, project, name)
    sign = 1 if table["direction"] == "minimize" else -1
    done = [
        row for row in table["items"] if row["state"] == "completed" and row["value"] is not None
    ]
    if not done:
        raise Refusal(409, "no_best_trial", "No trial has come to an end with a value.")
    best = min(done, key=lambda row: sign * row["value"])
    body = {"name": f"{name}-best", "project": project, "kind": kind, "command": ["true"]}
    environment = {
        f"CARREL_PARAM_{key.upper()}": str(best["parameters"][key]) for key in best["parameters"]
    }
    section: Json = {"inference": {}} if kind == "inference" else {}
    return {"trial": best["number"], "workload": {**body, "environment": environment, **section}}


def _row(part: Json, metric: str) -> Json:
    status, trial = part["status"], part["spec"]["trial"]
    began, ended = status.get("started_at"), status.get("ended_at")
    return {
        "number": trial["number"],
        "state": status.get("trial_state") or STATES.get(status["phase"], "running"),
        "parameters": trial.get("parameters", {}),
        "value": status.get("metrics", {}).get(metric),
        "workload": part["name"],
        "phase": status["phase"],
        "attempt": status["attempt"],
        "seconds": None if began is None or ended is None else ended - began,
        "error": (status.get("reason") or {}).get("sentence", ""),
    }
