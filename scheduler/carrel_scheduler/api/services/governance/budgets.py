"""Budgets in the form of the API."""

from collections.abc import Sequence

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.scoped_records import ScopedRecord, scope_exists
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.policy.budgets import KIND, NAME, BudgetUse
from carrel_schema.governance.costs import WHEN, BudgetFields, BudgetOut, parts_of
from carrel_schema.scopes import Scope


class BudgetService:
    """Reads, writes and applies budgets."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps
        self._use = deps.budgets or BudgetUse(deps.ledger, deps.clock)

    async def visible(self, principal: Principal) -> Sequence[BudgetOut]:
        """Budgets of scopes whose consumption the caller may see, and the caller's own."""
        found = await self._use.all()
        return [one for one in found if principal.may("usage:read", Scope.parse(one.scope))]

    async def put(self, scope: Scope, fields: BudgetFields, principal: Principal) -> BudgetOut:
        """Give a scope a budget.

        Raises ``Missing`` for a scope that is not there, ``InvalidRequest`` without an amount,
        ``Conflicting`` for money without prices.
        """
        if not await scope_exists(self._deps.ledger, scope):
            raise problems.Missing(
                Code.NOT_FOUND, f"There is no {scope.level} `{scope.name}` that you can see"
            )
        if fields.gpu_hours is None and fields.cost is None:
            raise problems.invalid_field(
                "gpu_hours", Code.MISSING_FIELD, None, "`gpu_hours`, `cost` or both"
            )
        if fields.cost is not None and not (await self._use.prices()).periods:
            raise problems.Conflicting(
                Code.CONFLICT,
                "cost: a budget in money needs prices, and there are none: write them first "
                "(`carrel prices set`, PUT /prices)",
            )
        content = msgspec.Raw(msgspec.json.encode(fields))
        record = ScopedRecord(kind=KIND, scope=scope, name=NAME, content=content)
        await self._deps.ledger.scoped.put(record, actor=principal.name)
        self._use.forget()
        return next(one for one in await self._use.all() if one.scope == str(scope))

    async def delete(self, scope: Scope) -> None:
        """Take a budget away. Raises ``Missing``."""
        try:
            await self._deps.ledger.scoped.remove(KIND, scope, NAME)
        except ObjectNotFound:
            raise problems.Missing(Code.NOT_FOUND, f"{scope} has no budget") from None
        self._use.forget()

    async def admit(self, project: str, user: str) -> None:
        """Refuse new work where a budget is used up. Raises ``PermissionDenied``."""
        found = await self._use.used_up(project, user)
        if found is not None:
            full = next(part for part in parts_of(found) if part.used_up)
            raise problems.PermissionDenied(
                Code.BUDGET_USED_UP,
                f"The budget of {found.scope} is used up: {full} {WHEN.get(found.period, '')}. Who "
                "administers it can raise it; running work goes on",
            )
