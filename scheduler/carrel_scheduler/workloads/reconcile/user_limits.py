"""The most GPUs that each user of a project may have: whose waiting work is in the core's queue.

Work of a user is in the queue as long as it stays within the limit together with what the user
holds and with what is in the queue before it, by priority, then age; what is smaller may pass what
does not fit. The rest is held back with a reason that says so. Work that grows counts with all that
it may grow to, so the core, which knows no users' limits, cannot exceed one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.workloads.reconcile.handlers import wants_resources
from carrel_scheduler.workloads.state import reasons, shape
from carrel_scheduler.workloads.state.cache import CachedWorkload, WorkloadCache, priority_of
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_schema.objects import ProjectSpec, ReasonInfo, Workload


def follow(changes: PassChanges) -> None:
    """Let waiting work into the core's queue, or take it out, by the limits of users."""
    cache = changes.cache
    limits = {
        name: most
        for name, project in cache.projects.items()
        if (most := milli_of(project.spec)) is not None and name not in cache.draining
    }
    for project, entries in _by_user(cache, limits):
        _follow_user(changes, entries, limits[project])


def changed_by(
    cache: WorkloadCache, state: Columns, limits: Mapping[str, int | None]
) -> tuple[list[CachedWorkload], list[CachedWorkload]]:
    """Waiting work that would come into the core's queue, and that which would go out of it.

    Args:
        cache: of the loop.
        state: of the core.
        limits: new ones by project, in GPU thousandths; ``None``: no limit.
    """
    entering: list[CachedWorkload] = []
    leaving: list[CachedWorkload] = []
    for project, entries in _by_user(cache, limits):
        for entry, _, fits in _in_turn(cache, state, entries, limits[project]):
            reason = entry.workload.status.reason
            held_back = reason is not None and reason.token == reasons.OVER_USER_LIMIT
            if fits and held_back and not entry.queued:
                entering.append(entry)
            elif not fits and entry.queued:
                leaving.append(entry)
    return entering, leaving


def never(cache: WorkloadCache, workload: Workload) -> ReasonInfo | None:
    """The reason why the user limit of its project could never admit this work; else ``None``."""
    limit, asked = limit_milli(cache, workload.meta.project), _most_milli(cache, workload)
    if limit is None or asked <= limit:
        return None
    return reasons.over_user_limit(workload, limit, 0, asked)


def forecast(cache: WorkloadCache, workload: Workload) -> ReasonInfo | None:
    """The reason why the user's limit would hold this work back now, or ``None``."""
    limit, asked = limit_milli(cache, workload.meta.project), _most_milli(cache, workload)
    if limit is None or not asked:
        return None
    key = (workload.meta.project, workload.spec.user)
    theirs = (
        entry
        for entry in cache
        if (entry.workload.meta.project, entry.workload.spec.user) == key
        and (entry.holding or (entry.queued and _turn(entry.workload) <= _turn(workload)))
    )
    held = _sum(cache, theirs)
    if held + asked <= limit:
        return None
    return reasons.over_user_limit(workload, limit, held, asked)


def limit_milli(cache: WorkloadCache, project: str) -> int | None:
    """The limit of each user of a project, in GPU thousandths; ``None`` without one."""
    known = cache.projects.get(project)
    return None if known is None else milli_of(known.spec)


def milli_of(spec: ProjectSpec) -> int | None:
    """The user limit in a project's specification, in GPU thousandths; ``None`` without one."""
    most = spec.max_gpus_per_user
    return None if most is None else round(most * MILLI)


def _follow_user(changes: PassChanges, entries: Sequence[CachedWorkload], limit: int) -> None:
    for entry, held, fits in _in_turn(changes.cache, changes.state, entries, limit):
        if fits:
            if not entry.queued:
                changes.enqueue(entry)
            continue
        changes.dequeue(entry)
        asked = _most_milli(changes.cache, entry.workload)
        reason = reasons.over_user_limit(entry.workload, limit, held, asked)
        if entry.workload.status.reason != reason:
            entry.workload.status.reason = reason
            changes.mark(entry)


def _by_user(
    cache: WorkloadCache, projects: Mapping[str, int | None] | Mapping[str, int]
) -> Iterator[tuple[str, list[CachedWorkload]]]:
    """The workloads of each user of these projects that hold or ask for resources."""
    work: defaultdict[tuple[str, str], list[CachedWorkload]] = defaultdict(list)
    for entry in cache:
        project = entry.workload.meta.project
        if project in projects and (entry.holding or wants_resources(entry.workload)):
            work[project, entry.workload.spec.user].append(entry)
    for (project, _), entries in work.items():
        yield project, entries


def _in_turn(
    cache: WorkloadCache, state: Columns, entries: Sequence[CachedWorkload], limit: int | None
) -> Iterator[tuple[CachedWorkload, int, bool]]:
    """A user's waiting work with what is held before it, and whether it stays within the limit."""
    held = _sum(cache, (one for one in entries if one.holding))
    waiting = (one for one in entries if not one.holding)
    for entry in sorted(waiting, key=lambda one: _turn(one.workload)):
        asked = _most_milli(cache, entry.workload)
        fits = limit is None or not asked or held + asked <= limit or _partly_done(state, entry)
        yield entry, held, fits
        held += asked if fits else 0


def _partly_done(state: Columns, entry: CachedWorkload) -> bool:
    """Whether only the core knows which of the tasks need no place any more."""
    job = state.jobs.by_uid.get(entry.uid)
    return entry.queued and job is not None and bool(job.spec.gated)


def _turn(workload: Workload) -> tuple[int, float, str]:
    return -priority_of(workload), workload.meta.created_at, workload.meta.uid


def _sum(cache: WorkloadCache, entries: Iterable[CachedWorkload]) -> int:
    return sum(_most_milli(cache, one.workload) for one in entries)


def _most_milli(cache: WorkloadCache, workload: Workload) -> int:
    """The most GPU thousandths that the workload can hold."""
    parts = shape.most_parts(workload.spec, cache.largest_gpus)
    return shape.held_by(workload.spec, range(parts)).gpu_milli
