"""Work under a budget that is used up, where the budget says: lower the priority.

New and waiting work with GPUs then asks the core with the lowest named priority at most, and as
preemptible, so that it runs on what nobody else wants. Its status names the budget's scope, so that
a restart knows with which rights it started. Waiting work gets its own priority back once the
budget has something left; what runs keeps the rights of its start until it ends or waits again.
"""

from collections.abc import Collection
from dataclasses import replace

from carrel_scheduler.workloads.reconcile.handlers import wants_resources
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.cache import CachedWorkload, WorkloadCache, priority_of
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_schema.objects import Workload
from carrel_schema.scopes import scopes_over


def follow(changes: PassChanges) -> None:
    """Lower the priority of waiting work, or give it back, by the budgets that are used up."""
    cache = changes.cache
    cache.some_lowered = False
    scopes: dict[tuple[str, str], str] = {}
    for entry in cache:
        status = entry.workload.status
        if not entry.holding and wants_resources(entry.workload):
            whose = entry.workload.meta.project, entry.workload.spec.user
            if whose not in scopes:
                scopes[whose] = _scope_of(cache, *whose, cache.used_up)
            scope = scopes[whose] if _asks_for_gpus(entry.workload) else ""
            if scope != status.lowered_by:
                status.lowered_by = scope
                changes.mark(entry)
                _queue_anew(changes, entry)
        cache.some_lowered |= bool(status.lowered_by)


def _queue_anew(changes: PassChanges, entry: CachedWorkload) -> None:
    """Let it wait with the rights that it has now; which of its tasks are done stays known."""
    job = changes.state.jobs.by_uid.get(entry.uid)
    if entry.queued and job is not None and not job.rows:
        changes.state.apply(
            replace(
                job.spec,
                priority=priority_of(entry.workload),
                preemptible=shape.preemptibility(entry.workload),
                evicted_at=job.evicted_at,
            )
        )


def scope_over(cache: WorkloadCache, workload: Workload, scopes: Collection[str]) -> str:
    """The widest of these scopes that contains this work; empty: none, or it asks for no GPU."""
    if not _asks_for_gpus(workload):
        return ""
    return _scope_of(cache, workload.meta.project, workload.spec.user, scopes)


def _asks_for_gpus(workload: Workload) -> bool:
    resources = workload.spec.resources
    return bool(resources.gpu_milli or resources.gpu_memory_mib or resources.mig_profile)


def _scope_of(cache: WorkloadCache, project: str, user: str, scopes: Collection[str]) -> str:
    department = cache.rules_of(project)[0].department
    over = map(str, scopes_over(project=project, department=department, user=user))
    return next((one for one in over if one in scopes), "")
