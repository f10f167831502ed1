"""Departments in the core's tree: each is a queue above those of its projects.

A project may name a department that is not there (any more, or yet): it stands for itself then.
"""

from carrel_scheduler.core.events import QueueGone
from carrel_scheduler.core.state import State
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.cache import (
    WorkloadCache,
    department_event,
    department_queue,
    project_event,
)
from carrel_schema.objects import Department


def changed(cache: WorkloadCache, state: State, change: Change[Department]) -> None:
    """A department came, has other rules, or is gone; its projects move accordingly."""
    department = change.object
    name = department.meta.name
    if change.type is ChangeType.DELETED:
        if cache.departments.pop(name, None) is not None:
            _move_projects(cache, state, name)
            state.apply(QueueGone(department_queue(name)))
        return
    came = name not in cache.departments
    state.apply(department_event(department))
    cache.departments[name] = department
    if came:
        _move_projects(cache, state, name)


def _move_projects(cache: WorkloadCache, state: State, name: str) -> None:
    for project in cache.projects.values():
        if project.spec.department == name:
            state.apply(project_event(project, cache.departments))
