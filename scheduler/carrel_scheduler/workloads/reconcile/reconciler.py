"""The reconciler: one loop that handles events, decides, records and acts.

It sleeps until an event arrives or something falls due. Each *pass* (``Reconciler.reconcile``) is a
page of numbered steps; the parts that do them are beside this module.

* Recorded before done: a pass's changes are one ledger transaction, and the engine gets orders
  only after it is durable. A scheduler that is started again finds in the ledger what may have
  happened and asks the engine what did.
* One writer: only this loop writes status, and only here the core's state changes.
* A write that meets a newer specification reads it and writes again; a write that meets a newer
  scheduler (``Fenced``) ends the process, as does any failure of the ledger: the next start
  recovers, whereas going on would mean acting on what is not recorded.
* No input ends it: each event, timer and step of a plan is a guarded step, and what fails is set
  aside (``faults``) while everything else goes on.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.settings import DEFAULTS, Settings
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.external import ExternalPods, NoExternalPods, ReconcilerAccess
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.contract import LiveEvent
from carrel_scheduler.workloads.controllers.manager import Manager
from carrel_scheduler.workloads.faults.audit import StateAudit
from carrel_scheduler.workloads.faults.deleted_projects import DeletedProjects
from carrel_scheduler.workloads.faults.guarding import FATAL, GuardedSteps, Rebuilds
from carrel_scheduler.workloads.gangs.stalling import StallRule
from carrel_scheduler.workloads.nodes.device_records import SETTING as KNOWN_DEVICES
from carrel_scheduler.workloads.nodes.device_records import DeviceRecords
from carrel_scheduler.workloads.nodes.devices import WithheldDevices
from carrel_scheduler.workloads.nodes.gpu_memory import Enforcement, GpuMemoryWatch
from carrel_scheduler.workloads.nodes.health import SETTING as CORDONS
from carrel_scheduler.workloads.nodes.health import Cordons
from carrel_scheduler.workloads.reconcile import (
    budget_priority,
    deciding,
    plan_execution,
    user_limits,
)
from carrel_scheduler.workloads.reconcile.adoption import rebuild
from carrel_scheduler.workloads.reconcile.deciding import Decider, collector_paused
from carrel_scheduler.workloads.reconcile.executor import Executor
from carrel_scheduler.workloads.reconcile.handlers import EventHandlers
from carrel_scheduler.workloads.reconcile.metrics import PassFigures, ReconcilerMetrics
from carrel_scheduler.workloads.reconcile.plan_execution import Explaining
from carrel_scheduler.workloads.reconcile.recording import PendingReports, Recorder, ReportWriter
from carrel_scheduler.workloads.state import reasons
from carrel_scheduler.workloads.state.cache import CLAIM_SECONDS, CachedWorkload, WorkloadCache
from carrel_scheduler.workloads.state.events import (
    Claimed,
    EventStream,
    LoopEvent,
    StatusChanged,
    Wake,
)
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_scheduler.workloads.state.ports import FixedPorts, PortAllocator
from carrel_schema.history import Report
from carrel_schema.objects import Workload

log = logging.getLogger(__name__)
PAUSES: Final = Pauses(0.1, 30.0)
MOST_PASSES_IN_A_ROW: Final = 100
SLOW_PASS_SECONDS: Final = 0.05
"""The pause where, pass after pass, something is due at once and no event arrives."""
STALLS: Final = StallRule()


class Reconciler:
    """See the module.

    Args:
        ledger: holds objects, decisions and state changes.
        executor: carries out what was recorded.
        clock: epoch seconds.
        ports: chooses the ports of tasks.
        settings: of the core.
        quarantine: where inputs go that cannot be processed.
        external_pods: makes what decides about pods that others made.
        gpu_memory: what is done about work that holds more of a GPU than its fraction.
        stall_rule: when gangs count as standing still.
    """

    def __init__(
        self,
        ledger: Ledger,
        executor: Executor,
        *,
        clock: Callable[[], float],
        ports: PortAllocator | None = None,
        settings: Settings = DEFAULTS,
        quarantine: Quarantine | None = None,
        external_pods: Callable[[ReconcilerAccess], ExternalPods] = lambda _: NoExternalPods(),
        gpu_memory: Enforcement = "warn",
        stall_rule: StallRule = STALLS,
    ) -> None:
        self.ledger, self.executor, self.clock = ledger, executor, clock
        self.ports = ports or FixedPorts()
        self.state = State(settings)
        self.cache = WorkloadCache()
        self.stream = EventStream()
        self.epoch = self._number = 0
        self._failures = self._in_a_row = 0
        self._borrowing: int | None = None
        self._inbox = deciding.Inbox()
        self.metrics = ReconcilerMetrics(
            inbox_length=self._inbox.__len__, inbox_age=lambda: self._inbox.age_seconds
        )
        self.timers = deciding.Timers()
        self._clock_skew = deciding.ClockSkew()
        self.quarantine = quarantine or Quarantine(clock)
        self.rebuilds = Rebuilds(clock)
        self.steps = GuardedSteps(self.quarantine, self.rebuilds.damaged)
        self.withheld = WithheldDevices()
        self.audit = StateAudit(clock)
        self.reports = PendingReports()
        self._report_writer = ReportWriter(ledger, self.quarantine, self.reports)
        self.recorder = Recorder(
            ledger, self.quarantine, self.enqueue, self.publish, self.metrics.commit
        )
        self.composites = Manager(
            ledger, clock=clock, publish=self.publish, quarantine=self.quarantine
        )
        self._deleted_projects = DeletedProjects(ledger, self.quarantine, self.steps)
        self.handlers = self._event_handlers(gpu_memory, stall_rule)
        executor.connect(self.enqueue, clock, self.handlers.nodes)
        self.decider = self._decider()
        self._explaining = Explaining(clock, self.decider.preview)
        self.cache.queue = lambda: self.decider.preview().queue
        self.external_pods = external_pods(self._access())

    def _event_handlers(self, gpu_memory: Enforcement, stall_rule: StallRule) -> EventHandlers:
        return EventHandlers(
            self.cache,
            self.state,
            composites=self.composites,
            timers=self.timers,
            steps=self.steps,
            deleted_projects=self._deleted_projects,
            withheld=self.withheld,
            publish=self.publish,
            gpu_memory=GpuMemoryWatch(gpu_memory),
            stall_rule=stall_rule,
        )

    def _decider(self) -> Decider:
        return Decider(
            self.state,
            self.clock,
            self.quarantine,
            self._not_decidable,
            lambda now: decide(self.state, now, self.metrics.actions),
            lambda now: decide(self.state, now),
        )

    def _access(self) -> ReconcilerAccess:
        """The parts of this reconciler that external pods use."""
        return ReconcilerAccess(
            self.state,
            self.handlers.node_known,
            lambda uid: self._explaining.queued([uid]),
            self.quarantine,
            self.cache.draining,
            self.withheld.added_to,
        )

    def enqueue(self, event: LoopEvent) -> None:
        """Add an event to the loop's queue."""
        self._inbox.put(event)

    @property
    def inbox_age_seconds(self) -> float:
        """Seconds for which the oldest event has waited."""
        return self._inbox.age_seconds

    @property
    def quiet(self) -> bool:
        """Whether no event waits."""
        return self._inbox.empty

    async def run(self) -> None:
        """Run passes until cancelled. Raises only errors that end the scheduler (``FATAL``)."""
        while True:
            await self._something_happened()
            with self.quarantine.guard("message", "turn", fatal=FATAL) as guard:
                await self.reconcile()
            self._failures = self._failures + 1 if guard.failed else 0
            if guard.failed:
                await asyncio.sleep(PAUSES.after(self._failures))

    async def reconcile(self) -> None:
        """Run a pass over all waiting events."""
        # 1. Times move with a clock that was set back.
        self._follow_clock()
        changes = self.begin()
        figures = self.metrics.begin_pass(changes.number, self._inbox.age_seconds)
        try:
            with collector_paused():
                self._handle_and_decide(changes, figures)
            # 5. Write reasons of pending workloads; 6. record everything; 7. carry it out.
            await self._explain_and_finish(changes)
        except Exception:
            for uid in changes.dirty:
                self.rebuilds.damaged(uid)
            raise
        # 8. Delete drained projects, rebuild what failed, check an invariant.
        if self._deleted_projects.drained:
            await self._deleted_projects.delete_drained()
        await self._rebuild_due()
        if self.audit.due_at <= changes.now:
            self.audit.look(self.state)
        self.metrics.end_pass(figures, self.state.asking)

    def _handle_and_decide(self, changes: PassChanges, figures: PassFigures) -> None:
        # 2. Handle the events that wait and the timers that are due.
        while not self.quiet:
            event = self._inbox.take()
            figures.events += 1
            with self.steps.event(changes, event):
                self.handlers.handle(changes, event)
        self.handlers.due(changes, self.timers.take_due(changes.now))
        # 3. Settle deleted projects and external pods.
        if self.cache.draining:
            self._deleted_projects.settle(changes)
        if self.external_pods.reconcile(changes.now):
            self.decider.ask_again()
        self.handlers.follow_rules(changes)
        if self.cache.used_up or self.cache.some_lowered:
            with self.steps.step(changes, "decision", "budgets"):
                budget_priority.follow(changes)
        if self.cache.limits_users:
            with self.steps.step(changes, "decision", "user limits"):
                user_limits.follow(changes)
        # 4. Ask the core for a plan and put it into the pass.
        self._decide(changes)

    def begin(self) -> PassChanges:
        """Begin a pass."""
        self._number += 1
        self.external_pods.epoch = self.epoch
        return PassChanges(
            self.clock(),
            self.epoch,
            self._number,
            self.handlers.input_version,
            self.cache,
            self.state,
            self.external_pods,
            ports=self.ports,
        )

    async def finish(self, changes: PassChanges) -> None:
        """Record a pass, then carry it out."""
        with self.steps.step(changes, "decision", "borrowing"):
            self._note_borrowing(changes)
        await self._report_writer.write_last(changes.transitions)
        async with self.executor.getting_ready(changes) as ready:
            version = await self.recorder.record(changes)
        self.handlers.input_version = max(self.handlers.input_version, version)
        await self._record_reports(changes.now)
        await self._record_gpu_use(changes.now)
        await self._record_devices()
        for uid in changes.unrecorded:
            self.rebuilds.damaged(uid)
        for uid in (*changes.finished, *changes.removed):
            if uid not in changes.unrecorded:
                self.cache.drop(uid)
                self.rebuilds.forget(uid)
        for when, uid in changes.wakes:
            self.timers.set(when, uid)
        await self.executor.act(changes, ready)
        self.external_pods.act()

    def publish(self, kind: str, workload: Workload, report: Report | None = None) -> None:
        """Publish a workload's present state to the event stream."""
        if workload.spec.owner:
            self.composites.changed(workload, deleted=kind == "deleted")
        if not self.stream.listeners:
            return
        now = msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status))
        version = workload.meta.resource_version
        self.stream.publish(LiveEvent(type=kind, version=version, workload=now, report=report))

    def claimed(self, entry: CachedWorkload, stored: Workload) -> None:
        """Handle a workspace that the Hub has claimed; the next pass launches it."""
        entry.claim_until = None
        entry.claimed = True
        entry.workload.meta, entry.workload.spec = stored.meta, stored.spec
        self.enqueue(Claimed(entry.uid))

    def next_deadline(self) -> float | None:
        """The next time at which something is due without an event, epoch seconds."""
        due = (
            self.timers.due_at,
            self.reports.due_at,
            self.decider.due_at,
            self._explaining.due_at,
            self.rebuilds.due_at,
            self.external_pods.next_due,
        )
        return min((when for when in due if when is not None), default=None)

    async def _something_happened(self) -> None:
        if not self.quiet:
            return
        deadline = self.next_deadline()
        seconds = None if deadline is None else max(0.0, deadline - self.clock())
        self._in_a_row = self._in_a_row + 1 if seconds == 0.0 else 0
        if self._in_a_row > MOST_PASSES_IN_A_ROW:
            if self._in_a_row == MOST_PASSES_IN_A_ROW + 1:
                log.error("a timer is due in every pass; the loop is slowed down")
            seconds = SLOW_PASS_SECONDS
        await self._inbox.wait(seconds)

    def _follow_clock(self) -> None:
        back = self._clock_skew.measure(self.clock())
        if not back:
            return
        for entry in self.cache:
            deciding.clock_set_back(entry, back)
        self.external_pods.clock_set_back(back)
        if self.reports.due_at is not None:
            self.reports.due_at -= back
        for part in (self.timers, self.decider, self.rebuilds, self.composites, self.audit):
            part.clock_set_back(back)

    def _decide(self, changes: PassChanges) -> None:
        self._explaining.queued(changes.queued)
        self.decider.queued(changes.queued)
        plan = self.decider.plan(changes.now)
        if plan is None:
            return
        self.metrics.decided(plan, self.state.cache.failed)
        plan_execution.put_into(changes, plan, self.steps)
        self._explaining.decided(self.state.asking)
        for uid in changes.wake_hub:
            self.timers.set(changes.now + CLAIM_SECONDS, uid)
        if self.decider.carried_out(plan):
            self.enqueue(Wake())

    async def _explain_and_finish(self, changes: PassChanges) -> None:
        """Finish the pass, with a part of the reasons if that is due."""
        explaining = self._explaining
        if not explaining.pending or explaining.pacing.put_off(self.clock()):
            await self.finish(changes)
            return
        with explaining.pacing.measured():
            with self.steps.step(changes, "decision", "reasons"):
                explaining.slice(changes)
            await self.finish(changes)
        if explaining.pending and not explaining.pacing.put_off(self.clock()):
            self.enqueue(Wake())

    async def _record_reports(self, now: float) -> None:
        """Write the jobs' reports, once they have waited long enough."""
        touched = await self._report_writer.write_due(now)
        if not touched:
            return
        late = self.begin()
        for uid in sorted(touched):
            entry = self.cache.get(uid)
            if entry is not None:
                late.mark(entry)
        await self.recorder.record(late)

    async def _record_gpu_use(self, now: float) -> None:
        """Write measured GPU use every few minutes; what cannot be stored is lost."""
        account = self.cache.gpu_account
        if account.due_at is not None and account.due_at <= now:
            with self.quarantine.guard("record", "gpu use", fatal=FATAL):
                await self.ledger.add_gpu_use(account.take())

    async def _record_devices(self) -> None:
        """Write the devices to be known after a restart; retried in the next pass."""
        kept: Mapping[str, Cordons | DeviceRecords] = {
            CORDONS: self.withheld.cordons,
            KNOWN_DEVICES: self.handlers.known_devices,
        }
        for setting, one in kept.items():
            if one.changed:
                with self.quarantine.guard("record", setting, fatal=FATAL) as guard:
                    await self.ledger.put_setting(setting, msgspec.to_builtins(one.record()))
                one.changed = guard.failed

    async def _rebuild_due(self) -> None:
        for uid in self.rebuilds.take_due():
            with self.quarantine.guard("message", uid, fatal=FATAL) as guard:
                try:
                    workload: Workload | None = await self.ledger.get_by_uid(Workload, uid)
                except ObjectNotFound:
                    workload = None
                listed = await self.executor.listed()
                tasks = [task for task in listed if task.id.workload_uid == uid]
                changes = self.begin()
                rebuild(changes, uid, workload, tasks, self.quarantine, self.withheld)
                await self.finish(changes)
            if guard.failed:
                self.rebuilds.damaged(uid)

    def _not_decidable(self, uid: str) -> None:
        """Take a workload out of the queue because the core cannot decide while it is there."""
        entry = self.cache.get(uid)
        if entry is not None:
            entry.queued = False
            entry.workload.status.reason = reasons.set_aside()
            self.enqueue(StatusChanged(uid))

    def _note_borrowing(self, changes: PassChanges) -> None:
        """Update which workloads run over quota: this also changes with other workloads."""
        if self._borrowing == self.state.version:
            return
        self._borrowing = self.state.version
        for entry in self.cache.holding:
            status = entry.workload.status
            if status.phase not in ("starting", "running") or not entry.queued:
                continue
            borrowed = self.state.is_borrowed(entry.uid)
            if borrowed != status.borrowed:
                status.borrowed = borrowed
                changes.row(entry, status.phase, status.phase, status.reason)
