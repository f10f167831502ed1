"""The answers that only clients read: events of a stream."""

from collections.abc import Iterable

import msgspec

from carrel_schema.answers import ProjectOut
from carrel_schema.history import Report
from carrel_schema.wire import WorkloadOut


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the event stream. ``type``: ``workload``, ``deleted`` or ``report``."""

    type: str
    id: str = ""
    workload: WorkloadOut
    report: Report | None = None


def by_department(projects: Iterable[ProjectOut]) -> list[tuple[str, list[ProjectOut]]]:
    """Projects under their departments, both by name; those of none come last, under ``""``."""
    found: dict[str, list[ProjectOut]] = {}
    for project in sorted(projects, key=lambda project: project.name):
        found.setdefault(project.department or "", []).append(project)
    return sorted(found.items(), key=lambda group: (not group[0], group[0]))
