"""The whole state of the core, as columns and records.

What deciding reads often stands in NumPy columns that events change in place (nodes, tasks, jobs,
queues, waiting rows, capacity rows); what is read per workload stands in records. Only integers
count amounts. ``State`` adds how events change it.

Beside them, and no part of the state, stands the ``DecisionCache``: results of decisions for later
ones, each with what it depends on, used only while that is equal. A decision with the cache and one
without are equal; it is never saved, and dropped at any time.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from carrel_scheduler.core.capacity.capacity import Capacity
from carrel_scheduler.core.capacity.eligibility import Eligible
from carrel_scheduler.core.capacity.views import CapacityViews
from carrel_scheduler.core.devices.classes import Classes
from carrel_scheduler.core.devices.device_choice import Hardware
from carrel_scheduler.core.errors import UnknownWorkload
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.mig.instances import WarmInstances
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.queues.fair_share import Division
from carrel_scheduler.core.queues.queues import QueueColumns
from carrel_scheduler.core.resources import Triple
from carrel_scheduler.core.scoring.chooser import Chooser
from carrel_scheduler.core.settings import DEFAULTS, Settings
from carrel_scheduler.core.topology.topology import Topologies
from carrel_scheduler.core.work.jobs import JobInfo, JobTable
from carrel_scheduler.core.work.over_quota import OverQuota
from carrel_scheduler.core.work.shapes import Shapes
from carrel_scheduler.core.work.tasks import TaskColumns
from carrel_scheduler.core.work.waiting import WaitingRows


@dataclass(frozen=True, slots=True)
class FailedSearch:
    """A search for victims that found nothing.

    Attributes:
        stamp: what it followed from; see ``cycle.failed_searches``.
        fair: the fair shares that were asked for, by slot.
        moment: the time, and how many checkpoints were seen until then, if the time was asked for
            on the way.
        plainly: it was found out at a glance.
        not_found: it ended at its limits.
    """

    stamp: tuple[object, ...]
    fair: tuple[tuple[int, Triple], ...]
    moment: tuple[float, int] | None
    plainly: bool
    not_found: bool


@dataclass(slots=True)
class DecisionCache:
    """Results kept between cycles, each with what it was computed from.

    Attributes:
        searches: what was searched for without a result, and what that followed from.
        searched_as_of: ``QueueColumns.changes`` at these searches.
        failed: how many searches found nothing since the start.
        behind: slot of a queue -> what ``starving`` found to run behind someone there.
        largest: resource and key of nodes -> what was running, and who held most of it there.
        hardware: slot of a node -> what was told of it, and its hardware.
        empty: class -> how many of its tasks empty nodes would hold, as of ``empty_version``.
        views: which nodes there were, and views of them as if nobody held anything.
    """

    searches: dict[Hashable, FailedSearch] = field(default_factory=dict)
    searched_as_of: int = -1
    failed: int = 0
    behind: dict[int, tuple[tuple[object, ...], Triple]] = field(default_factory=dict)
    largest: dict[Hashable, tuple[tuple[int, int], tuple[tuple[int, int], ...]]] = field(
        default_factory=dict
    )
    hardware: dict[int, tuple[NodeSet, Hardware]] = field(default_factory=dict)
    empty: dict[int, int] = field(default_factory=dict)
    empty_version: int = -1
    views: tuple[Hashable, CapacityViews] | None = None

    def forget(self) -> None:
        """Drop everything."""
        self.searches.clear()
        self.behind.clear()
        self.largest.clear()
        self.empty.clear()
        self.hardware.clear()
        self.views = None

    def note(self, key: Hashable, found: FailedSearch, as_of: int) -> None:
        """Remember a failed search; results from another count of queue changes are dropped."""
        if as_of != self.searched_as_of:
            self.searches.clear()
            self.searched_as_of = as_of
        self.searches[key] = found
        self.failed += 1


class Columns:
    """All nodes, queues and workloads. ``version`` counts the events applied.

    The columns are public for the rest of the core to read; only events change them.

    Attributes:
        waiting: jobs that hold neither an allocation nor a reservation, in rows of equal workloads.
        partial: uid -> all other jobs that ask for capacity: some of their tasks hold an
            allocation or a reservation, have ended, or may not start yet.
        gated: uid -> jobs that hold nothing and of which no task may start yet.
        holding: uid -> jobs with placed tasks.
        reserved: uid -> jobs with a reservation.
        stale: uid -> jobs that run with fewer tasks than their minimum.
        improvable: uid -> jobs with placed tasks that move to nodes that they prefer.
        cache: what decisions found out and need not find out again; no part of the state.
    """

    def __init__(self, settings: Settings = DEFAULTS) -> None:
        self.version = 0
        self.settings = settings
        self.nodes = NodeColumns()
        self.queues = QueueColumns()
        self.division = Division(settings.usage_factor_millionths)
        self.tasks = TaskColumns()
        self.jobs = JobTable()
        self.classes = Classes(self.nodes)
        self.shapes = Shapes(self.classes)
        self.eligible = Eligible(self.nodes)
        self.capacity = Capacity(self.classes, self.nodes, self.eligible)
        self.chooser = Chooser(self.classes, self.nodes, self.eligible, settings)
        self.topologies = Topologies()
        self.waiting = WaitingRows(self.classes)
        self.over_quota = OverQuota(self.jobs, self.tasks, self.nodes)
        self.warm = WarmInstances()
        self.cache = DecisionCache()
        self.partial: dict[str, JobInfo] = {}
        self.gated: dict[str, JobInfo] = {}
        self.holding: dict[str, JobInfo] = {}
        self.reserved: dict[str, JobInfo] = {}
        self.stale: dict[str, JobInfo] = {}
        self.improvable: dict[str, JobInfo] = {}

    def job(self, uid: str) -> JobInfo:
        """The record of a workload. Raises ``UnknownWorkload``."""
        job = self.jobs.by_uid.get(uid)
        if job is None:
            raise UnknownWorkload(uid)
        return job
