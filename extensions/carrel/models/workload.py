"""The answers that only clients read: events of a stream, logs of studies, refusals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from carrel_schema.answers import ProjectOut
from carrel_schema.history import Report
from carrel_schema.wire import WorkloadOut


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the event stream. ``type``: ``workload``, ``deleted`` or ``report``."""

    type: str
    id: str = ""
    workload: WorkloadOut
    report: Report | None = None


class StudyLog(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a study's log; ``next`` follows the last of them."""

    entries: list[dict[str, Any]] = []
    next: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why one was refused: a stable code, a sentence, and the fields that are wrong."""

    code: str = ""
    detail: str = ""
    errors: Sequence[Mapping[str, Any]] = ()


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one of many. ``status`` is what it would have been answered with alone.

    One that the caller had submitted just so before counts as accepted; it is not created again.
    """

    project: str
    name: str
    status: int
    uid: str | None = None
    resource_version: int | None = None
    problem: Problem | None = None

    @property
    def created(self) -> bool:
        """Whether this request created it."""
        return self.status == 201

    @property
    def accepted(self) -> bool:
        """Whether it is there now, as asked for."""
        return self.problem is None


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to one batch, in its order."""

    items: Sequence[Submitted]


def by_department(projects: Iterable[ProjectOut]) -> list[tuple[str, list[ProjectOut]]]:
    """Projects under their departments, both by name; those of none come last, under ``""``."""
    found: dict[str, list[ProjectOut]] = {}
    for project in sorted(projects, key=lambda project: project.name):
        found.setdefault(project.department or "", []).append(project)
    return sorted(found.items(), key=lambda group: (not group[0], group[0]))
