"""The used part of each budget, from accounting; cached for a minute.

Asking costs a sum over all work of the period, so that a submission compares with an answer of up
to a minute ago; a budget is a promise about weeks, not about seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from carrel_scheduler.cached_value import CachedValue
from carrel_scheduler.ledger.records import Ledger, Usage
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_schema.governance.costs import BudgetFields, BudgetOut, PriceFields, began_at, parts_of
from carrel_schema.objects import Project
from carrel_schema.scopes import scopes_over

KIND: Final = "budget"
NAME: Final = "gpu-hours"
PRICES: Final = "prices"
"""The kind of record that has the price list."""
KNOWN_SECONDS: Final = 60.0
SECONDS_OF_AN_HOUR: Final = 3600.0


class BudgetUse:
    """Reads budgets and their use.

    Args:
        ledger: has both.
        clock: epoch seconds.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger, self._clock = ledger, clock
        self._known = CachedValue(self._read, KNOWN_SECONDS, clock)

    def forget(self) -> None:
        """Drop the cache, because a budget was written."""
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
        prices = await self.prices() if records else PriceFields()
        used: dict[tuple[str, float], dict[str, Usage]] = {}
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
                    prices=prices.periods,
                )
                used[level, since] = {one.key: one for one in lines}
            known = used[level, since]
            counted = [
                one for key, one in known.items() if level == "platform" or key == record.scope.name
            ]
            found.append(_out(record, counted, prices, since))
        return found, departments

    async def prices(self) -> PriceFields:
        """The price list; empty where none was written."""
        found = await self._ledger.scoped.list(PRICES)
        return msgspec.json.decode(found[0].content, type=PriceFields) if found else PriceFields()

    async def lowering(self) -> frozenset[str]:
        """The scopes of budgets that are used up, and lower priorities then."""
        return frozenset(
            one.scope
            for one in await self.all()
            if one.at_end == "lower-priority" and any(part.used_up for part in parts_of(one))
        )

    async def used_up(self, project: str, user: str) -> BudgetOut | None:
        """A budget that refuses new work of a user in a project; ``None``: there is room."""
        budgets, departments = await self._known.get()
        if not budgets:
            return None
        over = scopes_over(project=project, department=departments.get(project, ""), user=user)
        scopes = {str(one) for one in over}
        for one in budgets:
            full = any(part.used_up for part in parts_of(one))
            if full and one.scope in scopes and one.at_end == "refuse":
                return one
        return None


def read(record: ScopedRecord) -> BudgetFields:
    """The budget of a record."""
    return msgspec.json.decode(record.content, type=BudgetFields)


def _out(
    record: ScopedRecord, counted: Sequence[Usage], prices: PriceFields, since: float
) -> BudgetOut:
    fields = read(record)
    return BudgetOut(
        scope=str(record.scope),
        gpu_hours=fields.gpu_hours,
        cost=fields.cost,
        period=fields.period,
        at_end=fields.at_end,
        description=fields.description,
        used_gpu_hours=sum(one.gpu_seconds for one in counted) / SECONDS_OF_AN_HOUR,
        used_cost=sum(one.cost for one in counted),
        currency=prices.currency if prices.periods else "",
        began_at=since,
        changed_by=record.changed_by,
    )
