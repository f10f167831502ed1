"""Prices of what work is allocated, by the hour, each from a time on."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import MOST_EPOCH_SECONDS, Constraint

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
