"""Tasks that do not end although told to: nobody is promised their room any more.

A task that gives way has its grace, and the engine a while to kill it and to say so. What is still
there then (a process that the kernel does not let go of, a node that no longer answers) keeps its
room, but whoever waits for that is not held to it: the core looks for room elsewhere. When the task
ends after all, its room is free like any other.
"""

import logging

from carrel_scheduler.core.events import TaskStuck
from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges

log = logging.getLogger(__name__)


def due(changes: PassChanges, entry: CachedWorkload) -> None:
    """Tell the core of parts that should have ended by now."""
    if entry.gone_by is None or entry.gone_by > changes.now:
        return
    entry.gone_by = None
    for part in sorted(entry.leaving):
        changes.state.apply(TaskStuck(entry.uid, part))
    if entry.leaving:
        name, grace = entry.workload.meta.name, entry.workload.spec.grace_seconds
        log.warning("%s was told to stop with a grace of %g s and has not ended", name, grace)
