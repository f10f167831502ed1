"""Projects that are deleted while they have work: the work ends first, then the project goes.

On a cluster a finalizer keeps the object of such a project until nothing of it runs; elsewhere, and
where somebody removed the object by force, the scheduler keeps the project's queue in memory for as
long. Nothing of the project starts any more, what runs is stopped, and what waits says why. A
project of that name that comes later takes over what waits.
"""

import logging
from typing import Final

from carrel_scheduler.core.events import QueueRemoved, QueueSet
from carrel_scheduler.core.resources import ResourceVector
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectNotFound, VersionConflict
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.faults.guarding import FATAL, GuardedSteps
from carrel_scheduler.workloads.lifecycle.termination import stop_for
from carrel_scheduler.workloads.state import reasons
from carrel_scheduler.workloads.state.cache import CachedWorkload, WorkloadCache
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_schema.objects import Project

log = logging.getLogger(__name__)
NOTHING: Final = ResourceVector(0, 0, 0)


def keep_queue(changes: PassChanges, entry: CachedWorkload) -> None:
    """Keep a queue for adopted work whose project does not exist any more."""
    name = entry.workload.meta.project
    if name not in changes.cache.projects and name not in changes.state.queues.slots:
        changes.cache.draining.add(name)
        changes.state.apply(QueueSet(name, quota=NOTHING))


class DeletedProjects:
    """The projects that are being deleted.

    Args:
        ledger: of their objects.
        quarantine, steps: guard what is done for one project or workload.

    Attributes:
        drained: nothing of them runs any more, and their objects are still there.
    """

    def __init__(self, ledger: Ledger, quarantine: Quarantine, steps: GuardedSteps) -> None:
        self._ledger, self._quarantine, self._steps = ledger, quarantine, steps
        self._kept: dict[str, Project] = {}
        self.drained: list[Project] = []

    def begin(self, changes: PassChanges, project: Project) -> None:
        """Handle the deletion of a project, begun or complete."""
        name = project.meta.name
        changes.cache.projects.pop(name, None)
        self._kept.pop(name, None)
        if project.meta.deleting:
            self._kept[name] = project
        changes.external_pods.project_deleted(name, changes.now)
        if name in changes.state.queues.slots:
            changes.cache.draining.add(name)
        self.settle(changes)

    def end(self, cache: WorkloadCache, name: str) -> None:
        """Handle a project of that name which exists and is not being deleted."""
        cache.draining.discard(name)
        self._kept.pop(name, None)

    def settle(self, changes: PassChanges) -> None:
        """Stop what runs of such projects; those of which nothing runs any more leave the core."""
        draining, holding = changes.cache.draining, self._settle_workloads(changes)
        for name in sorted(draining - holding):
            with self._steps.step(changes, "project", name):
                changes.state.apply(QueueRemoved(name))
                draining.discard(name)
                if (project := self._kept.pop(name, None)) is not None:
                    self.drained.append(project)

    def _settle_workloads(self, changes: PassChanges) -> set[str]:
        """Stop the workloads of these projects; returns the projects that still hold resources."""
        holding: set[str] = set()
        for entry in tuple(changes.cache):
            name = entry.workload.meta.project
            if name not in changes.cache.draining:
                continue
            with self._steps.step(changes, "workload", entry.uid, entry.uid):
                _settle(changes, entry, name)
            if entry.holding or entry.uid in changes.state.jobs.by_uid:
                holding.add(name)
        return holding

    async def delete_drained(self) -> None:
        """Delete the objects of drained projects, once the drain is recorded."""
        drained, self.drained = self.drained, []
        for project in drained:
            name = project.meta.name
            with self._quarantine.guard("project", name, fatal=FATAL):
                try:
                    await self._ledger.delete(Project, name)
                except (ObjectNotFound, VersionConflict) as error:
                    log.info("the object of project %s was not deleted: %s", name, error)


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
