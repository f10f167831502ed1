"""The workload cache: the reconciler's view of live workloads, projects and departments.

A ``CachedWorkload`` is one workload that is not at an end: its stored object, and what only the
running scheduler needs beside it. The cache is rebuilt from the ledger and the engine at every
start.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from carrel_scheduler.core.events import QueueSet, WorkloadQueued
from carrel_scheduler.core.mig import has_profile
from carrel_scheduler.core.resources import MIB, MILLI, UNLIMITED, ResourceVector
from carrel_scheduler.core.settings import NAMED
from carrel_scheduler.engines import gpu_models
from carrel_scheduler.engines.contract import TaskId, TaskStatus
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.policy import inherited_rules
from carrel_scheduler.workloads.contract import Activity
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.gpu_account import GpuAccount
from carrel_scheduler.workloads.state.gpu_series import GpuSeries
from carrel_scheduler.workloads.state.phases import HOLDING
from carrel_schema.kinds import KINDS
from carrel_schema.objects import (
    Department,
    DepartmentSpec,
    Project,
    ProjectSpec,
    Quota,
    Workload,
)

LOWEST: Final = min(NAMED.values())
"""The priority of work under a budget that is used up, where the budget lowers it."""
CLAIM_SECONDS: Final = 120.0
"""Seconds for which the allocation of a workspace waits for the Hub."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one part of the present attempt; see ``gangs`` for parts and tasks.

    ``mig_slots`` are the memory slots, as bits, that it has of a divided device.
    """

    node: str
    devices: tuple[int, ...]
    mig_slots: int = 0


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A reading of a workload's GPUs on a node, with its time.

    ``utilization`` is the sum over its GPUs, each 0..1.
    """

    at: float
    working: bool
    utilization: float
    memory_used_mib: int


@dataclass(slots=True)
class CachedWorkload:
    """A live workload.

    Attributes:
        places: by part, while it holds resources.
        leaving: parts that are terminating; ``gone_by``: when the latest of them
            counts as stuck, ``None`` once all do.
        attempts: the attempt of tasks that did not begin with the others, by index.
        alive: tasks whose start was ordered and that have not ended.
        ended: how tasks of the present attempt ended, by index, but for those that had to leave.
        ending: the gang is over, and all members that still run are terminating.
        resizing: its task is terminating, to start again with other devices.
        outdated: the core has it in its queue as it was before a change of its specification.
        turned_down: places came too late, and were given back to the core.
        joined: members that have met the others; ``meet_until``: when those who have not are given
            up, ``None`` once nobody is waited for.
        queued: whether the core has it in its queue.
        launched: whether the engine was asked to start the present attempt.
        claim_until: until when the allocation of a workspace waits for the Hub.
        claimed: whether the Hub has come for the present attempt.
        gpu_active_at: when one of its GPUs last worked.
        gpu_readings: by node, the last reading of its GPUs; see ``state.gpu_use``.
        gpu_series: what its GPUs did since it is known here.
        reported_at: when its job last reported something.
        hear_until: until when a first heartbeat is waited for before it may count as idle.
        visited_at: when somebody last came through the gateway; 0: nobody yet.
        look_at: when its limits are checked next.
        gone: its object was removed by force: its tasks end, and nothing can be written on it.
    """

    workload: Workload
    places: dict[int, Place] = field(default_factory=dict)
    leaving: set[int] = field(default_factory=set)
    gone_by: float | None = None
    attempts: dict[int, int] = field(default_factory=dict)
    alive: set[int] = field(default_factory=set)
    ended: dict[int, TaskStatus] = field(default_factory=dict)
    ending: bool = False
    resizing: bool = False
    turned_down: bool = False
    outdated: bool = False
    joined: set[int] = field(default_factory=set)
    meet_until: float | None = None
    queued: bool = False
    launched: bool = False
    claim_until: float | None = None
    claimed: bool = False
    activity: Activity | None = None
    gpu_active_at: float = 0.0
    gpu_readings: dict[str, GpuReading] = field(default_factory=dict)
    gpu_series: GpuSeries = field(default_factory=GpuSeries)
    reported_at: float = 0.0
    hear_until: float = 0.0
    visited_at: float = 0.0
    look_at: float = 0.0
    gone: bool = False

    @property
    def uid(self) -> str:
        """The workload's uid."""
        return self.workload.meta.uid

    @property
    def holding(self) -> bool:
        """Whether the workload holds resources now."""
        return self.workload.status.phase in HOLDING

    def attempt_of(self, index: int) -> int:
        """The present attempt of a task."""
        return self.attempts.get(index, self.workload.status.attempt)

    def task_id(self, index: int) -> TaskId:
        """The id of a task of the present attempt."""
        return TaskId(self.uid, index, self.attempt_of(index))

    @property
    def tasks(self) -> dict[int, Place]:
        """The place of each task, in order of index."""
        return self._of_tasks(self.places)

    @property
    def wanted(self) -> dict[int, Place]:
        """The places of the tasks, without the parts that the workload is releasing."""
        return self._of_tasks(part for part in self.places if part not in self.leaving)

    def _of_tasks(self, parts: Iterable[int]) -> dict[int, Place]:
        places = {part: self.places[part] for part in sorted(parts)}
        if not places or not shape.resizes(self.workload.spec):
            return places
        devices = tuple(device for place in places.values() for device in place.devices)
        return {0: Place(next(iter(places.values())).node, devices)}

    def clear(self) -> None:
        """Forget the present attempt."""
        for what in (self.places, self.attempts, self.ended, self.gpu_readings):
            what.clear()
        for who in (self.leaving, self.alive, self.joined):
            who.clear()
        self.ending = self.resizing = self.turned_down = self.launched = self.claimed = False
        self.claim_until = self.meet_until = self.gone_by = None

    @property
    def needs_claim(self) -> bool:
        """Whether the next start waits for the Hub's claim: the workspace was queued, or restarts.

        The command and tokens of the Hub's workspaces, which get a port, are good for one
        start only; interactive work from elsewhere brings a command that can be run again.
        """
        spec = self.workload.spec
        again = self.workload.status.attempt > 0 and spec.port is not None
        first_time = spec.hold_for_claim or not (spec.command or spec.external)
        return spec.kind == "workspace" and not self.claimed and (first_time or again)


class WorkloadCache:
    """Live workloads by uid, projects and departments by name.

    ``queue`` gives the uids of all pending workloads in their order; the reconciler sets it.
    ``largest_gpus``: how many GPUs the largest node has. ``gpu_models``: of all nodes;
    ``gpu_mixes``: labels of those whose GPUs are unlike.
    ``outdated``: where waiting work may run has changed since it was queued. ``draining``: names
    of projects that are deleted and still hold resources. ``counted_nodes``: names of nodes of
    whose GPUs only the number is known. ``used_up``: scopes of budgets at whose end the priority is
    lowered, and that have ended; ``some_lowered``: it may be that of some workload.
    """

    def __init__(self) -> None:
        self._entries: dict[str, CachedWorkload] = {}
        self._holding: dict[str, CachedWorkload] = {}
        self.gpu_account = GpuAccount()
        self.projects: dict[str, Project] = {}
        self.draining: set[str] = set()
        self.departments: dict[str, Department] = {}
        self.queue: Callable[[], Sequence[str]] = tuple
        self._ranked: tuple[Sequence[str], dict[str, int]] = ((), {})
        self.fair_share: dict[str, int] = {}
        self.largest_gpus = 0
        self.counted_nodes: set[str] = set()
        self.gpu_models: frozenset[str] = frozenset()
        self.gpu_mixes: frozenset[str] = frozenset()
        self._divided: dict[str, str] = {}
        self.outdated = False
        self.used_up: frozenset[str] = frozenset()
        self.some_lowered = True

    def __iter__(self) -> Iterator[CachedWorkload]:
        """The entries in the order in which they were added."""
        return iter(self._entries.values())

    def node_seen(self, facts: NodeFacts) -> None:
        """A node appeared, or has other hardware."""
        self.largest_gpus = max(self.largest_gpus, len(facts.devices))
        (self.counted_nodes.add if facts.counted else self.counted_nodes.discard)(facts.name)
        here = gpu_models.of_node(device.name for device in facts.devices)
        models, mixes = self.gpu_models | here, self.gpu_mixes
        if len(here) > 1:
            mixes |= {gpu_models.label_of(here)}
        self.outdated |= (models, mixes) != (self.gpu_models, self.gpu_mixes)
        self.gpu_models, self.gpu_mixes = models, mixes
        if facts.devices and self._divided.get(facts.name) != facts.mig_model:
            before = set(self._divided.values())
            self._divided[facts.name] = facts.mig_model
            self.outdated |= bool((set(self._divided.values()) ^ before) - {""})

    @property
    def mig_model(self) -> str:
        """The model into whose MIG instances all GPUs are divided on demand; empty for none."""
        models = set(self._divided.values())
        return models.pop() if len(models) == 1 else ""

    @property
    def limits_users(self) -> bool:
        """Whether some project limits the GPUs of each of its users."""
        return any(one.spec.max_gpus_per_user is not None for one in self.projects.values())

    def divides(self, profile: str) -> bool:
        """Whether MIG instances of a profile are made on demand on some node."""
        return bool(profile) and any(has_profile(one, profile) for one in self._divided.values())

    def rules_of(self, name: str) -> tuple[ProjectSpec, DepartmentSpec | None]:
        """The rules of a project, with those of its department; an unknown one has none."""
        known = self.projects.get(name)
        if known is None:
            return ProjectSpec(), None
        above = self.departments.get(known.spec.department)
        return known.spec, None if above is None else above.spec

    def ports(self) -> set[int]:
        """The ports of all tasks that hold resources."""
        infos = (info for entry in self._holding.values() for info in entry.workload.status.tasks)
        return {port for info in infos for port in info.ports.values()}

    def get(self, uid: str) -> CachedWorkload | None:
        """The entry of a live workload."""
        return self._entries.get(uid)

    def add(self, workload: Workload) -> CachedWorkload:
        """Take a workload in."""
        entry = CachedWorkload(workload)
        self._entries[workload.meta.uid] = entry
        self.moved(entry)
        return entry

    def moved(self, entry: CachedWorkload) -> None:
        """Handle a changed phase: the workload may now hold resources, or none any more."""
        if entry.holding:
            self._holding[entry.uid] = entry
        else:
            self._holding.pop(entry.uid, None)

    @property
    def holding(self) -> Iterable[CachedWorkload]:
        """The entries of workloads that hold resources."""
        return self._holding.values()

    @property
    def positions(self) -> Mapping[str, int]:
        """Positions in the queue, from 1; computed on demand."""
        queue = self.queue()
        if self._ranked[0] is not queue:
            ranks = {uid: place for place, uid in enumerate(queue, start=1)}
            self._ranked = (queue, ranks)
        return self._ranked[1]

    def refresh_positions(self) -> None:
        """Compute the positions of the present queue; ``latest_positions`` has them afterwards."""
        _ = self.positions

    @property
    def latest_positions(self) -> Mapping[str, int]:
        """Positions in the queue as last computed, at the latest with the reasons of waiting work.

        Nothing is decided for them, so they may be read for every request.
        """
        return self._ranked[1]

    def drop(self, uid: str) -> None:
        """Remove an ended workload."""
        self._entries.pop(uid, None)
        self._holding.pop(uid, None)

    def workspace(self, user: str, server_name: str) -> CachedWorkload | None:
        """The workspace of that user and server name that holds resources, if any."""
        for entry in self.holding:
            spec = entry.workload.spec
            if spec.kind == "workspace" and spec.user == user and spec.server_name == server_name:
                return entry
        return None


def priority_of(workload: Workload) -> int:
    """The number the core sorts by."""
    own = _own_priority(workload)
    return min(own, LOWEST) if workload.status.lowered_by else own


def _own_priority(workload: Workload) -> int:
    value = workload.spec.priority
    if isinstance(value, int):
        return value
    if value in NAMED:
        return NAMED[value]
    if workload.spec.kind == "workspace" and workload.spec.preemptible:
        return NAMED["build-preemptible"]
    return NAMED[KINDS[workload.spec.kind].priority]


def quota_amounts(quota: Quota) -> ResourceVector:
    """A quota or limit in the core's units."""
    return ResourceVector(
        UNLIMITED if quota.gpu_milli is None else quota.gpu_milli,
        UNLIMITED if quota.cpu_milli is None else quota.cpu_milli,
        UNLIMITED if quota.memory_bytes is None else quota.memory_bytes // MIB,
    )


def queued_event(
    workload: Workload, cache: WorkloadCache, done: Sequence[int] = ()
) -> WorkloadQueued:
    """The event that adds a workload to the core's queue.

    Args:
        workload: that waits.
        cache: knows the rules of its project, and what GPUs there are.
        done: tasks that have ended well and need no place again in this attempt.
    """
    meta, spec = workload.meta, workload.spec
    project, department = cache.rules_of(meta.project)
    if department is not None:
        project = inherited_rules.with_department(project, department)
    spread = None if project.placement is None else project.placement == "spread"
    where = shape.where_of(spec, cache.gpu_models, spread, workload.status, mixes=cache.gpu_mixes)
    divides = _is_made(workload, cache)
    return WorkloadQueued(
        uid=meta.uid,
        name=meta.name,
        project=meta.project,
        user=spec.user,
        priority=priority_of(workload),
        preemptible=shape.preemptibility(workload),
        request=shape.request_of(spec, where, divides=divides),
        tasks=spec.tasks,
        created_at=meta.created_at,
        interactive=spec.kind == "workspace",
        gang=shape.group_of(spec, cache.largest_gpus, len(done), where, divides=divides),
        preemption_delay_s=project.preemption_delay_seconds or 0.0,
        gated=frozenset(done),
        moves_to_preferred=spec.move_to_better_type,
    )


def _is_made(workload: Workload, cache: WorkloadCache) -> bool:
    """Whether its MIG instances are made on demand: as those that it has, if it has some."""
    held = [info for info in workload.status.tasks if info.place in ("held", "leaving")]
    profile = workload.spec.resources.mig_profile
    if held and profile:
        return any(info.mig_slots for info in held)
    return cache.divides(profile)


DEPARTMENT: Final = "department/"


def department_queue(name: str) -> str:
    """The core's name of a department, which no project can have."""
    return f"{DEPARTMENT}{name}"


def department_of(queue: str) -> str:
    """The department that is called so in the core; empty for the name of a project."""
    return queue.removeprefix(DEPARTMENT) if queue.startswith(DEPARTMENT) else ""


def department_event(department: Department) -> QueueSet:
    """The event that makes a department a queue of the core."""
    return _queue(department_queue(department.meta.name), department)


def project_event(project: Project, departments: Container[str] = ()) -> QueueSet:
    """The event that makes a project a queue of the core.

    Args:
        project: its rules.
        departments: names of those that are known; a project of another one belongs to none yet.
    """
    department = project.spec.department
    parent = department_queue(department) if department in departments else ""
    event = _queue(project.meta.name, project, parent)
    return replace(event, fair_users=project.spec.user_order == "fair-share")


def _queue(name: str, rules: Project | Department, parent: str = "") -> QueueSet:
    spec = rules.spec
    return QueueSet(
        name=name,
        parent=parent,
        quota=quota_amounts(spec.quota),
        limit=quota_amounts(spec.limit),
        weight=None if spec.weight is None else (spec.weight * MILLI,) * 3,
        rank=spec.rank,
        over_quota=spec.over_quota,
        created_at=rules.meta.created_at,
        preempt_min_runtime_s=spec.preempt_min_runtime_seconds,
        reclaim_min_runtime_s=spec.reclaim_min_runtime_seconds,
        reservation_delay_s=spec.reservation_delay_seconds,
        group_limits=_by_group(spec.node_group_limits),
        group_quotas=_by_group(spec.node_group_quotas),
    )


def _by_group(gpus: Mapping[str, float]) -> tuple[tuple[str, int], ...]:
    return tuple((group, round(amount * MILLI)) for group, amount in sorted(gpus.items()))
