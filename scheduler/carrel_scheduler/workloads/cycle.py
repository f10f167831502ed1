"""One turn of the loop: what changed, to be recorded in one transaction and then acted on.

Handlers change entries and the core's state through a ``Cycle`` only, so that every change of
phase goes through the table, leaves its row, and nothing reaches the engine before it is recorded.
"""

from dataclasses import dataclass, field

from carrel_scheduler.core.events import (
    Outcome,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadGone,
)
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.ledger.objects import Phase, ReasonInfo, TaskInfo
from carrel_scheduler.ledger.records import Decision, Transition
from carrel_scheduler.workloads.book import Book, Entry, Place, queued_event
from carrel_scheduler.workloads.lifecycle import FINAL, HOLDING, check_transition
from carrel_scheduler.workloads.ports import FixedPorts, PortGiver


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the engine to end a task."""

    task: TaskId
    grace_seconds: float


@dataclass(slots=True)
class Cycle:
    """The changes of one turn.

    Attributes:
        dirty: entries whose status is to be written, by uid.
        starts: uids whose present attempt the engine is to start.
        finished: uids at an end, dropped from the book once recorded.
        removed: uids whose object is to be deleted.
        wake_hub: uids of workspaces whose turn has come, to be started through the Hub.
        queued: uids that began to wait in the core's queue.
        ports: who chooses the ports of tasks.
    """

    now: float
    epoch: int
    number: int
    input_version: int
    book: Book
    state: State
    dirty: dict[str, Entry] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    forgets: list[TaskId] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    wake_hub: list[str] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)
    ports: PortGiver = field(default_factory=FixedPorts)

    def mark(self, entry: Entry) -> None:
        """Have the entry's status written at the end of the turn."""
        self.dirty[entry.uid] = entry

    def move(self, entry: Entry, to: Phase, reason: ReasonInfo | None = None) -> None:
        """Change the phase: check the table, write the row, keep the times."""
        status = entry.workload.status
        check_transition(entry.uid, status.phase, to)
        before, status.phase, status.reason = status.phase, to, reason
        self.book.moved(entry)
        if to == "running":
            status.started_at = self.now
            status.first_started_at = status.first_started_at or self.now
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
        self, entry: Entry, before: Phase, after: Phase, reason: ReasonInfo | None = None
    ) -> None:
        """Write what the workload holds from now on."""
        meta, spec, status = entry.workload.meta, entry.workload.spec, entry.workload.status
        held = spec.tasks if after in HOLDING else 0
        places = [entry.places[index] for index in sorted(entry.places)] if held else []
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
                gpu_milli=spec.resources.gpu_milli * held,
                cpu_milli=spec.resources.cpu_milli * held,
                memory_bytes=spec.resources.memory_bytes * held,
                borrowed=status.borrowed,
                node=places[0].node if places else "",
                devices=places[0].devices if places else (),
                reason=reason,
            )
        )
        self.mark(entry)

    def decide(
        self,
        entry: Entry,
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

    def enqueue(self, entry: Entry) -> None:
        """Put a pending workload into the core's queue.

        Projects and workloads arrive by watches of their own, so a workload may be here first; it
        is queued when its project comes.
        """
        if entry.queued or entry.workload.meta.project not in self.book.projects:
            return
        self.state.apply(queued_event(entry.workload))
        entry.queued = True
        self.queued.append(entry.uid)

    def dequeue(self, entry: Entry) -> None:
        """Take a workload that holds nothing out of the core."""
        if entry.queued:
            self.state.apply(WorkloadGone(entry.uid))
            entry.queued = False

    def place(self, entry: Entry, index: int, place: Place, at: float) -> None:
        """A task has its place."""
        entry.places[index] = place
        self.state.apply(TaskPlaced(entry.uid, index, place.node, place.devices, at))

    def release_all(self, entry: Entry, *, waits: bool = False) -> None:
        """All tasks have ended: their room is free.

        Args:
            entry: the workload.
            waits: it asks for room again at once, and keeps what was promised to it; otherwise it
                leaves the core.
        """
        outcome = Outcome.AGAIN if waits else Outcome.GONE
        for index in sorted(entry.places):
            self.state.apply(TaskReleased(entry.uid, index, outcome, self.now))
            self.ports.let_go(entry.task_id(index))
        entry.places.clear()
        entry.ended.clear()
        entry.launched = False
        entry.claim_until = None
        entry.claimed = False
        if waits and entry.queued:
            self.queued.append(entry.uid)
        else:
            self.dequeue(entry)

    def give_up_room(self, entry: Entry, grace_seconds: float) -> None:
        """Tell every task that still runs to end; the room counts as being freed from now on."""
        for index in sorted(entry.places):
            self.state.apply(TaskReleasing(entry.uid, index))
            if index not in entry.ended:
                self.stops.append(Stop(entry.task_id(index), grace_seconds))

    def show_tasks(self, entry: Entry) -> None:
        """Write the tasks' places into the status."""
        entry.workload.status.tasks = [
            TaskInfo(
                index=index,
                attempt=entry.workload.status.attempt,
                node=place.node,
                devices=place.devices,
                ports=self._ports(entry, index),
            )
            for index, place in sorted(entry.places.items())
        ]
        self.mark(entry)

    def _ports(self, entry: Entry, index: int) -> dict[str, int]:
        """Ports for the routes of a task, by name."""
        routes = entry.workload.spec.routes
        if not routes:
            return {}
        return self.ports.give(entry.task_id(index), routes, self.book.ports())
