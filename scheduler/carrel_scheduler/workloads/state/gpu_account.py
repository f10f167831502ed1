"""GPU-seconds that workloads used and left idle, summed up from readings until they are written.

Used is the utilisation of each GPU times the time; idle is the time of GPUs that were held while
none of the workload's worked. Time without readings counts as neither.
"""

from dataclasses import dataclass
from typing import Final

from carrel_scheduler.ledger.records import GpuUse
from carrel_schema.objects import Workload

WRITE_SECONDS: Final = 300.0


@dataclass(slots=True)
class _GpuSum:
    workload: Workload
    place: tuple[str, str]
    since: float
    until: float
    used: float = 0.0
    idle: float = 0.0


class GpuAccount:
    """Sums by workload, and by GPU type and node group.

    Attributes:
        due_at: when they are to be written; ``None``: there are none.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, tuple[str, str]], _GpuSum] = {}
        self.due_at: float | None = None

    def add(
        self,
        workload: Workload,
        since: float,
        until: float,
        *,
        used_gpus: float,
        idle_gpus: float,
        place: tuple[str, str] = ("", ""),
    ) -> None:
        """Add the mean number of used and of idle GPUs between two readings.

        ``place`` is the GPU type and the node group of these GPUs.
        """
        if until <= since:
            return
        if self.due_at is None:
            self.due_at = until + WRITE_SECONDS
        key = (workload.meta.uid, place)
        found = self._sums.setdefault(key, _GpuSum(workload, place, since, until))
        found.since, found.until = min(found.since, since), max(found.until, until)
        found.used += used_gpus * (until - since)
        found.idle += idle_gpus * (until - since)

    def take(self) -> list[GpuUse]:
        """The sums to write now; they start again at zero."""
        sums, self._sums, self.due_at = self._sums, {}, None
        return [
            GpuUse(
                workload_uid=uid,
                workload=one.workload.meta.name,
                project=one.workload.meta.project,
                user=one.workload.spec.user,
                since=one.since,
                until=one.until,
                used_gpu_seconds=one.used,
                idle_gpu_seconds=one.idle,
                kind=one.workload.spec.kind,
                gpu_type=one.place[0],
                node_group=one.place[1],
            )
            for (uid, _), one in sums.items()
        ]
