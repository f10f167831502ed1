"""Metrics of the reconciler, and one line at level DEBUG for each pass.

The core has no clock: its actions are timed here, around each of them. Elapsed time is that of a
monotonic clock. docs/operations.md says what is normal and what to do when it is not.
"""

import logging
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from carrel_scheduler.core.actions.allocate import allocate
from carrel_scheduler.core.actions.evictions import drain, evict_stale
from carrel_scheduler.core.actions.improve import improve
from carrel_scheduler.core.actions.reservations import replace_reserved, reserve, start_reserved
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.decide import ACTIONS, Action
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.preemption.consolidate import CONSOLIDATE, consolidate_for_entitled
from carrel_scheduler.core.preemption.preempt_and_reclaim import PREEMPT_AND_RECLAIM
from carrel_scheduler.core.preemption.rules import PREEMPT, RECLAIM, RECLAIM_IN_GROUP

log = logging.getLogger(__name__)
BUCKETS: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
LABELS: Final[Mapping[Action, str]] = {
    start_reserved: "reserved",
    allocate: "allocate",
    replace_reserved: "reserved_elsewhere",
    consolidate_for_entitled: "consolidate_deserved",
    RECLAIM.run: "reclaim",
    RECLAIM_IN_GROUP.run: "reclaim_in_group",
    PREEMPT.run: "preempt",
    PREEMPT_AND_RECLAIM.run: "preempt_and_reclaim",
    CONSOLIDATE.run: "consolidate",
    evict_stale: "stale_gangs",
    drain: "drain",
    reserve: "reserve",
    improve: "improve",
}
"""The core's actions by their names in the metrics, which stay."""
Watch = Literal["workloads", "projects", "departments", "tasks", "devices"]


@dataclass(slots=True)
class PassFigures:
    """The measurements of one pass for its log line. Times are seconds."""

    number: int
    began: float
    inbox_seconds: float
    events: int = 0
    decide_seconds: float = 0.0
    commit_seconds: float = 0.0
    failed_searches: int = 0
    started: int = 0
    evicted: int = 0
    reserved: int = 0


class ReconcilerMetrics:
    """See the module.

    Args:
        timer: monotonic seconds.
        inbox_length: how many events wait.
        inbox_age: seconds that the oldest of them has waited.

    Attributes:
        registry: to be collected.
        actions: those of the core, timed.
    """

    def __init__(
        self,
        timer: Callable[[], float] = time.perf_counter,
        *,
        inbox_length: Callable[[], int] = int,
        inbox_age: Callable[[], float] = float,
    ) -> None:
        self._timer = timer
        self._figures = PassFigures(0, 0.0, 0.0)
        self._failed_searches = 0
        self.registry = registry = CollectorRegistry(auto_describe=False)
        histogram = partial(Histogram, buckets=BUCKETS, registry=registry)
        self._passes = histogram("carrel_reconcile_pass_seconds", "Time of a reconcile pass")
        self._inbox = histogram(
            "carrel_inbox_seconds", "Time that the oldest event waited when its pass began"
        )
        self._commits = histogram("carrel_ledger_commit_seconds", "Time to record a pass")
        decide = histogram("carrel_decide_seconds", "Time of each action of a cycle", ("action",))
        counter = partial(Counter, registry=registry)
        self._cycles = counter("carrel_scheduling_cycles", "Scheduling cycles")
        self._searches = counter("carrel_failed_searches", "Searches for victims that found none")
        self._started = counter("carrel_started_tasks", "Tasks that plans started")
        self._evicted = counter(
            "carrel_evicted_workloads", "Workloads that plans evicted, by reason", ("reason",)
        )
        inbox = Gauge("carrel_inbox_events", "Events that wait now", registry=registry)
        inbox.set_function(inbox_length)
        age = Gauge(
            "carrel_inbox_age_seconds", "Time that the oldest event has waited", registry=registry
        )
        age.set_function(inbox_age)
        ages = Gauge(
            "carrel_watch_age_seconds",
            "Time since a watch last delivered anything",
            ("watch",),
            registry=registry,
        )
        self._delivered = dict.fromkeys(get_args(Watch), timer())
        for watch in get_args(Watch):
            ages.labels(watch).set_function(partial(self._age, watch))
        self.actions: Sequence[Action] = [
            self._timed(action, decide.labels(LABELS.get(action.action, "other")).observe)
            for action in ACTIONS
        ]

    def _age(self, watch: Watch) -> float:
        return self._timer() - self._delivered[watch]

    def _timed(self, action: Action, observe: Callable[[float], None]) -> Action:
        def run(cycle: Cycle) -> None:
            began = self._timer()
            action(cycle)
            took = self._timer() - began
            observe(took)
            self._figures.decide_seconds += took

        return run

    def delivered(self, watch: Watch) -> None:
        """Record the delivery of a watch."""
        self._delivered[watch] = self._timer()

    def begin_pass(self, number: int, inbox_seconds: float) -> PassFigures:
        """Record the begin of a pass; the oldest event waited so long."""
        self._figures = PassFigures(number, self._timer(), inbox_seconds)
        return self._figures

    def end_pass(self, figures: PassFigures, waiting: int) -> None:
        """Record the end of a pass; so many workloads wait."""
        took = self._timer() - figures.began
        self._passes.observe(took)
        if figures.events:
            self._inbox.observe(figures.inbox_seconds)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "pass %d: %.2f ms, decide %.2f ms, commit %.2f ms, inbox %.2f ms; %d events, "
                "%d started, %d evicted, %d reserved, %d waiting, %d failed searches",
                figures.number,
                *(took * 1e3, figures.decide_seconds * 1e3),
                *(figures.commit_seconds * 1e3, figures.inbox_seconds * 1e3),
                *(figures.events, figures.started, figures.evicted, figures.reserved),
                *(waiting, figures.failed_searches),
            )

    def decided(self, plan: Plan, failed_searches: int) -> None:
        """Record a cycle's plan; so many searches have failed since the start."""
        figures = self._figures
        figures.started, figures.evicted = len(plan.bindings), len(plan.evictions)
        figures.reserved = len(plan.nominations)
        figures.failed_searches = failed_searches - self._failed_searches
        self._failed_searches = failed_searches
        self._cycles.inc()
        self._searches.inc(figures.failed_searches)
        self._started.inc(figures.started)
        for reason, count in Counts(one.reason.token.value for one in plan.evictions).items():
            self._evicted.labels(reason).inc(count)

    @contextmanager
    def commit(self) -> Iterator[None]:
        """The ledger records a pass within."""
        began = self._timer()
        yield
        took = self._timer() - began
        self._commits.observe(took)
        self._figures.commit_seconds += took
