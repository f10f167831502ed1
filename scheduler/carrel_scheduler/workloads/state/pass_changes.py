"""The changes of one reconcile pass: recorded in one transaction, then carried out.

Handlers change entries and the core's state through a ``PassChanges`` only, so that every change of
phase goes through the table, leaves its row, and nothing reaches the engine before it is recorded.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from carrel_scheduler.core.events import (
    Outcome,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadRemoved,
)
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.contract import LATE_SECONDS, TaskId
from carrel_scheduler.engines.external import ExternalPods
from carrel_scheduler.engines.gpu_models import place_of
from carrel_scheduler.ledger.records import Decision, Transition
from carrel_scheduler.workloads.state import reasons, shape
from carrel_scheduler.workloads.state.cache import (
    CachedWorkload,
    Place,
    WorkloadCache,
    queued_event,
)
from carrel_scheduler.workloads.state.phases import (
    FINAL,
    HOLDING,
    TRANSITIONS,
    IllegalTransition,
)
from carrel_scheduler.workloads.state.ports import FixedPorts, PortAllocator
from carrel_schema.history import PlaceUse
from carrel_schema.objects import Phase, ReasonInfo, TaskInfo
from carrel_schema.sections import Route


@dataclass(frozen=True, slots=True)
class Stop:
    """Order to the engine: end a task; ``why`` for an eviction."""

    task: TaskId
    grace_seconds: float
    why: ReasonInfo | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Order to the engine: start tasks of a workload, by index."""

    uid: str
    tasks: tuple[int, ...]


@dataclass(slots=True)
class PassChanges:
    """The changes of one pass.

    Attributes:
        dirty: entries whose status is to be written, by uid.
        starts: tasks of present attempts that the engine is to start.
        finished: uids at an end, dropped from the cache once recorded.
        removed: uids whose object is to be deleted.
        wake_hub: uids of workspaces that got their allocation, to be started through the Hub.
        queued: uids that began to wait in the core's queue.
        wakes: timers to set, by time and uid.
        unrecorded: uids whose part of the pass could not be written: nothing of them is started.
        ports: who chooses the ports of tasks.
        external_pods: what is not in the cache may be one of their PodGroups.
    """

    now: float
    epoch: int
    number: int
    input_version: int
    cache: WorkloadCache
    state: State
    external_pods: ExternalPods
    dirty: dict[str, CachedWorkload] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    forgets: list[TaskId] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    wake_hub: list[str] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)
    wakes: list[tuple[float, str]] = field(default_factory=list)
    unrecorded: set[str] = field(default_factory=set)
    ports: PortAllocator = field(default_factory=FixedPorts)

    def mark(self, entry: CachedWorkload) -> None:
        """Have the entry's status written at the end of the pass."""
        self.dirty[entry.uid] = entry

    def move(self, entry: CachedWorkload, to: Phase, reason: ReasonInfo | None = None) -> None:
        """Change the phase: check the table, write the row, keep the times."""
        status = entry.workload.status
        if to not in TRANSITIONS[status.phase]:
            raise IllegalTransition(entry.uid, status.phase, to)
        before, status.phase, status.reason = status.phase, to, reason
        self.cache.moved(entry)
        if to == "running":
            # Work that starts again with other devices counts as running since it began.
            status.started_at = status.started_at or self.now
            status.first_started_at = status.first_started_at or self.now
        if before in HOLDING and to not in HOLDING and status.started_at is not None:
            status.ran_seconds += max(0.0, self.now - status.started_at)
        if to == "pending":
            status.queued_at = self.now
            status.started_at = None
        if to in FINAL or to == "stopped":
            status.ended_at = self.now
        if to not in HOLDING:
            status.borrowed = False
            status.limits = None
            status.queue_position = None
        self.row(entry, before, to, reason)
        if to in FINAL:
            self.finished.append(entry.uid)

    def row(
        self, entry: CachedWorkload, before: Phase, after: Phase, reason: ReasonInfo | None = None
    ) -> None:
        """Record what the workload holds from now on."""
        meta, spec, status = entry.workload.meta, entry.workload.spec, entry.workload.status
        places = entry.places if after in HOLDING else {}
        held = shape.held_by(spec, places)
        first = next(iter(entry.tasks.values()), None) if places else None
        self.transitions.append(
            Transition(
                at=self.now,
                epoch=self.epoch,
                workload_uid=meta.uid,
                workload=meta.name,
                project=meta.project,
                user=spec.user,
                kind=spec.kind,
                attempt=status.attempt,
                from_phase=before,
                to_phase=after,
                gpu_milli=held.gpu_milli,
                cpu_milli=held.cpu_milli,
                memory_bytes=held.memory_bytes,
                borrowed=status.borrowed,
                node=first.node if first else "",
                places=self._place_use(entry, places),
                devices=first.devices if first else (),
                reason=reason,
            )
        )
        self.mark(entry)

    def _place_use(
        self, entry: CachedWorkload, places: Mapping[int, Place]
    ) -> tuple[PlaceUse, ...]:
        """The workload's allocation, by GPU types and groups of the nodes as they are now."""
        known = {(place.node, place.devices) for place in places.values()}
        where_is = {place: place_of(self.state, *place) for place in known}
        parts: dict[tuple[str, str], list[int]] = {}
        for part, place in places.items():
            parts.setdefault(where_is[place.node, place.devices], []).append(part)
        found = {where: shape.held_by(entry.workload.spec, held) for where, held in parts.items()}
        return tuple(
            PlaceUse(
                gpu_type=gpu_type,
                node_group=node_group,
                gpu_milli=held.gpu_milli,
                cpu_milli=held.cpu_milli,
                memory_bytes=held.memory_bytes,
            )
            for (gpu_type, node_group), held in sorted(found.items())
        )

    def decide(
        self,
        entry: CachedWorkload,
        action: str,
        *,
        place: Place | None = None,
        reason: ReasonInfo | None = None,
    ) -> None:
        """Write down a decision about a workload."""
        meta = entry.workload.meta
        self.decisions.append(
            Decision(
                at=self.now,
                epoch=self.epoch,
                cycle=self.number,
                input_version=self.input_version,
                action=action,
                workload_uid=meta.uid,
                workload=meta.name,
                project=meta.project,
                node=place.node if place else "",
                devices=place.devices if place else (),
                reason=reason,
            )
        )

    def enqueue(self, entry: CachedWorkload, *, done: Sequence[int] = ()) -> None:
        """Put a workload into the core's queue; ``done`` are members that need no place any more.

        Projects and workloads arrive by watches of their own, so a workload may be here first; it
        is queued when its project comes. What holds resources keeps them until its project has
        drained.
        """
        project = entry.workload.meta.project
        drains = entry.holding and project in self.cache.draining
        if entry.queued or not (drains or project in self.cache.projects):
            return
        if entry.workload.spec.blocked_by:
            reason = reasons.waits_for(entry.workload)
            if reason.token == reasons.NEVER_SATISFIED:
                self.move(entry, "failed", reason)
                return
            entry.workload.status.reason = reason
            self.mark(entry)
            return
        event = queued_event(entry.workload, self.cache, done)
        claims = self.external_pods.claims_of(entry.workload)
        self.state.apply(self.external_pods.constrained(event, claims))
        self.external_pods.follow_volumes(entry.uid, claims)
        entry.queued = True
        self.queued.append(entry.uid)
        entry.outdated = False

    def requeue(self, entry: CachedWorkload) -> None:
        """Have the core know what changed: at once while it waits, else when it waits again."""
        if entry.workload.status.phase == "pending":
            self.dequeue(entry)
            self.enqueue(entry)
        else:
            entry.outdated = entry.queued

    def queue_again(self, entry: CachedWorkload) -> None:
        """Bring waiting work in the core's queue in line with the present rules and GPUs."""
        job = self.state.jobs.by_uid.get(entry.uid)
        if job is None or not job.queued or job.rows or job.out:
            return
        event = queued_event(entry.workload, self.cache, sorted(job.spec.gated))
        claims = self.external_pods.claims_of(entry.workload)
        event = self.external_pods.constrained(event, claims)
        if event != replace(job.spec, evicted_at=None):
            self.state.apply(replace(event, evicted_at=job.evicted_at))

    def dequeue(self, entry: CachedWorkload) -> None:
        """Remove a workload that holds nothing from the core."""
        if entry.queued:
            self.state.apply(WorkloadRemoved(entry.uid))
            entry.queued = False

    def place(self, entry: CachedWorkload, part: int, place: Place, at: float) -> None:
        """Record the place of a part."""
        entry.places[part] = place
        slots = place.mig_slots
        self.state.apply(TaskPlaced(entry.uid, part, place.node, place.devices, at, slots))

    def start(self, entry: CachedWorkload, tasks: Iterable[int]) -> None:
        """Have the engine start tasks, once the pass is recorded."""
        indices = tuple(tasks)
        entry.launched = True
        entry.alive.update(indices)
        self.starts.append(Start(entry.uid, indices))

    def stop(
        self, entry: CachedWorkload, task: int, grace_seconds: float, why: ReasonInfo | None = None
    ) -> None:
        """Have the engine end a task."""
        self.stops.append(Stop(entry.task_id(task), grace_seconds, why))

    def release(self, entry: CachedWorkload, part: int, outcome: Outcome) -> None:
        """A part's allocation is free, while others go on."""
        self.state.apply(TaskReleased(entry.uid, part, outcome, self.now))
        del entry.places[part]
        entry.leaving.discard(part)

    def turn_down(self, entry: CachedWorkload, parts: Iterable[int], outcome: Outcome) -> None:
        """Release places that come too late: the workload ends, and this attempt needs no more."""
        for part in sorted(parts):
            self.release(entry, part, outcome)
        entry.turned_down = True

    def release_all(self, entry: CachedWorkload, *, waits: bool = False) -> None:
        """Release all allocations, after all tasks have ended.

        Args:
            entry: the workload.
            waits: it is pending again at once, and keeps its reservation; otherwise it
                leaves the core.
        """
        # Parts that are done or were turned down ask for nothing; if all come again, all ask anew.
        done = any(task.place == "done" for task in entry.workload.status.tasks)
        anew = waits and (done or entry.turned_down or entry.outdated)
        outcome = Outcome.AGAIN if waits and not anew else Outcome.GONE
        for part in sorted(entry.places):
            self.state.apply(TaskReleased(entry.uid, part, outcome, self.now))
        entry.clear()
        if waits and not anew and entry.queued:
            self.queued.append(entry.uid)
            return
        self.dequeue(entry)
        if anew:
            self.enqueue(entry)

    def leave(self, entry: CachedWorkload, parts: Iterable[int]) -> None:
        """Mark parts as terminating from now on."""
        going = sorted(set(parts) - entry.leaving)
        for part in going:
            self.state.apply(TaskReleasing(entry.uid, part))
            entry.leaving.add(part)
        if going:
            entry.gone_by = self.now + entry.workload.spec.grace_seconds + LATE_SECONDS
            self.wakes.append((entry.gone_by, entry.uid))

    def evict_all(
        self, entry: CachedWorkload, grace_seconds: float, why: ReasonInfo | None = None
    ) -> None:
        """Evict all running tasks; all parts are terminating from now on."""
        self.leave(entry, entry.places)
        for task in sorted(entry.alive):
            self.stop(entry, task, grace_seconds, why)

    def show_tasks(self, entry: CachedWorkload) -> None:
        """Write the tasks' places into the status, before any of them runs."""
        entry.workload.status.tasks = [
            self._info(entry, index, place) for index, place in entry.tasks.items()
        ]
        self.mark(entry)

    def show_more_tasks(self, entry: CachedWorkload, indices: Iterable[int]) -> None:
        """Write the places of additional tasks into the status."""
        known = {task.index: task for task in entry.workload.status.tasks}
        places = entry.tasks
        known |= {index: self._info(entry, index, places[index]) for index in indices}
        self.put_tasks(entry, known.values())

    def put_tasks(self, entry: CachedWorkload, tasks: Iterable[TaskInfo]) -> None:
        """Write the state of all tasks into the status."""
        entry.workload.status.tasks = sorted(tasks, key=lambda one: one.index)
        self.mark(entry)

    def _info(self, entry: CachedWorkload, index: int, place: Place) -> TaskInfo:
        return TaskInfo(
            index=index,
            attempt=entry.attempt_of(index),
            node=place.node,
            devices=place.devices,
            mig_slots=place.mig_slots,
            ports=self._ports(entry, index),
        )

    def _ports(self, entry: CachedWorkload, index: int) -> dict[str, int]:
        """Ports for the routes of a task, by name; the first of a gang has one to meet at."""
        spec = entry.workload.spec
        routes = list(spec.routes)
        routes += [Route(name=name) for name in shape.own_ports(spec, index)]
        if not routes:
            return {}
        return self.ports.give(entry.task_id(index), routes, self.cache.ports())
