"""Deciding, although deciding itself may fail.

A failure is logged and counted, and tried again after a pause that grows. Whoever came to wait
since the last decision that worked is suspected: the newest are taken out of the core's queue one
after the other until it can decide again. The last one taken out is set aside; the others wait on.
"""

from collections.abc import Callable, Iterable
from typing import Final

from carrel_scheduler.core.events import WorkloadGone, WorkloadQueued
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State
from carrel_scheduler.quarantine import Quarantine

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 60.0
MOST_SUSPECTS: Final = 100


class Deciding:
    """See the module.

    Args:
        state: of the core.
        quarantine: where failures and culprits are noted.
        refused: told of the uid of a workload that was taken out of the core's queue.
        decide: what to do at a time; may raise.

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
        """They wait since now."""
        self._arrived |= dict.fromkeys(uids)

    def set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        if self.due_at is not None:
            self.due_at -= seconds

    def waits(self, now: float) -> bool:
        """Whether it failed a moment ago and is not tried again yet."""
        return self.due_at is not None and now < self.due_at

    def plan(self, now: float) -> Plan | None:
        """What to do now; ``None`` where that cannot be told."""
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
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 16), LONGEST_PAUSE_SECONDS)
        self._failures += 1
        self.due_at = now + pause

    def _without_culprit(self, now: float, error: Exception) -> Plan | None:
        """A plan without one of those that came last; ``None`` where it is none of them."""
        taken: list[WorkloadQueued] = []
        for uid in list(reversed(self._arrived))[:MOST_SUSPECTS]:
            job = self._state.jobs.by_uid.get(uid)
            if job is None or job.rows:
                continue
            self._state.apply(WorkloadGone(uid))
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
