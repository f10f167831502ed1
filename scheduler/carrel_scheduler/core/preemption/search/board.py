"""The victims laid out on their nodes: computed once per set of victims, used by many claims.

Rows are the live victims' tasks on nodes that may matter, sorted by node. ``devices`` and ``host``
are the room of every node with all of them gone: the largest room that any legal set can make.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.preemption.search.claims import (
    Bools,
    Budgets,
    Ground,
    Ints,
    Room,
    Victims,
)
from carrel_scheduler.core.preemption.search.purse import Caps, Purse


@dataclass(slots=True)
class Board:
    """One set of victims over one ground.

    Attributes:
        ground: the nodes before anybody goes; ``eligible`` and ``domain`` may differ by claim.
        victims: the set as given.
        purse: budgets seen by its units.
        rows: (R,) indices into the victims' columns, by node.
        start: (N + 1,) where a node's rows begin.
        alone: every unit lies on one node and is one task.
        devices: (D, N) int16, room per device with everybody gone.
        host: (2, N) millicores and MiB with everybody gone.
        later: gives the victims with their costs, which no bound needs; ``weigh`` asks for them.
    """

    ground: Ground
    victims: Victims
    purse: Purse
    rows: Ints
    start: Ints
    alone: bool
    devices: Room
    host: Ints
    later: Callable[[], Victims] | None = None

    @property
    def caps(self) -> Caps:
        """Linear caps of the queues."""
        return self.purse.caps

    def weigh(self) -> None:
        """From here on victims have their costs."""
        if self.later is not None:
            self.victims, self.later = self.later(), None

    def refresh(self, ground: Ground, nodes: Ints) -> None:
        """Follow changes of free room on ``nodes`` while the victims stay what they are."""
        chosen = np.zeros(len(ground.rank), np.bool_)
        chosen[nodes] = True
        rows = self.rows[chosen.take(self.victims.node.take(self.rows))]
        self.devices[:, nodes] = ground.devices[:, nodes]
        self.host[:, nodes] = ground.host[:, nodes]
        _give(self.victims, rows, self.devices, self.host)
        self.ground = ground


def purse_of(victims: Victims, budgets: Budgets) -> Purse:
    """The budgets as the victims' units see them."""
    units = len(victims.cost)
    gpu = victims.share * np.bitwise_count(victims.mask) + victims.counted
    columns = (gpu, victims.cpu_milli, victims.memory_mib)
    if _alone(victims):
        return Purse(budgets, victims.queue, columns)
    queue = np.zeros(units, np.int64)
    queue[victims.unit] = victims.queue
    gpus, cpu, memory = (
        np.bincount(victims.unit, weights=column, minlength=units).astype(np.int64)
        for column in columns
    )
    return Purse(budgets, queue, (gpus, cpu, memory))


def _alone(victims: Victims) -> bool:
    """Whether every unit is one task, in the order of the tasks."""
    units = len(victims.cost)
    return units == len(victims.node) and bool((victims.unit == np.arange(units)).all())


def lay_out(
    ground: Ground, victims: Victims, budgets: Budgets, purse: Purse | None = None
) -> Board:
    """Sort the victims by node and sum the room that they would leave.

    ``purse``: the ``purse_of`` these victims, where it was made before; units that lie on no
    eligible node are taken out of it.
    """
    units, tasks, alone = len(victims.cost), len(victims.node), _alone(victims)
    purse = purse_of(victims, budgets) if purse is None else purse
    rows = _rows(ground, victims, purse.live, units)
    node = victims.node.take(rows)
    if (node[1:] < node[:-1]).any():
        by_node = np.argsort(
            node.astype(np.uint16 if len(ground.rank) < 65536 else np.int64), kind="stable"
        )
        rows, node = rows.take(by_node), node.take(by_node)
    start = np.zeros(len(ground.rank) + 1, np.int64)
    np.cumsum(np.bincount(node, minlength=len(ground.rank)), out=start[1:])
    devices, host = ground.devices.astype(np.int16), ground.host.copy()
    _give(victims, rows, devices, host)
    if len(rows) < tasks:
        touched = np.zeros(units, np.bool_)
        touched[victims.unit.take(rows)] = True
        purse.narrow(touched)
    return Board(ground, victims, purse, rows, start, alone, devices, host)


def _rows(ground: Ground, victims: Victims, live: Bools, units: int) -> Ints:
    """Tasks of live units on eligible nodes, in the order given."""
    wanted = ground.eligible.take(victims.node)
    if not live.all():
        wanted &= live.take(victims.unit)
    if units and wanted.all():
        return np.arange(len(victims.node))
    return np.flatnonzero(wanted)


def _give(victims: Victims, rows: Ints, devices: Room, host: Ints) -> None:
    """Add what the tasks ``rows`` hold to the room of their nodes, in place."""
    if not len(rows):
        return
    width, size = len(devices), len(host[0])
    row, device = cells(victims, rows)
    node = victims.node.take(rows)
    spot = device * size + node.take(row)
    given = victims.share.take(rows).take(row)
    devices += (
        np.bincount(spot, weights=given, minlength=width * size)
        .astype(np.int16)
        .reshape(width, size)
    )
    for line, column in enumerate((victims.cpu_milli, victims.memory_mib)):
        held = np.bincount(node, weights=column.take(rows), minlength=size)
        host[line] += held.astype(np.int64)


def cells(victims: Victims, rows: Ints) -> tuple[Ints, Ints]:
    """Pairs (index into ``rows``, device), one for each device that a task holds."""
    mask = victims.mask.take(rows)
    held = np.bitwise_count(mask)
    if len(rows) and (held == 1).all():
        exponent = (mask.astype(np.float64).view(np.int64) >> 52) - 1023
        return np.arange(len(rows)), exponent
    bits = np.unpackbits(
        mask.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
    )
    row, device = np.nonzero(bits)
    return row, device
