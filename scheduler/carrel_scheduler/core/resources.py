"""Amounts of the three resources that quotas are written in, as integers.

Units: GPUs in thousandths of a device, CPU in millicores, memory in MiB. Integers because shares
such as 0.1 do not add up in floating point; rounding happens once, at the edge.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MILLI: Final = 1000
MIB: Final = 1024 * 1024
UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class ResourceVector:
    """An amount of each resource; ``UNLIMITED`` (-1) where a quota or limit is open."""

    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0

    def as_tuple(self) -> tuple[int, int, int]:
        """(GPU thousandths, millicores, MiB), the column order of every array in the core."""
        return (self.gpu_milli, self.cpu_milli, self.memory_mib)


OPEN: Final = ResourceVector(UNLIMITED, UNLIMITED, UNLIMITED)
"""No bound on anything."""

Triple = tuple[int, int, int]
"""(GPU thousandths, millicores, MiB)."""
NONE: Final[Triple] = (0, 0, 0)


def added(amounts: Iterable[Triple]) -> Triple:
    """The sum of many."""
    gpu = cpu = memory = 0
    for one in amounts:
        gpu += one[0]
        cpu += one[1]
        memory += one[2]
    return gpu, cpu, memory
