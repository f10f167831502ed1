"""Timing of the reconciler: its runs, its calls of the core, and pauses after failures.

The core is asked when its state changed, or for the periodic resync, but not while the loop pauses
after a long decision. A failure is logged and counted, and tried again after a back-off. The
workloads queued since the last decision that worked are suspects: the newest are taken out of the
core's queue one after the other until it can decide again. The last one taken out is set aside; the
others wait on.

While events are handled and the core decides, the garbage collector rests; see ``collecting``.

Times are the wall clock's, so that they mean something after a restart. When the clock is set back,
everything that waits for a time moves with it: it would otherwise wait as much longer.
"""

import asyncio
import gc
import heapq
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.core.events import WorkloadQueued, WorkloadRemoved
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.lifecycle.outcomes import loss_pause_seconds, pause_seconds
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.events import LoopEvent

PAUSES: Final = Pauses(0.5, 60.0)
MOST_SUSPECTS: Final = 100


class GuardedDecide:
    """The core's ``decide``, with failures handled.

    Args:
        state: of the core.
        quarantine: where failures and culprits are noted.
        refused: called with the uid of a workload that was taken out of the core's queue.
        decide: makes the plan at a time; may raise.

    Attributes:
        due_at: when deciding is tried again; ``None`` unless it failed.
    """

    def __init__(
        self,
        state: State,
        quarantine: Quarantine,
        refused: Callable[[str], None],
        decide: Callable[[float], Plan],
    ) -> None:
        self._state, self._quarantine, self._refused = state, quarantine, refused
        self._decide = decide
        self._arrived: dict[str, None] = {}
        self._failures = 0
        self.due_at: float | None = None

    def queued(self, uids: Iterable[str]) -> None:
        """Record workloads that are pending from now on."""
        self._arrived |= dict.fromkeys(uids)

    def clock_set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        if self.due_at is not None:
            self.due_at -= seconds

    def waits(self, now: float) -> bool:
        """Whether a decision failed recently, so that the next attempt has to wait."""
        return self.due_at is not None and now < self.due_at

    def plan(self, now: float) -> Plan | None:
        """The plan of the core; ``None`` after a failure."""
        try:
            plan = self._decide(now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop goes on
            self._quarantine.put("decision", "plan", error)
            plan_without = self._without_culprit(now, error)
            if plan_without is None:
                self._failed(now)
                return None
            plan = plan_without
        self._arrived.clear()
        self._failures, self.due_at = 0, None
        self._quarantine.release("decision", "plan")
        return plan

    def _failed(self, now: float) -> None:
        pause = PAUSES.after(self._failures)
        self._failures += 1
        self.due_at = now + pause

    def _without_culprit(self, now: float, error: Exception) -> Plan | None:
        """A plan without one of those that came last; ``None`` where it is none of them."""
        taken: list[WorkloadQueued] = []
        for uid in list(reversed(self._arrived))[:MOST_SUSPECTS]:
            job = self._state.jobs.by_uid.get(uid)
            if job is None or job.rows:
                continue
            self._state.apply(WorkloadRemoved(uid))
            taken.append(job.spec)
            if self._decides(now):
                culprit = taken.pop()
                self._quarantine.put("workload", culprit.uid, error)
                self._refused(culprit.uid)
                break
        else:
            self._queue_again(taken)
            return None
        self._queue_again(taken)
        return self._decided(now)

    def _queue_again(self, taken: list[WorkloadQueued]) -> None:
        for spec in reversed(taken):
            self._state.apply(spec)

    def _decides(self, now: float) -> bool:
        return self._decided(now) is not None

    def _decided(self, now: float) -> Plan | None:
        try:
            return self._decide(now)
        except Exception:  # noqa: BLE001 - it is another of the suspects, or none of them
            return None


class Decider:
    """See the module.

    Args:
        state: of the core.
        clock: epoch seconds.
        quarantine, refused, decide: see ``GuardedDecide``.
        preview: what would be done at a time, for requests meanwhile.
    """

    def __init__(
        self,
        state: State,
        clock: Callable[[], float],
        quarantine: Quarantine,
        refused: Callable[[str], None],
        decide: Callable[[float], Plan],
        preview: Callable[[float], Plan],
    ) -> None:
        self._state, self._clock, self._decide_now = state, clock, preview
        self._guarded = GuardedDecide(state, quarantine, refused, decide)
        self._pacing = Pacing(clock)
        self._resync = Resync()
        self._decided: int | None = None
        self._preview: Plan | None = None

    @property
    def due_at(self) -> float | None:
        """The time at which the core must be asked again without an event; epoch seconds."""
        return self._guarded.due_at or self._pacing.due_at or self._resync.due_at

    def clock_set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        self._resync.clock_set_back(seconds)
        self._guarded.clock_set_back(seconds)

    def queued(self, uids: Iterable[str]) -> None:
        """Record workloads that are pending from now on."""
        self._guarded.queued(uids)

    def ask_again(self) -> None:
        """Request a decision although no event arrived: time alone may change the plan."""
        self._decided = None

    def preview(self) -> Plan:
        """The plan that the core would make now, cached until the state changes."""
        if self._preview is None or self._preview.version != self._state.version:
            self._preview = self._decide_now(self._clock())
        return self._preview

    def plan(self, now: float) -> Plan | None:
        """The plan; ``None`` where nothing has changed, or not yet."""
        if self._decided == self._state.version and not self._resync.due(now):
            return None
        if self._pacing.put_off(self._clock()) or self._guarded.waits(now):
            return None
        with self._pacing.measured():
            plan = self._guarded.plan(now)
        if plan is None:
            self._decided = None
            return None
        self._resync.decided(now, waiting=self._state.asking > 0)
        return plan

    def carried_out(self, plan: Plan) -> bool:
        """The plan is in the state; returns whether the core is to be asked again at once."""
        if plan.bindings or plan.evictions or plan.nominations:
            return True
        self._decided, self._preview = self._state.version, plan
        return False


log = logging.getLogger(__name__)
REST: Final = 3.0
LONGEST_SECONDS: Final = 1.0
RESYNC_SECONDS: Final = 15.0
TOLERATED_SECONDS: Final = 1.0


class Inbox:
    """The events that wait, in the order of their arrival; used in the event loop only.

    Tens of messages may belong to one workload, so it is bare.
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer, self._since = timer, 0.0
        self._messages: deque[LoopEvent] = deque()
        self._bell: asyncio.Event = asyncio.Event()

    def put(self, message: LoopEvent) -> None:
        """Add an event and wake the reconciler."""
        if not self._messages:
            self._since = self._timer()
        self._messages.append(message)
        self._bell.set()

    def take(self) -> LoopEvent:
        """Remove and return the oldest event; fails when there is none."""
        return self._messages.popleft()

    def __len__(self) -> int:
        """The number of events that wait."""
        return len(self._messages)

    @property
    def age_seconds(self) -> float:
        """Seconds for which events have been waiting; 0 when none does."""
        return self._timer() - self._since if self._messages else 0.0

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._messages

    async def wait(self, seconds: float | None) -> None:
        """Return once there is an event, or after the timeout in seconds."""
        self._bell.clear()
        if self._messages:
            return
        try:
            # Not wait_for: it forgets a cancellation that comes together with a message.
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        except TimeoutError:
            return


class Timers:
    """Timers of workloads."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """The number of timers that are set."""
        return len(self._heap)

    def set(self, when: float, uid: str) -> None:
        """Set the timer of a workload, epoch seconds."""
        heapq.heappush(self._heap, (when, uid))

    def take_due(self, now: float) -> list[str]:
        """Remove the timers that are due; returns their uids in order."""
        due: set[str] = set()
        while self._heap and self._heap[0][0] <= now:
            due.add(heapq.heappop(self._heap)[1])
        return sorted(due)

    @property
    def due_at(self) -> float | None:
        """The time at which the next timer is due."""
        return self._heap[0][0] if self._heap else None

    def clock_set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        self._heap = [(when - seconds, uid) for when, uid in self._heap]


class Pacing:
    """Pauses after long work, in which the shared thread answers requests.

    With thousands in the queue a decision takes tens of milliseconds, and a burst of submissions
    would ask for one every few; deciding on many at once costs as much as on one. Short work is
    followed by pauses too short to notice.

    Args:
        clock: seconds; it may be set back without harm.
        rest: how many times as long as the work the pause is.
    """

    def __init__(self, clock: Callable[[], float], rest: float = REST) -> None:
        self._clock, self._rest = clock, rest
        self._since = self._until = -math.inf
        self._put_off = False

    @property
    def due_at(self) -> float | None:
        """The time at which postponed work is due; ``None`` without any."""
        return self._until if self._put_off else None

    def put_off(self, now: float) -> bool:
        """Whether new work has to wait until ``due_at``."""
        self._put_off = self._since <= now < self._until
        return self._put_off

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the block's duration; the pause that follows is a few times as long."""
        began = self._clock()
        yield
        self._since = self._clock()
        rest = min(LONGEST_SECONDS, self._rest * max(0.0, self._since - began))
        self._until = self._since + rest


class Resync:
    """Intervals at which the core decides again though nothing has happened.

    Delays, minimum run times and the grace of stale gangs follow the clock: as long as workloads
    are pending, the core is asked at intervals on an unchanged state.

    Attributes:
        due_at: epoch seconds; ``None`` while nothing is pending.
    """

    def __init__(self) -> None:
        self.due_at: float | None = None

    def decided(self, now: float, *, waiting: bool) -> None:
        """Record a decision; ``waiting``: whether workloads are still pending."""
        self.due_at = now + RESYNC_SECONDS if waiting else None

    def due(self, now: float) -> bool:
        """Whether it is time for the next decision."""
        return self.due_at is not None and self.due_at <= now

    def clock_set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        if self.due_at is not None:
            self.due_at -= seconds


class ClockSkew:
    """Detects that the clock was set back."""

    def __init__(self) -> None:
        self._latest: float | None = None

    def measure(self, now: float) -> float:
        """Seconds by which the clock was set back since the last call, else 0."""
        latest, self._latest = self._latest, now
        if latest is None or latest - now <= TOLERATED_SECONDS:
            return 0.0
        back = latest - now
        log.warning("the clock was set back by %.0f s: pauses and limits move with it", back)
        return back


def clock_set_back(entry: CachedWorkload, seconds: float) -> None:
    """Move a workload's timers by the time that the clock was set back."""
    status = entry.workload.status
    if status.not_before is not None:
        status.not_before -= seconds
    if entry.gone_by is not None:
        entry.gone_by -= seconds
    if entry.meet_until is not None:
        entry.meet_until -= seconds
    if entry.claim_until is not None:
        entry.claim_until -= seconds
    entry.hear_until -= seconds
    entry.look_at -= seconds


def limit_pause(entry: CachedWorkload, now: float) -> None:
    """Limit the pause, after a restart, to the length that the failures so far allow."""
    status = entry.workload.status
    if status.not_before is not None:
        longest = max(pause_seconds(status.failures), loss_pause_seconds(status.losses))
        status.not_before = min(status.not_before, now + longest)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector from running inside; what is due then follows afterwards.

    A decision that evicts 40,000 tasks makes as many objects, which would be looked at eight times.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
