"""What of each budget is used: from accounting, remembered for a minute.

Asking costs a sum over all work of the period, so that a submission compares with an answer of up
to a minute ago; a budget is a promise about weeks, not about seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from carrel_scheduler.cached_value import CachedValue
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_schema.governance.budgets import BudgetFields, BudgetOut, began_at
from carrel_schema.objects import Project
from carrel_schema.scopes import scopes_over

KIND: Final = "budget"
NAME: Final = "gpu-hours"
KNOWN_SECONDS: Final = 60.0
SECONDS_OF_AN_HOUR: Final = 3600.0


class BudgetUse:
    """Reads budgets and what is used of them.

    Args:
        ledger: has both.
        clock: epoch seconds.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger, self._clock = ledger, clock
        self._known = CachedValue(self._read, KNOWN_SECONDS, clock)

    def forget(self) -> None:
        """Ask anew at the next question: one was written."""
        self._known.invalidate()

    async def all(self) -> Sequence[BudgetOut]:
        """All budgets, from the widest scope to the narrowest."""
        budgets, _ = await self._known.get()
        return budgets

    async def _read(self) -> tuple[Sequence[BudgetOut], Mapping[str, str]]:
        now = self._clock()
        records = await self._ledger.scoped.list(KIND)
        projects = (await self._ledger.list(Project)).items if records else ()
        departments = {one.meta.name: one.spec.department for one in projects}
        used: dict[tuple[str, float], dict[str, float]] = {}
        found = []
        for record in records:
            fields = read(record)
            since = began_at(fields.period, now)
            level = record.scope.level
            if (level, since) not in used:
                lines = await self._ledger.usage(
                    by="project" if level == "platform" else level,
                    since=since,
                    until=now,
                    departments=departments,
                )
                used[level, since] = {one.key: one.gpu_seconds for one in lines}
            known = used[level, since]
            seconds = sum(known.values()) if level == "platform" else known.get(record.scope.name)
            found.append(out(record, (seconds or 0.0) / SECONDS_OF_AN_HOUR, since))
        return found, departments

    async def used_up(self, project: str, user: str) -> BudgetOut | None:
        """A budget that refuses new work of a user in a project; ``None``: there is room."""
        budgets, departments = await self._known.get()
        if not budgets:
            return None
        over = scopes_over(project=project, department=departments.get(project, ""), user=user)
        scopes = {str(one) for one in over}
        for one in budgets:
            full = one.used_gpu_hours >= one.gpu_hours
            if full and one.scope in scopes and one.at_end == "refuse":
                return one
        return None


def read(record: ScopedRecord) -> BudgetFields:
    """The budget of a record."""
    return msgspec.json.decode(record.content, type=BudgetFields)


def out(record: ScopedRecord, used_gpu_hours: float, since: float) -> BudgetOut:
    """A budget as people see it."""
    fields = read(record)
    return BudgetOut(
        scope=str(record.scope),
        gpu_hours=fields.gpu_hours,
        period=fields.period,
        at_end=fields.at_end,
        description=fields.description,
        used_gpu_hours=used_gpu_hours,
        began_at=since,
        changed_by=record.changed_by,
    )
