"""The one loop: drain messages, apply, decide, record, act. It sleeps until something happens.

* Recorded before done: a turn's changes are one ledger transaction, and the engine hears of them
  only after it is durable. Whoever restarts finds in the ledger what may have happened and asks the
  engine what did.
* One writer: only this loop writes status, and only here the core's state changes.
* A write that meets a newer specification reads it and writes again; a write that meets a newer
  scheduler (``Fenced``) ends the process, as does any failure of the ledger: the next start
  recovers, whereas going on would mean acting on what is not recorded.
* No input ends it: each message, timer and step of a plan is handled by itself, and what fails is
  set aside (``faults``) while everything else goes on.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.settings import DEFAULTS, Settings
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.contract import TaskPhase, TaskStatus
from carrel_scheduler.engines.external import (
    ExternalEvents,
    ExternalPods,
    NoExternalPods,
    ReconcilerAccess,
)
from carrel_scheduler.ledger.records import Ledger, MetricPoint
from carrel_scheduler.ledger.storage import StorageFull
from carrel_scheduler.ledger.store import ChangeType
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads import departments
from carrel_scheduler.workloads.cache import CachedWorkload, WorkloadCache, project_event
from carrel_scheduler.workloads.controllers.manager import Manager
from carrel_scheduler.workloads.faults.audit import Audit
from carrel_scheduler.workloads.faults.decisions import Deciding
from carrel_scheduler.workloads.faults.deleted_projects import Draining
from carrel_scheduler.workloads.faults.guarding import FATAL, Handling
from carrel_scheduler.workloads.faults.rebuilding import Readmission
from carrel_scheduler.workloads.faults.withheld import Withheld
from carrel_scheduler.workloads.gangs import joining
from carrel_scheduler.workloads.launch.ports import FixedPorts, PortGiver
from carrel_scheduler.workloads.lifecycle import (
    disruptions,
    reasons,
    session_limits,
    spec_changes,
    stuck_termination,
    task_events,
)
from carrel_scheduler.workloads.lifecycle.phases import AT_REST
from carrel_scheduler.workloads.nodes import devices
from carrel_scheduler.workloads.nodes.devices import NodeState
from carrel_scheduler.workloads.reconcile import plans, usage_history
from carrel_scheduler.workloads.reconcile.clock_skew import ClockWatch
from carrel_scheduler.workloads.reconcile.events import (
    Claimed,
    ClaimRefused,
    DepartmentChanged,
    DevicesSampled,
    Judge,
    LoopEvent,
    MembersMet,
    ProjectChanged,
    SpecRead,
    StartRefused,
    StopFailed,
    TaskSeen,
    Touched,
    UsedLately,
    Vanished,
    Wake,
    WorkloadChanged,
    WorkloadEvent,
)
from carrel_scheduler.workloads.reconcile.executor import Executor
from carrel_scheduler.workloads.reconcile.explaining import Explaining
from carrel_scheduler.workloads.reconcile.inbox import Inbox
from carrel_scheduler.workloads.reconcile.pacing import Pacing
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges
from carrel_scheduler.workloads.reconcile.recording import Recorder
from carrel_scheduler.workloads.reconcile.reports import PendingReports
from carrel_scheduler.workloads.reconcile.resync import SecondLooks
from carrel_scheduler.workloads.views.contract import LiveEvent, Report
from carrel_scheduler.workloads.views.stream import Stream
from carrel_schema.kinds import COMPOSITES
from carrel_schema.objects import Workload

log = logging.getLogger(__name__)
LONGEST_PAUSE_SECONDS: Final = 30.0
MOST_TURNS_IN_A_ROW: Final = 100
SLOW_TURN_SECONDS: Final = 0.05
"""So long it rests where, turn after turn, something is due at once and nothing is heard."""


class Reconciler:
    """See the module.

    ``clock`` gives epoch seconds; ``executor`` does what was recorded; ``ports`` chooses the
    ports of tasks; ``settings`` are those of the core; ``quarantine``: where inputs go that cannot
    be processed; ``external_pods`` makes what places pods that others made.
    """

    def __init__(
        self,
        ledger: Ledger,
        executor: Executor,
        *,
        clock: Callable[[], float],
        ports: PortGiver | None = None,
        settings: Settings = DEFAULTS,
        quarantine: Quarantine | None = None,
        external_pods: Callable[[ReconcilerAccess], ExternalPods] = lambda _: NoExternalPods(),
    ) -> None:
        self.ledger = ledger
        self.executor = executor
        self.clock = clock
        self.ports = ports or FixedPorts()
        self.state = State(settings)
        self.cache = WorkloadCache()
        self.stream = Stream()
        self.quarantine = quarantine or Quarantine(clock)
        self.readmission = Readmission(self)
        self.handling = Handling(self.quarantine, self.readmission)
        self.withheld = Withheld()
        self.audit = Audit(clock)
        self.draining = Draining(self)
        self.composites = Manager(
            ledger, clock=clock, publish=self.publish, quarantine=self.quarantine
        )
        self.reports = PendingReports()
        self.recorder = Recorder(ledger, self, self.quarantine)
        self.nodes: dict[str, NodeState] = {}
        self.epoch = 0
        self._inbox = Inbox()
        self._timers: list[tuple[float, str]] = []
        self._clock_watch = ClockWatch()
        self._number = 0
        self._input_version = 0
        self._decided: int | None = None
        self._pacing = Pacing(clock)
        self._second_looks = SecondLooks()
        self._deciding = Deciding(
            self.state, self.quarantine, self._not_decidable, lambda now: decide(self.state, now)
        )
        self._explaining = Explaining(clock, self.look)
        self._looked: Plan | None = None
        self.cache.queue = lambda: self.look().queue
        self._borrowing: int | None = None
        self.external_pods = external_pods(
            ReconcilerAccess(
                self.state,
                self._node_known,
                lambda uid: self._explaining.queued([uid]),
                self.quarantine,
                self.cache.draining,
                self.withheld.added_to,
            )
        )
        self._failures = self._in_a_row = 0

    def enqueue(self, message: LoopEvent) -> None:
        """Hand a message to the loop."""
        self._inbox.put(message)

    async def run(self) -> None:
        """Turn for ever; raises what ends a scheduler (``FATAL``) and nothing else."""
        while True:
            await self._something_happened()
            with self.quarantine.guard("message", "turn", fatal=FATAL) as guard:
                await self.turn()
            self._failures = self._failures + 1 if guard.failed else 0
            if guard.failed:
                await asyncio.sleep(min(0.1 * 2.0**self._failures, LONGEST_PAUSE_SECONDS))

    async def turn(self) -> None:
        """One turn over everything that waits now."""
        back = self._clock_watch.look(self, self.clock())
        if back:
            self._set_back(back)
        changes = self.begin()
        try:
            while not self.quiet:
                message = self._inbox.take()
                with self.handling.message(changes, message):
                    self._handle(changes, message)
            self._due_timers(changes)
            self.draining.settle(changes)
            if self.external_pods.reconcile(changes.now):
                self._decided = None
            self._decide(changes)
            await self._explain(changes)
        except Exception:
            for uid in changes.dirty:
                self.readmission.damaged(uid)
            raise
        await self.draining.finish()
        await self.readmission.run()
        self.audit.look(self.state)

    def _set_back(self, seconds: float) -> None:
        self._timers = [(when - seconds, uid) for when, uid in self._timers]
        self._second_looks.set_back(seconds)
        self._deciding.set_back(seconds)
        self.readmission.set_back(seconds)
        self.composites.set_back(seconds)

    async def _explain(self, changes: PassChanges) -> None:
        """Finish the turn, with a slice of the waiters' reasons if it is time for one."""
        explaining = self._explaining
        if not explaining.pending or explaining.pacing.put_off(self.clock()):
            await self.finish(changes)
            return
        with explaining.pacing.measured():
            with self.handling.step(changes, "decision", "reasons"):
                explaining.slice(changes)
            await self.finish(changes)
        if explaining.pending and not explaining.pacing.put_off(self.clock()):
            self.enqueue(Wake())

    def begin(self) -> PassChanges:
        """Open a turn."""
        self._number += 1
        self.external_pods.epoch = self.epoch
        return PassChanges(
            self.clock(),
            self.epoch,
            self._number,
            self._input_version,
            self.cache,
            self.state,
            self.external_pods,
            ports=self.ports,
        )

    async def finish(self, changes: PassChanges) -> None:
        """Record the turn, then act on it and tell the listeners."""
        with self.handling.step(changes, "decision", "borrowing"):
            self._note_borrowing(changes)
        await self._write_last_values(changes)
        async with self.executor.getting_ready(changes, self) as ready:
            version = await self.recorder.record(changes)
        self._input_version = max(self._input_version, version)
        await self._write_reports(changes)
        for uid in changes.unrecorded:
            self.readmission.damaged(uid)
        for uid in (*changes.finished, *changes.removed):
            if uid not in changes.unrecorded:
                self.cache.drop(uid)
                self.readmission.forget(uid)
        for when, uid in changes.wakes:
            self.wake_at(when, uid)
        await self.executor.act(changes, self, ready)
        self.external_pods.act()

    def publish(self, kind: str, workload: Workload, report: Report | None = None) -> None:
        """Tell the listeners of a workload as it is now."""
        if workload.spec.owner:
            self.composites.heard(workload, deleted=kind == "deleted")
        if not self.stream.heard:
            return
        now = msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status))
        version = workload.meta.resource_version
        self.stream.publish(LiveEvent(type=kind, version=version, workload=now, report=report))

    def keep(self, entry: CachedWorkload) -> None:
        """A workspace's limits were extended."""
        self.enqueue(Touched(entry.uid))

    def claimed(self, entry: CachedWorkload, stored: Workload) -> None:
        """The Hub gave a workspace its command; it is launched in the next turn."""
        entry.claim_until = None
        entry.claimed = True
        entry.workload.meta, entry.workload.spec = stored.meta, stored.spec
        self.enqueue(Claimed(entry.uid))

    def wake_at(self, when: float, uid: str) -> None:
        """Look at a workload at that time."""
        heapq.heappush(self._timers, (when, uid))

    @property
    def quiet(self) -> bool:
        """Whether nothing waits to be handled."""
        return self._inbox.empty

    def next_deadline(self) -> float | None:
        """When something falls due by itself."""
        timer = self._timers[0][0] if self._timers else None
        due = (
            timer,
            self.reports.due_at,
            self._deciding.due_at or self._pacing.due_at or self._second_looks.due_at,
            self._explaining.due_at,
            self.readmission.due_at,
            self.external_pods.next_due,
        )
        return min((when for when in due if when is not None), default=None)

    async def _write_last_values(self, changes: PassChanges) -> None:
        """Whoever hears that a workload has come to rest finds its curves complete."""
        for row in changes.transitions:
            last = self.reports.last_of(row.workload_uid) if row.to_phase in AT_REST else []
            if last:
                await self._write_points(row.workload_uid, last)

    async def _write_points(self, uid: str, values: list[MetricPoint]) -> None:
        try:
            with self.quarantine.guard("record", uid, fatal=FATAL):
                await self.ledger.add_metrics(uid, values)
        except StorageFull as error:
            self.quarantine.put("record", uid, error)
            log.warning("%d reported values of %s are lost: %s", len(values), uid, error)

    async def _write_reports(self, changes: PassChanges) -> None:
        """Write what jobs reported, once it has waited long enough."""
        if not self.reports.due(changes.now):
            return
        points, touched = self.reports.empty()
        for uid, values in points.items():
            await self._write_points(uid, values)
        late = self.begin()
        for uid in sorted(touched):
            entry = self.cache.get(uid)
            if entry is not None:
                late.mark(entry)
        await self.recorder.record(late)

    async def _something_happened(self) -> None:
        if not self.quiet:
            return
        deadline = self.next_deadline()
        seconds = None if deadline is None else max(0.0, deadline - self.clock())
        self._in_a_row = self._in_a_row + 1 if seconds == 0.0 else 0
        if self._in_a_row > MOST_TURNS_IN_A_ROW:
            if self._in_a_row == MOST_TURNS_IN_A_ROW + 1:
                log.error("something falls due again and again; the loop turns slower for it")
            seconds = SLOW_TURN_SECONDS
        await self._inbox.wait(seconds)

    def _handle(self, changes: PassChanges, message: LoopEvent) -> None:
        match message:
            case WorkloadChanged():
                self._workload_changed(changes, message)
            case ProjectChanged():
                self._project_changed(changes, message)
            case DepartmentChanged(department):
                departments.changed(self.cache, self.state, department)
            case TaskSeen(task):
                self._task_seen(changes, task)
            case StartRefused(task_id, text, elsewhere):
                log.warning("task %s could not be started: %s", task_id, text)
                task_events.start_failed(changes, task_id, text, elsewhere=elsewhere)
                self._follow_up(changes, task_id.workload_uid)
            case DevicesSampled():
                self._devices_sampled(changes, message)
            case ExternalEvents(events):
                self.external_pods.handle(events, changes.now)
                disruptions.follow(changes)
            case UsedLately(average):
                usage_history.take(self.state, average)
            case Wake():
                pass
            case _:
                entry = self.cache.get(message.uid)
                if entry is not None:
                    self._handle_entry(changes, entry, message)

    def _task_seen(self, changes: PassChanges, task: TaskStatus) -> None:
        if task.phase is TaskPhase.ENDED:
            self.withheld.ended(task.id, self.state)
        task_events.on_task(changes, task)
        self._follow_up(changes, task.id.workload_uid)

    def _devices_sampled(self, changes: PassChanges, message: DevicesSampled) -> None:
        devices.take(changes, self.nodes, message.facts, message.use, self.withheld)
        for busy in filter(session_limits.resumed_work, tuple(self.cache)):
            with self.handling.step(changes, "message", busy.uid, busy.uid):
                self._judge(changes, busy)

    def look_at_nodes(self, changes: PassChanges) -> None:
        """See once more what work is on which nodes, now that all of it is known."""
        for node in tuple(self.nodes.values()):
            with self.handling.step(changes, "node", node.facts.name):
                devices.take(changes, self.nodes, node.facts, (), self.withheld)

    def _handle_entry(
        self, changes: PassChanges, entry: CachedWorkload, message: WorkloadEvent
    ) -> None:
        """Messages about one workload that is live."""
        match message:
            case SpecRead():
                spec_changes.follow(changes, entry)
            case Vanished():
                spec_changes.vanished(changes, entry)
            case Touched():
                changes.mark(entry)
                self._judge(changes, entry)
            case Judge():
                self._judge(changes, entry)
            case Claimed():
                _launch_claimed(changes, entry)
            case ClaimRefused(_, text):
                _claim_refused(changes, entry, text)
            case MembersMet(_, members):
                joining.met(entry, members)
            case StopFailed(task_id, text):
                task_events.stop_failed(changes, entry, task_id, text)

    def _workload_changed(self, changes: PassChanges, message: WorkloadChanged) -> None:
        change = message.change
        self._input_version = max(self._input_version, change.version)
        workload = change.object
        entry = self.cache.get(workload.meta.uid)
        if change.type is ChangeType.DELETED:
            if entry is not None:
                log.warning("workload %s was removed by force: its tasks end", workload.meta.name)
                spec_changes.vanished(changes, entry)
            return
        if workload.spec.kind in COMPOSITES:
            self.composites.heard(workload)
            return
        if entry is None:
            if workload.status.phase in ("succeeded", "failed") and not workload.spec.delete:
                return
            entry = spec_changes.take_in(changes, workload)
            self.publish("workload", workload)
        elif workload.meta.resource_version <= entry.workload.meta.resource_version:
            return
        else:
            opened = entry.workload.spec.routes != workload.spec.routes
            entry.workload.meta, entry.workload.spec = workload.meta, workload.spec
            if opened:
                self.publish("workload", entry.workload)
        spec_changes.follow(changes, entry)

    def _project_changed(self, changes: PassChanges, message: ProjectChanged) -> None:
        project = message.change.object
        name = project.meta.name
        if message.change.type is ChangeType.DELETED or project.meta.deleting:
            self.draining.begin(changes, project)
            return
        self.draining.end(name)
        self.state.apply(project_event(project, self.cache.departments))
        self.cache.projects[name] = project
        self.external_pods.project_changed(name)
        for entry in self.cache:
            if entry.workload.meta.project != name:
                continue
            if session_limits.watched(entry):
                self.wake_at(changes.now, entry.uid)
            elif spec_changes.waits_for_project(entry):
                changes.enqueue(entry)

    def _follow_up(self, changes: PassChanges, uid: str) -> None:
        """Set the timers that a change of phase asks for."""
        entry = self.cache.get(uid)
        if entry is None:
            return
        if entry.workload.status.not_before is not None:
            self.wake_at(entry.workload.status.not_before, uid)
        if entry.meet_until is not None:
            self.wake_at(entry.meet_until, uid)
        self._judge(changes, entry)

    def _judge(self, changes: PassChanges, entry: CachedWorkload) -> None:
        if not session_limits.watched(entry):
            return
        again = session_limits.judge(changes, entry)
        if again is not None and not changes.now < entry.look_at <= again:
            entry.look_at = again
            self.wake_at(again, entry.uid)

    def _due_timers(self, changes: PassChanges) -> None:
        due: set[str] = set()
        while self._timers and self._timers[0][0] <= changes.now:
            due.add(heapq.heappop(self._timers)[1])
        for uid in sorted(due):
            entry = self.cache.get(uid)
            if entry is not None:
                with self.handling.step(changes, "message", uid, uid):
                    self._timer(changes, entry)

    def _timer(self, changes: PassChanges, entry: CachedWorkload) -> None:
        status = entry.workload.status
        joining.due(changes, entry)
        stuck_termination.due(changes, entry)
        if (
            status.phase == "pending"
            and status.not_before is not None
            and status.not_before <= changes.now
        ):
            status.not_before = None
            changes.enqueue(entry)
            changes.mark(entry)
        elif entry.claim_until is not None and entry.claim_until <= changes.now:
            reason = reasons.not_claimed(plans.CLAIM_SECONDS)
            spec_changes.stop_for(changes, entry, reason)
        else:
            self._judge(changes, entry)

    def _node_known(self, facts: NodeFacts) -> None:
        """A node of a cluster is there, or has other hardware."""
        known = self.nodes.get(facts.name)
        self.nodes[facts.name] = devices.known_as(known, facts)
        self.cache.largest_gpus = max(self.cache.largest_gpus, len(facts.devices))

    def look(self) -> Plan:
        """What would be decided now; kept until the state changes. Never carried out."""
        if self._looked is None or self._looked.version != self.state.version:
            self._looked = decide(self.state, self.clock())
        return self._looked

    def _decide(self, changes: PassChanges) -> None:
        self._explaining.queued(changes.queued)
        self._deciding.queued(changes.queued)
        if self._decided == self.state.version and not self._second_looks.due(changes.now):
            return
        if self._pacing.put_off(self.clock()) or self._deciding.waits(changes.now):
            return
        with self._pacing.measured():
            plan = self._deciding.plan(changes.now)
        if plan is None:
            self._decided = None
            return
        self._second_looks.decided(changes.now, waiting=self.state.asking > 0)
        plans.carry(changes, plan, self.handling)
        self._explaining.decided(self.state.asking)
        for uid in changes.wake_hub:
            self.wake_at(changes.now + plans.CLAIM_SECONDS, uid)
        if plan.bindings or plan.evictions or plan.nominations:
            self.enqueue(Wake())
        else:
            self._decided, self._looked = self.state.version, plan

    def _not_decidable(self, uid: str) -> None:
        """Nothing can be decided while this workload is in the queue: it was taken out."""
        entry = self.cache.get(uid)
        if entry is not None:
            entry.queued = False
            entry.workload.status.reason = reasons.set_aside()
            self.enqueue(Touched(uid))

    def _note_borrowing(self, changes: PassChanges) -> None:
        """A running workload may come to lie within or beyond its quota by what others do."""
        if self._borrowing == self.state.version:
            return
        self._borrowing = self.state.version
        for entry in self.cache.holding:
            if entry.workload.status.phase not in ("starting", "running") or not entry.queued:
                continue
            borrowed = self.state.is_borrowed(entry.uid)
            status = entry.workload.status
            if borrowed != status.borrowed:
                status.borrowed = borrowed
                changes.row(entry, status.phase, status.phase, status.reason)


def _launch_claimed(changes: PassChanges, entry: CachedWorkload) -> None:
    if entry.claimed and entry.workload.status.phase == "starting":
        changes.start(entry, entry.tasks)


def _claim_refused(changes: PassChanges, entry: CachedWorkload, text: str) -> None:
    if entry.claim_until is not None:
        log.warning("the Hub did not start workspace %s: %s", entry.workload.meta.name, text)
        spec_changes.stop_for(changes, entry, reasons.not_claimed(0.0))
