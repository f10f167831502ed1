"""What a clearing is asked and what it answers.

A claim wants room for identical tasks. Victims are the placed tasks that may go, task by task; they
go in units that cannot be divided, and only as far as the budgets of their queues reach. The answer
is a set of units with the nodes that they make room on, a proof that no set exists, or the
admission that none was found within the limits of the search.

Units of measure: thousandths of a device, millicores, MiB; costs are integers, larger is worse.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from carrel_scheduler.core.queues.rules import Tree
from carrel_scheduler.core.resources import MILLI

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Room = NDArray[np.integer]
"""(D, N) free thousandths of every device of every node, of any integer type."""

MANY: Final = 1 << 30
"""More tasks than any node holds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Room for ``tasks`` identical tasks.

    Attributes:
        tasks: how many.
        width: devices that one task needs; 0 for a task without.
        size: thousandths that it needs on each of them; 1000 for whole devices.
        cpu_milli: millicores of one task.
        memory_mib: MiB of one task.
        most_per_node: so many tasks at most on one node; 0 for any number.
    """

    tasks: int
    width: int = 0
    size: int = MILLI
    cpu_milli: int = 0
    memory_mib: int = 0
    most_per_node: int = 0

    @property
    def amounts(self) -> tuple[int, int, int]:
        """GPU thousandths, millicores and MiB of one task."""
        return (self.width * self.size, self.cpu_milli, self.memory_mib)


@dataclass(frozen=True, slots=True)
class Ground:
    """The nodes before anybody goes.

    Attributes:
        eligible: (N,) nodes that claims may use; one claim may leave out further ones.
        devices: (D, N) free thousandths per device.
        host: (2, N) free millicores and MiB.
        rank: (N,) place of the node among equals, no two alike.
    """

    eligible: Bools
    devices: Room
    host: Ints
    rank: Ints


@dataclass(frozen=True, slots=True)
class Victims:
    """Placed tasks that may go, and the units in which they go.

    Attributes:
        node: (V,) where a task lies.
        mask: (V,) uint64, the devices it holds, bit d for device d; 0 for none.
        share: (V,) thousandths it holds on each of them.
        cpu_milli: (V,) millicores.
        memory_mib: (V,) MiB.
        queue: (V,) slot of its leaf queue; the same for all tasks of a unit.
        unit: (V,) its unit, 0..U-1; a unit may lie on several nodes.
        cost: (U,) work lost by stopping the unit, at least 0.
        order: (U,) place in the order of victims, no two alike: the smallest goes first.
        counted: (V,) thousandths of GPUs that it holds beside the devices, for its queue alone.
    """

    node: Ints
    mask: NDArray[np.uint64]
    share: Ints
    cpu_milli: Ints
    memory_mib: Ints
    queue: Ints
    unit: Ints
    cost: Ints
    order: Ints
    counted: Ints


@dataclass(frozen=True, slots=True)
class Budgets:
    """How much the queues may lose.

    A set of units of one queue, its descendants included, is legal when one of them, taken last,
    leaves the others below the excess in some resource. The rule holds at every queue on the path
    from the unit's leaf to the top.

    Attributes:
        tree: the queues.
        excess: (Q, 3) GPU thousandths, millicores and MiB beyond what the queue keeps; at most 0
            where it exceeds nothing. A queue that exceeds nothing at all loses nobody.
        open: (Q,) queues that may lose any amount.
    """

    tree: Tree
    excess: Ints
    open: Bools


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search goes, in counted steps, so that the same question has the same answer.

    Attributes:
        rounds: of prices.
        walks: attempts to make a choice legal, inside these rounds.
        steps: of a search through the possibilities of a small case.
        swaps: of one choice against another where units lie on several nodes.
        domains: that are tried.
    """

    rounds: int = 18
    walks: int = 2
    steps: int = 2000
    swaps: int = 64
    domains: int = 16


@dataclass(frozen=True, slots=True)
class Cleared:
    """Units whose going makes room.

    Attributes:
        units: ascending in the order of victims.
        nodes: (m,) a node for every task.
        cost: of all the units.
        exact: no cheaper set exists.
        gap: how much cheaper, as a share of the cost, another set could be; ``None`` where no
            bound is known.
    """

    units: Ints
    nodes: Ints
    cost: int
    exact: bool
    gap: float | None


@dataclass(frozen=True, slots=True)
class Impossible:
    """A proof that no legal set of victims suffices.

    Attributes:
        bound: ``nodes`` (everybody gone would not do), ``budgets`` (all queues together may not
            lose enough), ``queue`` (one queue may not lose enough), ``prices`` (no combination is
            legal), ``search`` (every combination was looked at), or for unlike tasks ``cpu`` and
            ``memory`` (everybody gone would not free enough).
        have: what the bound allows, in tasks; in thousandths of a device for ``budgets``, in
            millicores for ``cpu``, in MiB for ``memory``.
        need: what the claim needs, in the same measure.
        queue: the slot of the queue that the bound speaks of, else -1.
    """

    bound: str
    have: int
    need: int
    queue: int = -1


@dataclass(frozen=True, slots=True)
class NotFound:
    """Neither a set nor a proof within the limits; ``limits`` names those that were reached."""

    limits: tuple[str, ...]


Answer = Cleared | Impossible | NotFound
