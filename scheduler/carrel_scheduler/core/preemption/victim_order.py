"""Who may give way, and in which order.

Inside a queue the order of victims is the reverse of the order of service: lower priority first,
then what is beyond its minimum, then what has its minimum. Of these what people see as borrowed
goes before what they see as covered by the quota. Among equals goes first who loses the least work
since its last checkpoint (since its start, if it never reported one), then the younger.
Between queues the reverse order of service decides; work lost is compared only inside a queue, so
reporting checkpoints, or not reporting any, makes no project a better or worse victim.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.queues.order import VictimOrder
from carrel_scheduler.core.resources import MILLI, Triple, added
from carrel_scheduler.core.work.gang_steps import Shed, shed_steps
from carrel_scheduler.core.work.jobs import Job

MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Share:
    """What a victim gives at once: some of its tasks.

    ``core``: nothing of it runs on. ``nodes``: where these tasks lie.
    """

    job: Job
    indices: tuple[int, ...]
    amounts: Triple
    core: bool
    nodes: tuple[int, ...]

    @property
    def carries(self) -> bool:
        """Whether what its job gave before it may be of no use without it."""
        return self.core or len(self.indices) > 1


def lost_work(job: Job, gpu_milli: int, now: float) -> int:
    """Work that stopping it loses, in GPU-milliseconds; work without GPUs counts as on one."""
    gpus = gpu_milli / MILLI if gpu_milli else 1.0
    return int(gpus * max(0.0, (now - job.since) * MILLISECONDS))


class Victim:
    """One job, giving step by step."""

    __slots__ = ("_cycle", "_steps", "job", "left", "taken")

    def __init__(self, cycle: Cycle, job: Job, *, core: bool) -> None:
        """``core``: also what it cannot run without."""
        self._cycle, self.job = cycle, job
        states = cycle.states_of(job)
        steps = shed_steps(job.shape.structure, states)
        keeps = not core or (job.spec.preemptible is Preemptibility.SURPLUS and not job.uncovered)
        safe = job.core
        self._steps: Iterator[Shed] = (
            s for s in steps if not (s.core and keeps) and safe.isdisjoint(s.tasks)
        )
        self.left = sum(len(state.running) for state in states)
        self.taken: Share | None = None

    def next(self) -> Share | None:
        """The next share; ``None`` when it has nothing more to give."""
        shed = next(self._steps, None)
        if shed is None:
            return None
        place_of = self._cycle.moves.place_of
        places = [place_of(self.job, index) for index in shed.tasks]
        self.left -= len(shed.tasks)
        nodes = tuple(dict.fromkeys(place.node for place in places))
        held = added(place.amounts for place in places)
        return Share(self.job, shed.tasks, held, shed.core, nodes)


Entry = tuple[tuple[int | float | str, ...], int, Victim, Share]
"""Key, number, who gives, what."""


class Giving:
    """All that may give way for one claim, in the order of victims."""

    def __init__(
        self,
        cycle: Cycle,
        jobs: Iterable[Job],
        protected: Callable[[Job], bool],
    ) -> None:
        """``jobs``: those that may give; ``protected``: they keep what they cannot run without."""
        self._cycle = cycle
        self._heaps: dict[int, list[Entry]] = {}
        self._count = 0
        for job in jobs:
            self._push(Victim(cycle, job, core=not protected(job)))

    def shares(
        self,
        legal: Callable[[Share], bool],
        wholly: Callable[[Share], bool] | None = None,
    ) -> Iterator[Share]:
        """Shares in order; what is yielded counts as given before the next one is looked for.

        Args:
            legal: whether a share may be taken now; who may not is left out for good.
            wholly: whether all of a share lies beyond what its queue keeps. Those that would take
                their queue below it come after the others of their queue and priority.
        """
        order = VictimOrder(self._cycle.queue_usage, self._head, self._heaps)
        while (leaf := order.pop()) is not None:
            key, number, victim, share = heapq.heappop(self._heaps[leaf])
            if legal(share):
                if key[1] or wholly is None or wholly(share):
                    yield share
                    self._push(victim)
                else:
                    later = (key[0], 1, *key[2:])
                    heapq.heappush(self._heaps[leaf], (later, number, victim, share))
            order.update(leaf)

    def _head(self, leaf: int) -> Triple | None:
        heap = self._heaps.get(leaf)
        if not heap:
            return None
        return heap[0][3].amounts

    def _push(self, victim: Victim) -> None:
        before = victim.left
        share = victim.next()
        if share is None:
            return
        job, spec = victim.job, victim.job.spec
        least = len(job.shape.first_step)
        stage = 2 if before > least else 1
        if job.rows:
            lost = lost_work(job, share.amounts[0], self._cycle.now)
            state = self._cycle.state
            kept = not state.over_quota.has(state.queues, job)
        else:  # it would only start in this cycle
            lost, kept = 0, False
        tie = (-spec.created_at, *(-ord(c) for c in spec.uid))
        key = (spec.priority, 0, -stage, kept, lost, *tie)
        self._count += 1
        heap = self._heaps.setdefault(job.queue, [])
        heapq.heappush(heap, (key, self._count, victim, share))
