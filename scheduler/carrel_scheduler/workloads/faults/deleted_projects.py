"""Projects that are deleted while they have work: the work ends first, then the project goes.

On a cluster a finalizer keeps the object of such a project until nothing of it runs; elsewhere, and
where somebody removed the object by force, the scheduler keeps the project's queue in memory for as
long. Nothing of the project starts any more, what runs is stopped, and what waits says why. A
project of that name that comes later takes over what waits.
"""

import logging
from typing import TYPE_CHECKING, Final

from carrel_scheduler.core.events import QueueGone, QueueSet
from carrel_scheduler.core.resources import Amounts
from carrel_scheduler.ledger.store import Conflict, NotFound
from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.faults.guarding import FATAL
from carrel_scheduler.workloads.lifecycle import reasons
from carrel_scheduler.workloads.lifecycle.spec_changes import stop_for
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges
from carrel_schema.objects import Project

if TYPE_CHECKING:
    from carrel_scheduler.workloads.reconcile.reconciler import Reconciler

log = logging.getLogger(__name__)
NOTHING: Final = Amounts(0, 0, 0)


def keep_queue(changes: PassChanges, entry: CachedWorkload) -> None:
    """Work that holds room is taken over and its project is not there: its queue is kept."""
    name = entry.workload.meta.project
    if name not in changes.cache.projects and name not in changes.state.queues.slots:
        changes.cache.draining.add(name)
        changes.state.apply(QueueSet(name, quota=NOTHING))


class Draining:
    """The projects of one loop that are about to go."""

    def __init__(self, loop: "Reconciler") -> None:
        self._loop = loop
        self._kept: dict[str, Project] = {}
        self._let_go: list[Project] = []

    def begin(self, changes: PassChanges, project: Project) -> None:
        """A project is being deleted, or its object is gone."""
        cache, name = self._loop.cache, project.meta.name
        cache.projects.pop(name, None)
        self._kept.pop(name, None)
        if project.meta.deleting:
            self._kept[name] = project
        self._loop.external_pods.project_deleted(name, changes.now)
        if name in self._loop.state.queues.slots:
            cache.draining.add(name)
        self.settle(changes)

    def end(self, name: str) -> None:
        """A project of that name is there, and is to stay."""
        self._loop.cache.draining.discard(name)
        self._kept.pop(name, None)

    def settle(self, changes: PassChanges) -> None:
        """Stop what is to be stopped; projects of which nothing runs any more go."""
        draining = self._loop.cache.draining
        if not draining:
            return
        waits = _settle_entries(changes, self._loop)
        for name in sorted(draining - waits):
            with self._loop.handling.step(changes, "project", name):
                changes.state.apply(QueueGone(name))
                draining.discard(name)
                if (project := self._kept.pop(name, None)) is not None:
                    self._let_go.append(project)

    async def finish(self) -> None:
        """Let go of the objects of projects that have drained, once that is recorded."""
        let_go, self._let_go = self._let_go, []
        for project in let_go:
            name = project.meta.name
            with self._loop.quarantine.guard("project", name, fatal=FATAL):
                try:
                    await self._loop.ledger.delete(Project, name)
                except (NotFound, Conflict) as error:
                    log.info("project %s was not let go: %s", name, error)


def _settle_entries(changes: PassChanges, loop: "Reconciler") -> set[str]:
    """Bring the work of draining projects to rest; returns the projects that still hold room."""
    holding: set[str] = set()
    for entry in tuple(loop.cache):
        name = entry.workload.meta.project
        if name not in loop.cache.draining:
            continue
        with loop.handling.step(changes, "workload", entry.uid, entry.uid):
            _settle(changes, entry, name)
        if entry.holding or entry.uid in loop.state.jobs.by_uid:
            holding.add(name)
    return holding


def _settle(changes: PassChanges, entry: CachedWorkload, project: str) -> None:
    status = entry.workload.status
    if entry.holding and status.phase != "stopping":
        stop_for(changes, entry, reasons.project_deleted(project, running=True))
    elif status.phase == "pending":
        changes.dequeue(entry)
        reason = reasons.project_deleted(project, running=False)
        if status.reason != reason:
            status.reason = reason
            changes.mark(entry)
