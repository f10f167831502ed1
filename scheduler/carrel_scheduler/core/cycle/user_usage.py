"""Use by users in queues that share between them, in one cycle; see ``queues.user_order``.

As of queues, placed and reserved capacity counts, and what is terminating does not. A cycle in
which no queue shares between its users has no ``UserUsage``.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.queues.user_order import Held, Place, UserOrder, place_of
from carrel_scheduler.core.work.jobs import JobInfo

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns


class UserUsage:
    """GPU thousandths and millicores that each user holds or has reserved, by queue."""

    def __init__(self, state: "Columns") -> None:
        """The usage at the start of the cycle; ``add`` follows the changes."""
        self._fair = state.queues.table.fair_users
        self._held: dict[tuple[int, str], list[int]] = {}
        tasks, jobs = state.tasks, state.jobs
        rows = tasks.used()
        rows = rows[~tasks.stopping.take(rows)]
        slots = tasks.job.take(rows)
        mine = np.array(self._fair, np.bool_).take(jobs.queue.take(slots))
        rows, slots = rows[mine], slots[mine]
        gpus = np.bincount(slots, tasks.gpu.take(rows)).astype(np.int64)
        cores = np.bincount(slots, tasks.host[0].take(rows)).astype(np.int64)
        for slot in np.unique(slots).tolist():
            self.add(jobs.at(slot), (gpus.item(slot), cores.item(slot)))
        for job in state.reserved.values():
            for _, place in job.reservation:
                self.add(job, place.amounts)

    def add(self, job: JobInfo, amounts: Sequence[int], sign: int = 1) -> None:
        """Add what a job begins to hold; a negative sign removes it."""
        if self._fair[job.queue]:
            held = self._held.setdefault((job.queue, job.spec.user), [0, 0])
            held[0] += sign * amounts[0]
            held[1] += sign * amounts[1]

    def held(self, queue: int, user: str) -> Held:
        """The amounts that a user holds in a queue."""
        gpu, cpu = self._held.get((queue, user), (0, 0))
        return gpu, cpu

    def counts(self, queue: int) -> bool:
        """Whether a queue orders work by the use of its users."""
        return self._fair[queue]

    def place(self, job: JobInfo) -> Place:
        """The place of a job in its queue by what its user holds now; smaller goes first."""
        held = self.held(job.queue, job.spec.user)
        above, since, uid = job.order
        return place_of((above, 0, since, uid), held)

    def in_turn(self, queue: int, jobs: Iterable[JobInfo]) -> list[JobInfo]:
        """Jobs of a queue as they are served one after the other, each counted as it is."""
        served: dict[str, Held] = {}

        def held(user: str) -> Held:
            return served.get(user) or self.held(queue, user)

        turns: UserOrder[JobInfo] = UserOrder(held)
        for job in jobs:
            above, since, uid = job.order
            turns.push(job.spec.user, (above, 0, since, uid), job)
        order: list[JobInfo] = []
        while (best := turns.pop()) is not None:
            user, first = best.spec.user, best.shape.first
            gpu, cpu = held(user)
            served[user] = gpu + first[0], cpu + first[1]
            order.append(best)
        return order
