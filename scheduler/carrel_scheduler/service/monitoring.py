"""Monitoring, beside the decisions of a running scheduler: samples, alerts, weekly reports, sums.

Each reads what pages read, in a task of its own; none can end the scheduler or hold it up.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from carrel_scheduler.alerts.controller import AlertController
from carrel_scheduler.alerts.weekly import WeeklyReports
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.policy.budgets import BudgetUse
from carrel_scheduler.service.alert_facts import AlertFacts, AlertSources
from carrel_scheduler.service.probes import PartProbes, addresses
from carrel_scheduler.service.sampling import LiveSample, Sampler
from carrel_scheduler.service.settings import ServiceSettings
from carrel_scheduler.service.usage_aggregation import UsageAggregation
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler


class Monitoring:
    """The monitoring of one scheduler.

    Args:
        settings: of its process.
        ledger: keeps samples, and the states of alerts.
        loop: what is looked at.
        live: the same, as people see it.
        clock: epoch seconds.
        trouble: what is in the way of all work, a sentence; empty: nothing.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        ledger: Ledger,
        loop: Reconciler,
        live: LiveState,
        clock: Callable[[], float],
        trouble: Callable[[], str] = str,
    ) -> None:
        self._probes = PartProbes(addresses(settings), urlsplit(settings.public_url).netloc)
        sources = AlertSources(
            folder=settings.state_dir,
            engine=settings.engine,
            certificate=settings.certificate,
            trouble=trouble,
            parts=lambda: self._probes.found,
        )
        facts = AlertFacts(loop, live, sources)
        self.budgets = BudgetUse(ledger, clock)
        self.alerts = AlertController(
            ledger, facts, clock, settings.alerts_address, self.budgets.all
        )
        self._sampler = Sampler(ledger.samples, LiveSample(loop, live), clock, ledger.settings)
        self._aggregation = UsageAggregation(ledger, time.monotonic)
        self._weekly = WeeklyReports(
            ledger, self.alerts.channels, self.budgets.all, self.alerts.tell_text, clock
        )

    def begin(self, group: asyncio.TaskGroup) -> Sequence["asyncio.Task[None]"]:
        """Start the periodic tasks."""
        own_work = self.alerts.subscriptions
        parts = (
            self.alerts,
            own_work,
            self._probes,
            self._sampler,
            self._weekly,
            self._aggregation,
        )
        return [group.create_task(one.run()) for one in parts]
