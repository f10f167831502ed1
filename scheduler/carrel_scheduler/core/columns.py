"""Everything that the core knows, as columns and records.

What deciding reads often stands in NumPy columns that events change in place (nodes, tasks, jobs,
queues, waiting rows, capacity rows); what is read per workload stands in records. Only integers
count room. ``State`` adds how events change it.
"""

from carrel_scheduler.core.cache import DecisionCache
from carrel_scheduler.core.capacity.capacity import Capacity
from carrel_scheduler.core.capacity.eligibility import Eligible
from carrel_scheduler.core.devices.classes import Classes
from carrel_scheduler.core.errors import UnknownWorkload
from carrel_scheduler.core.mig.instances import WarmInstances
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.over_quota import OverQuota
from carrel_scheduler.core.queues.fair_share import Division
from carrel_scheduler.core.queues.queues import QueueColumns
from carrel_scheduler.core.scoring.chooser import Chooser
from carrel_scheduler.core.settings import DEFAULTS, Settings
from carrel_scheduler.core.topology.topology import Topologies
from carrel_scheduler.core.work.jobs import Job, JobTable
from carrel_scheduler.core.work.shapes import Shapes
from carrel_scheduler.core.work.tasks import TaskColumns
from carrel_scheduler.core.work.waiting import WaitingRows


class Columns:
    """All nodes, queues and workloads. ``version`` counts the events applied.

    The columns are public for the rest of the core to read; only events change them.

    Attributes:
        waiting: jobs of which nothing holds or was promised room, in rows of equals.
        partial: uid -> all other jobs that ask for room: some of their tasks hold it, were promised
            it, have ended, or may not start yet.
        gated: uid -> jobs that hold nothing and of which no task may start yet.
        holding: uid -> jobs with placed tasks.
        reserved: uid -> jobs for which room is held.
        stale: uid -> jobs that run with fewer tasks than their minimum.
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
        self.over_quota = OverQuota(self.jobs, self.tasks)
        self.warm = WarmInstances()
        self.cache = DecisionCache()
        self.partial: dict[str, Job] = {}
        self.gated: dict[str, Job] = {}
        self.holding: dict[str, Job] = {}
        self.reserved: dict[str, Job] = {}
        self.stale: dict[str, Job] = {}

    def job(self, uid: str) -> Job:
        """The record of a workload. Raises ``UnknownWorkload``."""
        job = self.jobs.by_uid.get(uid)
        if job is None:
            raise UnknownWorkload(uid)
        return job
