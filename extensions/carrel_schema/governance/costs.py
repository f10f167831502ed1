"""Prices of allocated resources, and budgets for their use in a period.

A price is one by the hour, and holds from a time on. A budget is of GPU-hours or money, for a
department, a project or a user.

What was used is what accounting says. From shares of it on somebody is told (the alert ``budget``);
what is used up refuses new work, or lowers its priority, where the budget says so. Running work
goes on.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from typing_extensions import override

from carrel_schema.answers import Answer
from carrel_schema.constraints import MOST_EPOCH_SECONDS, Constraint, Text

Period = Literal["week", "month", "quarter", "year", "total", "sliding-week"]
AtEnd = Literal["warn", "refuse", "lower-priority"]
WHEN: Final = {
    "week": "of this week",
    "month": "of this month",
    "quarter": "of this quarter",
    "year": "of this year",
    "total": "in all",
    "sliding-week": "in the last seven days",
}
"""The period of a budget in words."""


class BudgetFields(msgspec.Struct, frozen=True, kw_only=True):
    """A budget as it is written: GPU-hours, money or both; it ends with the first.

    Attributes:
        gpu_hours: that may be used in a period; ``None``: any.
        cost: by the price list, in its currency, of all that is allocated; ``None``: any.
        period: of the calendar (UTC), Monday begins a week; ``total``: since the first work;
            ``sliding-week``: the last seven days at any time.
        at_end: what happens when it is used up: nothing but an alert; new work with GPUs is
            refused; or new and waiting work with GPUs gets the lowest named priority and is
            preemptible, as long as it is used up.
        description: for people.
    """

    gpu_hours: Annotated[float, Constraint(ge=0, le=1e9)] | None = None
    cost: Annotated[float, Constraint(ge=0, le=1e12)] | None = None
    period: Period = "month"
    at_end: AtEnd = "warn"
    description: Annotated[Text, Constraint(max_length=1000)] = ""


class BudgetOut(Answer, frozen=True, kw_only=True):
    """A budget, with what was used of it since ``began_at``.

    ``currency`` is that of ``cost`` and ``used_cost``, empty without prices.
    """

    scope: str
    gpu_hours: float | None = None
    cost: float | None = None
    period: str = "month"
    at_end: str = "warn"
    description: str = ""
    used_gpu_hours: float = 0.0
    used_cost: float = 0.0
    currency: str = ""
    began_at: float = 0.0
    changed_by: str = ""


class BudgetPart(NamedTuple):
    """An amount of a budget: how much of it is used, what is allowed, and of what."""

    used: float
    allowed: float
    unit: str

    @property
    def used_up(self) -> bool:
        """Whether nothing is left of the amount."""
        return self.used >= self.allowed

    @override
    def __str__(self) -> str:
        """``12.5 of 50 GPU-hours``."""
        return f"{self.used:,.1f} of {self.allowed:,g} {self.unit}"


def parts_of(budget: BudgetOut) -> list[BudgetPart]:
    """List the amounts that a budget limits, GPU-hours first."""
    found = []
    if budget.gpu_hours is not None:
        found.append(BudgetPart(budget.used_gpu_hours, budget.gpu_hours, "GPU-hours"))
    if budget.cost is not None:
        found.append(BudgetPart(budget.used_cost, budget.cost, budget.currency or "of cost"))
    return found


class BudgetList(Answer, frozen=True, kw_only=True):
    """Budgets of the scopes that the caller may see."""

    items: Sequence[BudgetOut] = ()


def began_at(period: Period, now: float) -> float:
    """Compute when the present period began, in epoch seconds."""
    if period == "sliding-week":
        return now - 7 * 86_400
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        return today.timestamp() - today.weekday() * 86_400
    if period == "month":
        return today.replace(day=1).timestamp()
    if period == "quarter":
        return today.replace(month=today.month - (today.month - 1) % 3, day=1).timestamp()
    if period == "year":
        return today.replace(month=1, day=1).timestamp()
    return 0.0


Price = Annotated[float, Constraint(ge=0, le=1e6)]


class PricePeriod(msgspec.Struct, frozen=True, kw_only=True):
    """Prices that hold from a time on, until the next ones do.

    Attributes:
        since: epoch seconds; 0: always before the next.
        gpu_hour: of one GPU for an hour; a share costs its share.
        cpu_hour: of one core.
        memory_gib_hour: of one GiB of memory.
    """

    since: Annotated[float, Constraint(ge=0, le=MOST_EPOCH_SECONDS)] = 0.0
    gpu_hour: Price = 0.0
    cpu_hour: Price = 0.0
    memory_gib_hour: Price = 0.0


class PriceFields(msgspec.Struct, frozen=True, kw_only=True):
    """The price list as it is written: complete, in order of time.

    Attributes:
        currency: shown behind amounts, as EUR.
        periods: in order of ``since``; none: nothing costs anything.
    """

    currency: Annotated[
        str, Constraint(min_length=1, max_length=16, pattern=r"^[^\x00-\x1f]*$")
    ] = "EUR"
    periods: Annotated[list[PricePeriod], Constraint(max_length=200)] = []


class PricesOut(Answer, frozen=True, kw_only=True):
    """The price list as it is stored."""

    currency: str = "EUR"
    periods: Sequence[PricePeriod] = ()
    changed_at: float = 0.0
    changed_by: str = ""
