"""The form of a project's rules: from the project to texts, and back to a merge patch.

Only what was changed is sent, so that two admins who edit different fields do not undo each other.
"""

from typing import Any

from carrel.models import InteractiveLimits, Project, QuotaAmounts
from carrel_hub.console.format import GIB, number
from carrel_hub.console.forms import Form, spell_duration
from carrel_schema.text import group_amounts

_AMOUNTS = (("gpus", "gpus", 1), ("cpu_millicores", "cpus", 1000), ("memory_bytes", "memory", GIB))
_DURATIONS = {
    "interactive": {
        "time_limit_seconds": "time_limit",
        "idle_timeout_seconds": "idle_timeout",
        "busy_cap_seconds": "busy_cap",
        "warn_before_seconds": "warning",
        "extend_seconds": "extension",
    },
    "training": {
        "idle_gpu_seconds": "training_idle",
        "time_limit_seconds": "training_time_limit",
    },
}
# Rules of preemption and reservation; an empty field follows the department.
_WAITS = {
    "preempt_min_runtime_seconds": "preempt_min_runtime",
    "reclaim_min_runtime_seconds": "reclaim_min_runtime",
    "preemption_delay_seconds": "preemption_delay",
    "reservation_delay_seconds": "reservation_delay",
}
# Groups of nodes that work is kept to, as names with commas between.
_NODE_GROUPS = {"training": "training_node_groups", "interactive": "workspace_node_groups"}
# Amounts by group of nodes; what the form no longer names is taken away.
_BY_GROUP = {"node_group_limits": "group_limits", "node_group_quotas": "group_quotas"}
# Whether changes also hold for what runs already.
_AT_ONCE = {"interactive": "workspaces_at_once", "training": "trainings_at_once"}
# These two have no "none": an empty field keeps what the API has by default.
_ALWAYS = {"warn_before_seconds": 600.0, "extend_seconds": 3600.0}

WEIGHTS = {"low": 1, "medium": 2, "high": 3}

FIELDS = {
    "name": "name",
    "description": "description",
    "department": "department",
    "weight": "weight",
    "over_quota": "over_quota",
    "rank": "rank",
    "max_gpus_per_user": "user_gpus",
    "user_order": "user_order",
    "placement": "placement",
    **_BY_GROUP,
    **_WAITS,
    **{f"node_groups.{api}": name for api, name in _NODE_GROUPS.items()},
    "interactive.max_extensions": "max_extensions",
    **{f"quota.{api}": f"quota_{name}" for api, name, _ in _AMOUNTS},
    **{f"limit.{api}": f"limit_{name}" for api, name, _ in _AMOUNTS},
    **{f"{g}.{api}": name for g, names in _DURATIONS.items() for api, name in names.items()},
    **{f"{group}.apply_to_running": name for group, name in _AT_ONCE.items()},
}


def form_of(project: Project) -> Form:
    """The project as texts."""
    values = {
        "name": project.name,
        "description": project.description,
        "department": project.department or "",
        "over_quota": "on" if project.over_quota else "",
        "weight": "" if project.weight is None else str(project.weight),
        "rank": str(project.rank),
        "user_gpus": "" if project.max_gpus_per_user is None else f"{project.max_gpus_per_user:g}",
        "user_order": project.user_order,
        "placement": project.placement or "",
        "max_extensions": str(project.interactive.max_extensions),
    }
    for api, name in _BY_GROUP.items():
        values[name] = group_amounts.spell(getattr(project, api))
    for api, name in _NODE_GROUPS.items():
        values[name] = ", ".join(getattr(project.node_groups, api))
    for api, name in _WAITS.items():
        values[name] = spell_duration(getattr(project, api))
    for group, amounts in (("quota", project.quota), ("limit", project.limit)):
        for api, name, unit in _AMOUNTS:
            amount: float | None = getattr(amounts, api)
            values[f"{group}_{name}"] = (
                "" if amount is None else number(amount / unit).replace(",", "")
            )
    for group, names in _DURATIONS.items():
        rules = getattr(project, group)
        for api, name in names.items():
            values[name] = spell_duration(getattr(rules, api))
        values[_AT_ONCE[group]] = "on" if rules.apply_to_running else ""
    return Form(values)


def rules_of(form: Form) -> dict[str, Any]:
    """All rules in the form of the API. Check ``form.refused`` before sending them."""
    return {
        "description": form.value("description"),
        "department": form.value("department") or None,
        "quota": _amounts(form, "quota"),
        "limit": _amounts(form, "limit"),
        "over_quota": form.checked("over_quota"),
        "weight": _weight(form),
        "rank": form.rank("rank"),
        "max_gpus_per_user": form.amount("user_gpus"),
        "user_order": form.value("user_order") or "submission",
        "placement": form.value("placement") or None,
        **{api: form.group_amounts(name) for api, name in _BY_GROUP.items()},
        **{api: form.seconds(name) for api, name in _WAITS.items()},
        "node_groups": {api: form.names(name) for api, name in _NODE_GROUPS.items()},
        "interactive": _stay(form, "interactive")
        | {"max_extensions": form.whole("max_extensions", empty=0)},
        "training": _stay(form, "training"),
    }


def changes_of(form: Form, project: Project) -> dict[str, Any]:
    """The merge patch that turns the project into what the form says; empty when nothing differs.

    The project goes through its texts first: what the form rounds is not a change.
    """
    rules, old = rules_of(form), rules_of(form_of(project))
    for api in _BY_GROUP:
        rules[api] = dict.fromkeys(getattr(project, api)) | rules[api]
        old[api] = dict.fromkeys(rules[api]) | old[api]
    return _difference(old, rules)


def _weight(form: Form) -> int | None:
    """A number, or the name of one."""
    named = WEIGHTS.get(form.value("weight").lower())
    return form.whole("weight") if named is None else named


def new_project(name: str) -> Project:
    """The initial values of the form for a new project."""
    return Project(
        name=name,
        quota=QuotaAmounts(),
        interactive=InteractiveLimits(busy_cap_seconds=86_400.0),
    )


def _amounts(form: Form, group: str) -> dict[str, float | int | None]:
    found: dict[str, float | int | None] = {}
    for api, name, unit in _AMOUNTS:
        amount = form.amount(f"{group}_{name}")
        found[api] = amount if amount is None or unit == 1 else round(amount * unit)
    return found


def _stay(form: Form, group: str) -> dict[str, Any]:
    """The session limits of workspaces or trainings."""
    found: dict[str, Any] = {
        api: form.seconds(name, empty=_ALWAYS.get(api)) for api, name in _DURATIONS[group].items()
    }
    found["apply_to_running"] = form.checked(_AT_ONCE[group])
    return found


def _difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in new.items():
        if isinstance(value, dict):
            inner = _difference(old[key], value)
            if inner:
                found[key] = inner
        elif value != old[key]:
            found[key] = value
    return found
