"""The weekly report: what was used in the week that ended, to the channels that want it.

It is sent on Mondays from 6:00 UTC on, once: when it was sent last is kept in the ledger. A channel
that does not take it is tried again at the next look, until the next week.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from carrel_scheduler.alerts.messages import NotDelivered
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.periodic import run_periodically
from carrel_schema.governance.alerts import ChannelFields
from carrel_schema.governance.costs import BudgetOut, began_at, parts_of
from carrel_schema.history import Usage

log = logging.getLogger(__name__)
SENT: Final = "weekly_reports_sent"
WEEK_SECONDS: Final = 7 * 86_400.0
FROM_HOUR_SECONDS: Final = 6 * 3600.0
PAUSE_SECONDS: Final = 600.0
MOST_LINES: Final = 30
HOUR: Final = 3600.0
Tell = Callable[[str, ChannelFields, str, str], Awaitable[None]]
"""Tells a channel (name, channel, subject, text); raises ``NotDelivered``."""


class WeeklyReports:
    """Sends the weekly reports.

    Args:
        ledger: has what was used, and remembers what was sent.
        channels: all, by name.
        budgets: what of them is used.
        tell: sends.
        clock: epoch seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        channels: Callable[[], Awaitable[dict[str, ChannelFields]]],
        budgets: Callable[[], Awaitable[Sequence[BudgetOut]]],
        tell: Tell,
        clock: Callable[[], float],
    ) -> None:
        self._ledger, self._channels, self._budgets = ledger, channels, budgets
        self._tell, self._clock = tell, clock

    async def run(self) -> None:
        """Send reports that are due, periodically, until cancelled."""
        await run_periodically(self.once, PAUSE_SECONDS, log, "the weekly report was not sent")

    async def once(self) -> None:
        """Send the reports that are due."""
        now = self._clock()
        monday = began_at("week", now)
        if now < monday + FROM_HOUR_SECONDS:
            return
        sent = dict((await self._ledger.settings()).get(SENT) or {})
        wanting = {
            name: channel
            for name, channel in (await self._channels()).items()
            if channel.weekly_report and sent.get(name, 0.0) < monday
        }
        if not wanting:
            return
        subject, text = await self._report(monday)
        for name, channel in wanting.items():
            try:
                await self._tell(name, channel, subject, text)
            except NotDelivered as error:
                log.warning("the weekly report could not be sent to channel %s: %s", name, error)
                continue
            sent[name] = now
            await self._ledger.put_setting(SENT, sent)

    async def _report(self, monday: float) -> tuple[str, str]:
        since = monday - WEEK_SECONDS
        by_project = await self._ledger.usage(by="project", since=since, until=monday)
        by_user = await self._ledger.usage(by="user", since=since, until=monday)
        subject = f"Carrel: use in the week from {_day(since)} to {_day(monday - 1)}"
        return subject, report_of(by_project, by_user, await self._budgets())


def report_of(
    by_project: Sequence[Usage], by_user: Sequence[Usage], budgets: Sequence[BudgetOut]
) -> str:
    """The report as plain text; the largest first."""
    total = sum(one.gpu_seconds for one in by_project) / HOUR
    idle = sum(one.gpu_idle_seconds for one in by_project) / HOUR
    parts = [f"{total:,.1f} GPU-hours were allocated, of which {idle:,.1f} were measured idle."]
    for title, lines in (("Projects", by_project), ("Users", by_user)):
        most = sorted(lines, key=lambda one: (-one.gpu_seconds, one.key))[:MOST_LINES]
        width = max((len(one.key) for one in most), default=0)
        rows = [
            f"  {one.key:<{width}}  {one.gpu_seconds / HOUR:>10,.1f} GPU-h"
            f"  {one.borrowed_gpu_seconds / HOUR:>9,.1f} borrowed"
            f"  {one.gpu_idle_seconds / HOUR:>9,.1f} idle  {one.workloads:>5} jobs"
            for one in most
        ]
        parts.append("\n".join([f"{title}:", *(rows or ["  none"])]))
    used = [
        f"  {one.scope}: {' and '.join(map(str, parts_of(one)))} ({one.period})" for one in budgets
    ]
    if used:
        parts.append("\n".join(["Budgets:", *used]))
    return "\n\n".join(parts)


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
