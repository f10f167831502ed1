"""The clock was set back: what was to come after so many seconds still does.

Times that are kept are the wall clock's, so that they mean something after a restart. When it is
set right, by an hour say, all that waits for a time would else wait an hour longer.
"""

import logging
from typing import TYPE_CHECKING, Final

from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.lifecycle.outcomes import loss_pause_seconds, pause_seconds

if TYPE_CHECKING:
    from carrel_scheduler.workloads.reconcile.reconciler import Reconciler

log = logging.getLogger(__name__)
TOLERATED_SECONDS: Final = 1.0


class ClockWatch:
    """Notices that a loop's clock went back."""

    def __init__(self) -> None:
        self._latest: float | None = None

    def look(self, loop: "Reconciler", now: float) -> float:
        """By how many seconds it was set back since the last look, else 0; times are mended."""
        latest, self._latest = self._latest, now
        if latest is None or latest - now <= TOLERATED_SECONDS:
            return 0.0
        back = latest - now
        log.warning("the clock was set back by %.0f s: pauses and limits move with it", back)
        for entry in loop.cache:
            _mend(entry, back)
        loop.external_pods.clock_set_back(back)
        if loop.reports.due_at is not None:
            loop.reports.due_at -= back
        return back


def not_later(entry: CachedWorkload, now: float) -> None:
    """After a restart: no pause is longer than the failures so far ask for."""
    status = entry.workload.status
    if status.not_before is not None:
        longest = max(pause_seconds(status.failures), loss_pause_seconds(status.losses))
        status.not_before = min(status.not_before, now + longest)


def _mend(entry: CachedWorkload, back: float) -> None:
    status = entry.workload.status
    if status.not_before is not None:
        status.not_before -= back
    if entry.gone_by is not None:
        entry.gone_by -= back
    if entry.meet_until is not None:
        entry.meet_until -= back
    if entry.claim_until is not None:
        entry.claim_until -= back
    entry.hear_until -= back
    entry.look_at -= back
