"""Options that belong together, and the defaults of each kind of work."""

from collections.abc import Mapping
from typing import Any

from carrel.errors import BadSetting
from carrel.options.kinds import EVERY

Fields = dict[str, Any]


def completed(kind: str, fields: Fields, given: Mapping[str, Any]) -> Fields:
    """The fields as the kind needs them. Raises ``BadSetting`` where options contradict."""
    for section in EVERY[kind].sections:
        fields.setdefault(section, {})
    if kind == "distributed":
        _workers(fields, given)
    if kind == "inference":
        _replicas(fields)
        fields.setdefault("routes", [{}])
    return fields


def _workers(fields: Fields, given: Mapping[str, Any]) -> None:
    """``--workers 2 --max-workers 4``: at least two, at most four."""
    tasks = fields.setdefault("tasks", 1)
    elastic = fields.get("elastic")
    if "max-workers" in given and "min-workers" not in given:
        elastic = fields["elastic"] = {"min_tasks": given.get("workers", 1)}
    if elastic is None:
        return
    if elastic.get("min_tasks", 0) > tasks:
        raise BadSetting(
            f"--min-workers {elastic['min_tasks']} is more than the {tasks} workers there are at "
            "most; raise --max-workers.",
            code="bad_range",
        )


def _replicas(fields: Fields) -> None:
    section = fields["inference"]
    least, most = section.get("min_replicas"), section.get("max_replicas")
    if least is not None and most is None:
        section["max_replicas"] = max(least, 1)
    elif least is not None and most is not None and least > most:
        raise BadSetting(
            f"--min-replicas {least} is more than --max-replicas {most}.", code="bad_range"
        )
