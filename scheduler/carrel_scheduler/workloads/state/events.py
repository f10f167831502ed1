"""Events that the reconciler handles, and the stream of live events that it sends.

Every listener of the stream has a bounded queue; a slow one loses its stream.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from carrel_scheduler.engines.contract import TaskId, TaskStatus
from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.ledger.store import Change
from carrel_scheduler.node.contract import DeviceUse, NodeFacts, NodeReport
from carrel_scheduler.workloads.contract import LiveEvent
from carrel_schema.objects import Department, Project, Workload


@dataclass(frozen=True, slots=True)
class WorkloadChanged:
    """The ledger's watch delivered a workload."""

    change: Change[Workload]


@dataclass(frozen=True, slots=True)
class ProjectChanged:
    """The ledger's watch delivered a project."""

    change: Change[Project]


@dataclass(frozen=True, slots=True)
class DepartmentChanged:
    """The ledger's watch delivered a department."""

    change: Change[Department]


@dataclass(frozen=True, slots=True)
class TaskSeen:
    """The engine saw a task."""

    task: TaskStatus


@dataclass(frozen=True, slots=True)
class StartRefused:
    """The engine could not start a task; ``elsewhere``: it may start on another node."""

    task: TaskId
    message: str
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class StopFailed:
    """The engine cannot end a terminating task; "" once it can."""

    task: TaskId
    message: str

    @property
    def uid(self) -> str:
        """The uid of the task's workload."""
        return self.task.workload_uid


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """The Hub could not start a workspace that has its allocation."""

    uid: str
    message: str


@dataclass(frozen=True, slots=True)
class DevicesSampled:
    """The node's devices were sampled."""

    facts: NodeFacts
    use: tuple[DeviceUse, ...]


@dataclass(frozen=True, slots=True)
class NodeReported:
    """The agent of a node of a cluster looked at its devices; owners are workloads.

    Attributes:
        known_gpus: UUIDs of all GPUs, or of the MIG instances, that a workload has on the node, by
            workload, where they are known. Nothing is said where the use of all GPUs is attributed.
    """

    node: str
    report: NodeReport
    known_gpus: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CordonEnded:
    """An admin returned a device to service."""

    node: str
    index: int


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Check this workload's limits now (activity, an extension)."""

    uid: str


@dataclass(frozen=True, slots=True)
class WorkloadDeleted:
    """The object of a workload was removed by force, while its tasks may still run."""

    uid: str


@dataclass(frozen=True, slots=True)
class SpecRead:
    """A newer specification was found while writing."""

    uid: str


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """A status was changed from outside a pass (an extension): write it, judge it again."""

    uid: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """The Hub claimed an allocated workspace, which can be launched now."""

    uid: str


@dataclass(frozen=True, slots=True)
class MembersMet:
    """Members of a gang, by index, have met at its rendezvous."""

    uid: str
    members: frozenset[int]


@dataclass(frozen=True, slots=True)
class Wake:
    """Run another pass: reports are to be written, or a plan changed the state."""


@dataclass(frozen=True, slots=True)
class UsedLately:
    """The mean of what projects held lately: GPU thousandths, millicores, MiB, by project."""

    average: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True, slots=True)
class BudgetsUsedUp:
    """The scopes of all budgets at whose end the priority is lowered, and that are used up."""

    scopes: frozenset[str]


WorkloadEvent = (
    ClaimRefused
    | CheckLimits
    | SpecRead
    | StopFailed
    | StatusChanged
    | Claimed
    | MembersMet
    | WorkloadDeleted
)
"""Messages about one workload, by ``uid``."""

LoopEvent = (
    WorkloadChanged
    | ProjectChanged
    | DepartmentChanged
    | TaskSeen
    | StartRefused
    | DevicesSampled
    | NodeReported
    | CordonEnded
    | Wake
    | UsedLately
    | BudgetsUsedUp
    | ExternalEvents
    | WorkloadEvent
)


MOST_WAITING = 2_000


class Listener:
    """The queue of one listener; see ``contract.Subscription``."""

    def __init__(self, stream: "EventStream") -> None:
        self._stream = stream
        self._queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
        self._closed = False

    async def next(self) -> LiveEvent | None:
        """The next event; ``None`` at the end."""
        if self._closed and self._queue.empty():
            return None
        return await self._queue.get()

    def close(self) -> None:
        """Unsubscribe; a waiting ``next`` returns ``None``."""
        if not self._closed:
            self._closed = True
            self._stream.remove(self)
            self._queue.put_nowait(None)

    def offer(self, event: LiveEvent) -> None:
        """Queue an event; a listener whose queue is full is closed."""
        if self._queue.qsize() >= MOST_WAITING:
            self.close()
        else:
            self._queue.put_nowait(event)


class EventStream:
    """The listeners of the event stream.

    Attributes:
        listeners: who gets its events now.
    """

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()

    def subscribe(self) -> Listener:
        """A new listener, from now on."""
        listener = Listener(self)
        self.listeners.add(listener)
        return listener

    def remove(self, listener: Listener) -> None:
        """Forget a listener."""
        self.listeners.discard(listener)

    def publish(self, event: LiveEvent) -> None:
        """Send an event to all listeners."""
        for listener in tuple(self.listeners):
            listener.offer(event)

    def close(self) -> None:
        """End every stream."""
        for listener in tuple(self.listeners):
            listener.close()
