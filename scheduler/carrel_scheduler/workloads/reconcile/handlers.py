"""Event handlers of the reconciler: what each event changes in the cache, the core and the pass.

One event is handled at a time, each as a guarded step (``faults.guarding``): one that fails is set
aside and undone. Handlers change nothing outside the process.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from carrel_scheduler.core.events import QueueRemoved
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.contract import TaskPhase, TaskStatus
from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.policy.inherited_rules import node_groups
from carrel_scheduler.workloads.controllers.manager import Manager
from carrel_scheduler.workloads.faults.deleted_projects import DeletedProjects
from carrel_scheduler.workloads.faults.guarding import GuardedSteps
from carrel_scheduler.workloads.gangs import membership, stalling
from carrel_scheduler.workloads.gangs.stalling import StallRule
from carrel_scheduler.workloads.lifecycle import session_limits, task_events, termination
from carrel_scheduler.workloads.nodes import devices
from carrel_scheduler.workloads.nodes.device_records import DeviceRecords
from carrel_scheduler.workloads.nodes.devices import NodeState, WithheldDevices
from carrel_scheduler.workloads.nodes.gpu_memory import GpuMemoryWatch
from carrel_scheduler.workloads.reconcile import usage_history
from carrel_scheduler.workloads.reconcile.deciding import Timers
from carrel_scheduler.workloads.state import reasons
from carrel_scheduler.workloads.state.cache import (
    CLAIM_SECONDS,
    CachedWorkload,
    WorkloadCache,
    department_event,
    department_queue,
    project_event,
)
from carrel_scheduler.workloads.state.events import (
    BudgetsUsedUp,
    CheckLimits,
    Claimed,
    ClaimRefused,
    CordonEnded,
    DepartmentChanged,
    DevicesSampled,
    LoopEvent,
    MembersMet,
    NodeReported,
    ProjectChanged,
    SpecRead,
    StartRefused,
    StatusChanged,
    StopFailed,
    TaskSeen,
    UsedLately,
    Wake,
    WorkloadChanged,
    WorkloadDeleted,
    WorkloadEvent,
)
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_scheduler.workloads.state.phases import FINAL
from carrel_schema.kinds import COMPOSITES
from carrel_schema.objects import Department, Project, Workload, WorkloadSpec

log = logging.getLogger(__name__)


class EventHandlers:
    """See the module.

    Args:
        cache: live workloads, projects and departments.
        state: of the core.
        composites: gets changes of composite workloads and of their parts.
        timers: set for what a change of phase makes due later.
        steps: guards what a handler does for several workloads.
        deleted_projects: drains projects that are deleted.
        withheld: devices of tasks that no live workload owns.
        publish: writes a workload as it is now to the event stream.
        gpu_memory: watches what work holds of shared GPUs.
        stall_rule: when gangs count as standing still.

    Attributes:
        nodes: facts and use of nodes by name.
        known_devices: which GPU has which index.
        input_version: the newest version of a workload that was handled.
    """

    def __init__(
        self,
        cache: WorkloadCache,
        state: State,
        *,
        composites: Manager,
        timers: Timers,
        steps: GuardedSteps,
        deleted_projects: DeletedProjects,
        withheld: WithheldDevices,
        publish: Callable[[str, Workload], None],
        gpu_memory: GpuMemoryWatch,
        stall_rule: StallRule,
    ) -> None:
        self._cache, self._state = cache, state
        self._composites, self._timers, self._steps = composites, timers, steps
        self._deleted_projects, self._withheld, self._publish = deleted_projects, withheld, publish
        self._gpu_memory, self._stall_rule = gpu_memory, stall_rule
        self.nodes: dict[str, NodeState] = {}
        self.known_devices = DeviceRecords()
        self.input_version = 0
        self._placed: tuple[int, Mapping[str, Sequence[CachedWorkload]]] = (-1, {})

    def handle(self, changes: PassChanges, event: LoopEvent) -> None:
        """Handle one event."""
        match event:
            case WorkloadChanged(change):
                self._workload_changed(changes, change)
            case ProjectChanged(change):
                self._project_changed(changes, change)
            case DepartmentChanged(change):
                self._department_changed(change)
            case TaskSeen(task):
                self._task_seen(changes, task)
            case StartRefused(task_id, text, elsewhere):
                log.warning("task %s could not be started: %s", task_id, text)
                task_events.start_failed(changes, task_id, text, elsewhere=elsewhere)
                self._follow_up(changes, task_id.workload_uid)
            case DevicesSampled() | NodeReported() | CordonEnded():
                self._of_devices(changes, event)
            case ExternalEvents(news):
                changes.external_pods.handle(news, changes.now)
                devices.follow_groups(changes, self.nodes, self._withheld)
                task_events.follow_disruptions(changes)
            case UsedLately(average):
                usage_history.take(self._state, average)
            case BudgetsUsedUp(scopes):
                self._cache.used_up = scopes
            case Wake():
                pass
            case _:
                entry = self._cache.get(event.uid)
                if entry is not None:
                    self._of_workload(changes, entry, event)

    def _of_workload(
        self, changes: PassChanges, entry: CachedWorkload, event: WorkloadEvent
    ) -> None:
        match event:
            case SpecRead():
                follow_specification(changes, entry)
            case WorkloadDeleted():
                termination.object_gone(changes, entry)
            case StatusChanged():
                changes.mark(entry)
                self._apply_limits(changes, entry)
            case CheckLimits():
                self._apply_limits(changes, entry)
            case Claimed():
                if entry.claimed and entry.workload.status.phase == "starting":
                    changes.start(entry, entry.tasks)
            case ClaimRefused(_, text):
                if entry.claim_until is not None:
                    name = entry.workload.meta.name
                    log.warning("the Hub did not start workspace %s: %s", name, text)
                    termination.stop_for(changes, entry, reasons.not_claimed(0.0))
            case MembersMet(_, members):
                membership.joined(entry, members)
            case StopFailed(task_id, text):
                task_events.stop_failed(changes, entry, task_id, text)

    def _workload_changed(self, changes: PassChanges, change: Change[Workload]) -> None:
        self.input_version = max(self.input_version, change.version)
        workload = change.object
        entry = self._cache.get(workload.meta.uid)
        if change.type is ChangeType.DELETED:
            if entry is not None:
                log.warning("workload %s was removed by force: its tasks end", workload.meta.name)
                termination.object_gone(changes, entry)
            return
        if workload.spec.kind in COMPOSITES:
            self._composites.changed(workload)
            return
        if entry is None:
            if workload.status.phase in FINAL and not workload.spec.delete:
                return
            entry = add_workload(changes, workload)
            self._publish("workload", workload)
        elif workload.meta.resource_version <= entry.workload.meta.resource_version:
            return
        else:
            before = entry.workload.spec
            opened = before.routes != workload.spec.routes
            entry.workload.meta, entry.workload.spec = workload.meta, workload.spec
            if queue_facts(before) != queue_facts(workload.spec) and entry.queued:
                changes.requeue(entry)
            if opened:
                self._publish("workload", entry.workload)
        follow_specification(changes, entry)
        self._apply_limits(changes, entry)

    def _project_changed(self, changes: PassChanges, change: Change[Project]) -> None:
        project = change.object
        name = project.meta.name
        if change.type is ChangeType.DELETED or project.meta.deleting:
            self._deleted_projects.begin(changes, project)
            return
        self._deleted_projects.end(changes.cache, name)
        self._state.apply(project_event(project, self._cache.departments))
        self._cache.projects[name] = project
        self._cache.outdated = True
        changes.external_pods.project_changed(name)
        for entry in self._cache:
            if entry.workload.meta.project != name:
                continue
            if session_limits.watched(entry):
                self._timers.set(changes.now, entry.uid)
            elif lacks_project(entry):
                changes.enqueue(entry)

    def _department_changed(self, change: Change[Department]) -> None:
        """Handle a change of a department; the projects of an unknown one have no queue above."""
        department, known = change.object, self._cache.departments
        name = department.meta.name
        if change.type is ChangeType.DELETED:
            if known.pop(name, None) is not None:
                self._move_projects(name)
                self._state.apply(QueueRemoved(department_queue(name)))
            return
        new = name not in known
        self._cache.outdated = True
        self._state.apply(department_event(department))
        known[name] = department
        if new:
            self._move_projects(name)

    def _move_projects(self, department: str) -> None:
        for project in self._cache.projects.values():
            if project.spec.department == department:
                self._state.apply(project_event(project, self._cache.departments))

    def _task_seen(self, changes: PassChanges, task: TaskStatus) -> None:
        if task.phase is TaskPhase.ENDED and task.id in self._withheld.tasks:
            self._withheld.ended(task.id, self._state)
        task_events.on_task(changes, task)
        self._follow_up(changes, task.id.workload_uid)

    def _follow_up(self, changes: PassChanges, uid: str) -> None:
        """Set the timers that follow from a change of phase."""
        entry = self._cache.get(uid)
        if entry is None:
            return
        for when in (entry.workload.status.not_before, entry.meet_until):
            if when is not None:
                self._timers.set(when, uid)
        self._apply_limits(changes, entry)

    def _of_devices(
        self, changes: PassChanges, event: DevicesSampled | NodeReported | CordonEnded
    ) -> None:
        match event:
            case DevicesSampled(facts, use):
                devices.observe(changes, self.nodes, facts, use, self._withheld, self.known_devices)
                self._gpu_memory.look(changes, facts, use, changes.cache.holding)
                self._devices_read(changes, tuple(self._cache.holding))
            case NodeReported(name, report, known_gpus):
                node = self.nodes.get(name)
                if node is not None:  # else it has left the cluster
                    here = self._on_nodes(changes).get(name, ())
                    devices.take_report(changes, node, report, self._withheld, here, known_gpus)
                    self._gpu_memory.look(changes, node.seen_facts(), node.use.values(), here)
                    self._devices_read(changes, here)
            case CordonEnded(name, index):
                self._uncordon(name, index)

    def _uncordon(self, name: str, index: int) -> None:
        node = self.nodes.get(name)
        if node is not None and index < len(node.facts.devices):
            device = node.hardware(node.facts.devices[index])
            if self._withheld.uncordon(name, device, self._state):
                log.warning("GPU %d of %s was returned to service by an admin", index, name)

    def _on_nodes(self, changes: PassChanges) -> Mapping[str, Sequence[CachedWorkload]]:
        """Work by the nodes that it holds places on; made once a pass, for all its reports."""
        if self._placed[0] != changes.number:
            found: dict[str, list[CachedWorkload]] = {}
            for entry in self._cache.holding:
                for node in {place.node for place in entry.places.values()}:
                    found.setdefault(node, []).append(entry)
            self._placed = (changes.number, found)
        return self._placed[1]

    def _devices_read(self, changes: PassChanges, here: Sequence[CachedWorkload]) -> None:
        for entry in here:
            with self._steps.step(changes, "message", entry.uid, entry.uid):
                stalling.check(changes, entry, self._stall_rule)
                if session_limits.resumed_work(entry, changes.now):
                    self._apply_limits(changes, entry)

    def observe_nodes_again(self, changes: PassChanges) -> None:
        """Handle all known nodes again, after the recovery of all workloads."""
        for node in tuple(self.nodes.values()):
            with self._steps.step(changes, "node", node.facts.name):
                devices.observe(
                    changes, self.nodes, node.facts, (), self._withheld, self.known_devices
                )

    def node_known(self, facts: NodeFacts) -> None:
        """Handle a node of a cluster that is new or has other hardware."""
        self.nodes[facts.name] = devices.known_as(self.nodes.get(facts.name), facts)
        self._cache.node_seen(facts)

    def follow_rules(self, changes: PassChanges) -> None:
        """Queue waiting work again where rules of its project, or what GPUs there are, changed."""
        if not self._cache.outdated:
            return
        self._cache.outdated = False
        projects = self._cache.projects
        changes.external_pods.allow_groups(
            {name: node_groups(*self._cache.rules_of(name)) for name in projects},
            {name: one.spec.department for name, one in projects.items() if one.spec.department},
        )
        for entry in tuple(self._cache):
            if entry.queued and not entry.holding:
                with self._steps.step(changes, "message", entry.uid, entry.uid):
                    changes.queue_again(entry)

    def due(self, changes: PassChanges, uids: Sequence[str]) -> None:
        """Handle the timers that are due."""
        for uid in uids:
            entry = self._cache.get(uid)
            if entry is not None:
                with self._steps.step(changes, "message", uid, uid):
                    self._timer(changes, entry)

    def _timer(self, changes: PassChanges, entry: CachedWorkload) -> None:
        status = entry.workload.status
        membership.end_unless_joined(changes, entry)
        termination.mark_stuck(changes, entry)
        if (
            status.phase == "pending"
            and status.not_before is not None
            and status.not_before <= changes.now
        ):
            status.not_before = None
            changes.enqueue(entry)
            changes.mark(entry)
        elif entry.claim_until is not None and entry.claim_until <= changes.now:
            reason = reasons.not_claimed(CLAIM_SECONDS)
            termination.stop_for(changes, entry, reason)
        else:
            self._apply_limits(changes, entry)

    def _apply_limits(self, changes: PassChanges, entry: CachedWorkload) -> None:
        if entry.workload.status.phase != "running":
            return
        again = session_limits.apply(changes, entry)
        if again is not None and not changes.now < entry.look_at <= again:
            entry.look_at = again
            self._timers.set(again, entry.uid)


def add_workload(changes: PassChanges, workload: Workload) -> CachedWorkload:
    """Add a new workload to the cache and queue it, unless it is suspended."""
    entry = changes.cache.add(workload)
    workload.status.observed_generation = workload.meta.generation
    if workload.status.phase == "pending" and not asks_for_end(workload):
        changes.enqueue(entry)
    return entry


def asks_for_end(workload: Workload) -> bool:
    """Whether the specification asks to stop or delete the workload."""
    return workload.spec.suspend or workload.spec.delete


def wants_resources(workload: Workload) -> bool:
    """Whether the workload is to run, and has no resources yet."""
    wants = workload.status.phase == "pending" and not asks_for_end(workload)
    return wants and workload.status.not_before is None


def queue_facts(spec: WorkloadSpec) -> tuple[object, ...]:
    """The fields of a specification that decide its place in the queue and may change."""
    return spec.priority, spec.preemptible, spec.tasks, spec.elastic


def lacks_project(entry: CachedWorkload) -> bool:
    """Whether it wants to run and is not in the core's queue: its project was not known.

    Or other work has to end before.
    """
    return wants_resources(entry.workload) and not entry.queued


def follow_specification(changes: PassChanges, entry: CachedWorkload) -> None:
    """Act on a changed specification: delete, stop, resume or requeue the workload."""
    workload = entry.workload
    status, spec = workload.status, workload.spec
    if status.observed_generation != workload.meta.generation:
        status.observed_generation = workload.meta.generation
        changes.mark(entry)
    if spec.delete:
        termination.delete(changes, entry)
    elif spec.suspend:
        termination.stop(changes, entry, reasons.suspended(spec), spec.grace_seconds)
    elif status.phase == "stopped" and spec.resumes > status.observed_resumes:
        _resume(changes, entry)
    elif spec.after and lacks_project(entry):
        status.reason = None
        changes.enqueue(entry)


def _resume(changes: PassChanges, entry: CachedWorkload) -> None:
    status = entry.workload.status
    status.observed_resumes = entry.workload.spec.resumes
    status.failures = status.losses = 0
    status.failed_nodes = status.failed_devices = ()
    if status.reason is not None and status.reason.token == reasons.TIMED_OUT:
        status.ran_seconds = 0.0
    status.ended_at = None
    status.not_before = None
    changes.move(entry, "pending")
    changes.enqueue(entry)
