"""Quantities of pods and nodes in billionths of the unit; and ``PodRefused``."""

from collections.abc import Mapping

from carrel_schema.text import quantities
from carrel_schema.text.quantities import NANO as NANO  # noqa: PLC0414 - part of this module
from carrel_schema.text.quantities import milli as milli  # noqa: PLC0414 - part of this module
from carrel_schema.text.quantities import pieces as pieces  # noqa: PLC0414 - part of this module


class PodRefused(ValueError):  # noqa: N818 - named for what it is, as the core's refusals are
    """A field of a pod or node cannot be understood or is not supported.

    Attributes:
        code: stable token, such as ``bad_quantity`` or ``resource_claims``.
        field: what is wrong, as a path in the object.
        value: of that field.
        expected: what would be right.
    """

    def __init__(self, code: str, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}={value!r}: {expected} ({code})")
        self.code, self.field, self.value, self.expected = code, field, value, expected

    @property
    def sentence(self) -> str:
        """The error as a sentence for the author of the object."""
        return f"`{self.field}` is `{self.value}`; it should be {self.expected}."


def nanos(written: str, field: str = "quantity") -> int:
    """A quantity in billionths of its unit, rounded up; at most 2^63 - 1 units.

    Raises:
        PodRefused: ``bad_quantity``.
    """
    found = quantities.nanos(written)
    if found is None:
        raise PodRefused("bad_quantity", field, written, quantities.EXPECTED)
    return found


def milli_floor(nano: int) -> int:
    """Thousandths, rounded down: for amounts that a node offers."""
    return nano // 10**6


def pieces_floor(nano: int) -> int:
    """Whole units, rounded down."""
    return nano // NANO


def parsed(written: Mapping[str, str], field: str) -> dict[str, int]:
    """Billionths by resource.

    Raises:
        PodRefused: ``bad_quantity``, also for a negative one.
    """
    found = {name: nanos(text, field) for name, text in written.items()}
    for name, value in found.items():
        if value < 0:
            raise PodRefused("bad_quantity", field, written[name], "a quantity of at least 0")
    return found
