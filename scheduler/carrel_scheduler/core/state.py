"""The state: what the core knows, changed by events only.

Everything that deciding reads often stands in NumPy columns that events change in place (nodes,
tasks, projects); what is read per workload stands in records. Only integers count room. An event
is checked before anything changes, so a refused one leaves no trace. ``copy`` is cheap enough for
speculation: columns are copied, records shared.
"""

from collections.abc import Iterator, Sequence

from carrel_scheduler.core import views
from carrel_scheduler.core.borrowed import borrowed_work
from carrel_scheduler.core.errors import InvalidEvent, UnknownWorkload
from carrel_scheduler.core.events import (
    CheckpointSeen,
    Event,
    NodeGone,
    NodeSet,
    ProjectGone,
    ProjectSet,
    RoomPromised,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadGone,
    WorkloadQueued,
)
from carrel_scheduler.core.footprints import (
    check_places,
    footprint_of,
    gpu_cpu_memory,
)
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.nodes import NodeColumns
from carrel_scheduler.core.projects import ProjectColumns
from carrel_scheduler.core.tasks import NOBODY, TaskColumns
from carrel_scheduler.core.workloads import Record, Records, new_record


class State:
    """All nodes, projects and workloads. ``version`` counts the events applied.

    The columns are public for the rest of the core to read; only ``apply`` changes them.
    """

    def __init__(self) -> None:
        self.version = 0
        self.nodes = NodeColumns()
        self.tasks = TaskColumns()
        self.project_columns = ProjectColumns()
        self.records = Records()
        self._waiting: dict[str, None] = {}
        self._holding: dict[str, None] = {}
        self._borrowed: tuple[int, frozenset[str]] = (-1, frozenset())

    def copy(self) -> "State":
        """A state to speculate on. The original must not change while the copy is in use."""
        twin = State()
        twin.version = self.version
        twin.nodes, twin.tasks = self.nodes.copy(), self.tasks.copy()
        twin.project_columns, twin.records = self.project_columns.copy(), self.records.copy()
        twin._waiting, twin._holding = dict(self._waiting), dict(self._holding)
        twin._borrowed = self._borrowed
        return twin

    def apply(self, event: Event) -> None:
        """Take in a fact. Raises ``InvalidEvent`` when it contradicts the state."""
        match event:
            case TaskPlaced():
                self._placed(event)
            case TaskReleasing():
                self._told_to_stop(event)
            case TaskReleased():
                self._released(event)
            case WorkloadQueued():
                self._queued(event)
            case WorkloadGone():
                self._gone(event)
            case CheckpointSeen():
                self.records.edit(event.uid).saved = event.at
            case RoomPromised():
                self._promised(event)
            case NodeSet():
                self.nodes.set(event)
            case NodeGone():
                self._node_gone(event)
            case ProjectSet():
                self.project_columns.set(event)
            case ProjectGone():
                self._project_gone(event)
        self.version += 1

    # What the service asks

    def projects(self) -> Sequence[str]:
        """The names of all projects, in alphabetical order."""
        return sorted(self.project_columns.slots)

    def project_use(self, name: str) -> views.ProjectUse:
        """What a project holds and waits for. Raises ``KeyError`` for an unknown name."""
        return views.project_use(self, name)

    def node_views(self) -> Sequence[views.NodeView]:
        """All nodes with their devices and who holds them, by name."""
        return views.node_views(self)

    def waiting(self) -> Sequence[str]:
        """The uids of all waiting workloads, oldest submission first."""
        return sorted(self._waiting, key=self._age)

    def workload(self, uid: str) -> views.WorkloadView:
        """One workload. Raises ``UnknownWorkload``."""
        record = self.records.get(uid)
        if record is None:
            raise UnknownWorkload(uid)
        return views.workload_view(self, record)

    def is_borrowed(self, uid: str) -> bool:
        """Whether a running workload lies beyond its project's GPU quota.

        The project's running workloads stand in the order non-preemptible first, higher priority
        first, earlier start first, those told to stop last; those that reach beyond the quota in
        this order are borrowed.
        """
        if self._borrowed[0] != self.version:
            self._borrowed = (self.version, borrowed_work(self))
        return uid in self._borrowed[1]

    def waiting_records(self) -> Iterator[Record]:
        """The records of waiting workloads, in no order that means anything."""
        for uid in self._waiting:
            record = self.records.get(uid)
            if record is not None:
                yield record

    def holding_records(self) -> Iterator[Record]:
        """The records of workloads with placed tasks, in no order that means anything."""
        for uid in self._holding:
            record = self.records.get(uid)
            if record is not None:
                yield record

    def _age(self, uid: str) -> tuple[float, str]:
        record = self.records.get(uid)
        return (record.spec.created_at if record else 0.0, uid)

    # Workloads

    def _queued(self, event: WorkloadQueued) -> None:
        record = new_record(event, self.project_columns.slot(event.project))
        old = self.records.get(event.uid)
        if old is not None and old.rows:
            raise InvalidEvent("holds_room", "uid", event.uid, "a workload that holds no room")
        if old is not None:
            record.saved = old.saved
            if old.waiting:
                self._stop_waiting(self.records.edit(event.uid))
        self.records.put(record)
        self._waiting[event.uid] = None
        self.project_columns.waiting[record.project] += record.demand

    def _gone(self, event: WorkloadGone) -> None:
        record = self.records.edit(event.uid)
        if record.rows:
            raise InvalidEvent("holds_room", "uid", event.uid, "a workload that holds no room")
        if record.waiting:
            self._stop_waiting(record)
        self.records.drop(event.uid)

    def _stop_waiting(self, record: Record) -> None:
        self._end_promise(record)
        record.waiting = False
        del self._waiting[record.spec.uid]
        self.project_columns.waiting[record.project] -= record.demand

    # Tasks

    def _placed(self, event: TaskPlaced) -> None:
        record = self.records.edit(event.uid)
        tasks = record.spec.tasks
        if not record.waiting and not 0 < record.seen < tasks:
            raise InvalidEvent("not_waiting", "uid", event.uid, "a workload that waits for room")
        if not 0 <= event.index < tasks or event.index in record.rows:
            raise InvalidEvent("bad_index", "index", event.index, "a task that is not placed yet")
        place = footprint_of(self.nodes, record.spec.request, event.node, event.devices)
        check_places(self.nodes.free, place)
        if record.waiting:
            self._stop_waiting(record)
            record.started = event.at
            self._holding[event.uid] = None
        victim = record.project if record.spec.preemptible and not record.stopping else NOBODY
        owner = (event.uid, event.index)
        priority = record.spec.priority
        row = self.tasks.put(owner, place, victim=victim, priority=priority)
        record.rows[event.index] = row
        record.seen += 1
        self.nodes.free.subtract(place)
        amounts = gpu_cpu_memory(place)
        self.project_columns.used[record.project] += amounts
        if not record.spec.preemptible:
            self.project_columns.used_fixed[record.project] += amounts

    def _told_to_stop(self, event: TaskReleasing) -> None:
        record, row = self._holding_row(event.uid, event.index)
        if self.tasks.stopping[row]:
            raise InvalidEvent("already_stopping", "index", event.index, "a task that runs")
        place = self.tasks.footprint(row)
        self.tasks.stopping[row] = True
        record.stopping += 1
        self._mark_victims(record)
        self.nodes.releasing.add(place)
        amounts = gpu_cpu_memory(place)
        self.project_columns.releasing[record.project] += amounts
        self.project_columns.used[record.project] -= amounts
        if not record.spec.preemptible:
            self.project_columns.used_fixed[record.project] -= amounts

    def _released(self, event: TaskReleased) -> None:
        record, row = self._holding_row(event.uid, event.index)
        place, project = self.tasks.footprint(row), record.project
        amounts = gpu_cpu_memory(place)
        if self.tasks.stopping[row]:
            record.stopping -= 1
            self.nodes.releasing.subtract(place)
            self.project_columns.releasing[project] -= amounts
        else:
            self.project_columns.used[project] -= amounts
            if not record.spec.preemptible:
                self.project_columns.used_fixed[project] -= amounts
        self.nodes.free.add(place)
        self.tasks.drop(row)
        del record.rows[event.index]
        self._mark_victims(record)
        if not record.rows:
            del self._holding[event.uid]

    def _mark_victims(self, record: Record) -> None:
        victim = record.project if record.evictable else NOBODY
        for row in record.rows.values():
            self.tasks.victim[row] = victim

    def _holding_row(self, uid: str, index: int) -> tuple[Record, int]:
        record = self.records.edit(uid)
        if index not in record.rows:
            raise InvalidEvent("not_placed", "index", index, "a task that holds room")
        return record, record.rows[index]

    # Promises

    def _promised(self, event: RoomPromised) -> None:
        record = self.records.edit(event.uid)
        if not record.waiting:
            raise InvalidEvent("not_waiting", "uid", event.uid, "a workload that waits for room")
        if event.places and len(event.places) != record.spec.tasks:
            expected = f"a place for each of the {record.spec.tasks} tasks, or none"
            raise InvalidEvent("bad_places", "places", event.places, expected)
        request = record.spec.request
        places = tuple(
            footprint_of(self.nodes, request, node, devices) for node, devices in event.places
        )
        before = record.promise
        self._end_promise(record)
        try:
            self._hold(record, places)
        except InvalidEvent:
            self._hold(record, before)
            raise

    def _hold(self, record: Record, places: tuple[Footprint, ...]) -> None:
        room = self.nodes.free.copy()
        room.devices += self.nodes.releasing.devices - self.nodes.promised.devices
        check_places(room, *places)
        for place in places:
            self.nodes.promised.add(place)
        record.promise = places
        if places:
            self._count_promise(record, 1)

    def _end_promise(self, record: Record) -> None:
        if record.promise:
            for place in record.promise:
                self.nodes.promised.subtract(place)
            self._count_promise(record, -1)
            record.promise = ()

    def _count_promise(self, record: Record, sign: int) -> None:
        gpu, cpu, memory = record.demand
        amounts = (sign * gpu, sign * cpu, sign * memory)
        self.project_columns.promised[record.project] += amounts
        if not record.spec.preemptible:
            self.project_columns.promised_fixed[record.project] += amounts

    # Nodes and projects

    def _node_gone(self, event: NodeGone) -> None:
        slot = self.nodes.slot(event.name)
        if self.tasks.rows_on(slot):
            raise InvalidEvent("node_in_use", "name", event.name, "a node without tasks")
        for uid in self._waiting:
            record = self.records.get(uid)
            if record is not None and any(place.node == slot for place in record.promise):
                self._end_promise(self.records.edit(uid))
        self.nodes.drop(event.name)

    def _project_gone(self, event: ProjectGone) -> None:
        slot = self.project_columns.slot(event.name)
        if any(record.project == slot for record in self.records):
            raise InvalidEvent("project_in_use", "name", event.name, "a project without workloads")
        self.project_columns.drop(event.name)
