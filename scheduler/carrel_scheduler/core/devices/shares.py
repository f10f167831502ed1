"""Shares of GPUs: how many fit, and which devices they go to.

A share goes to the tightest device that is shared already and fits; a whole free one is opened
last, so that whole GPUs stay whole. A task that takes the same share of k devices gets the k
tightest. Shares asked for as memory become hundredths of a device by the memory of the node's GPUs.

How many more tasks fit: with c_d = floor(free_d / share), t tasks of k different devices each fit
exactly when every device takes at most t of them and all together k t, sum_d min(t, c_d) >= k t.
The left side is smallest relative to the right when it is split at the j largest c_d, so the
largest such t is the minimum over j = 0 .. k-1 of floor((sum of all but the j largest c_d)/(k-j)).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.events import Devices
from carrel_scheduler.core.layers import Counts, Milli
from carrel_scheduler.core.resources import MILLI

HUNDREDTH = MILLI // 100
MEMORY_STEP = 100
"""GPU memory of a node is rounded down to so many MiB before shares are taken of it."""


def share_of_memory(memory_mib: int, node_memory_mib: int) -> int:
    """Thousandths of a device with enough memory: ``ceil(100 m / floor100(M)) / 100`` of it.

    0 when the node's devices are too small, or their memory is unknown.
    """
    whole = node_memory_mib // MEMORY_STEP * MEMORY_STEP
    if whole <= 0 or memory_mib > whole:
        return 0
    return -(-100 * memory_mib // whole) * HUNDREDTH


def memory_of_share(share_milli: int, asked_mib: int, device_mib: int) -> int:
    """MiB of a GPU that belong to a task with a share of it; 0 where nobody knows.

    Args:
        share_milli: the task's share, in thousandths.
        asked_mib: the memory that it asked for; 0: it asked for the share.
        device_mib: memory of the GPU; 0: not known.
    """
    own = device_mib * share_milli // MILLI
    return min(asked_mib, own) if asked_mib and own else asked_mib or own


def shares_of_memory(memory_mib: int, node_memory_mib: Counts) -> Counts:
    """(N,) the same for many nodes."""
    whole = node_memory_mib // MEMORY_STEP * MEMORY_STEP
    fits = (whole > 0) & (whole >= memory_mib)
    shares: Counts = -(-100 * memory_mib // np.where(fits, whole, 1)) * HUNDREDTH * fits
    return shares


@lru_cache(maxsize=1024)
def share_table(share: int) -> npt.NDArray[np.uint16]:
    """(1001,) how many shares of this size fit into 0 to 1000 free thousandths of a device."""
    table = np.arange(MILLI + 1, dtype=np.uint16) // np.uint16(share)
    table.setflags(write=False)
    return table


def counts(devices: Milli, share: int, each: int = 1) -> Counts:
    """(N,) how many more tasks of ``share`` thousandths of ``each`` devices fit on every node.

    Args:
        devices: (D, N) free thousandths, 0 to 1000; D is at most 64.
        share: 1 to 1000.
        each: how many different devices one task takes, at least 1.
    """
    fits = devices // np.int16(share)
    sums: npt.NDArray[np.uint16] = np.add.reduce(fits.view(np.uint16), axis=0, dtype=np.uint16)
    total = sums.astype(np.int64)
    if each == 1:
        return total
    if each > len(devices):
        return np.zeros_like(total)
    most = total // each
    for taken, largest in enumerate(_largest(fits, each - 1), 1):
        total -= largest
        np.minimum(most, total // (each - taken), out=most)
    return most


def _largest(fits: Milli, wanted: int) -> list[Milli]:
    """The ``wanted`` largest of every column, largest first; reorders the columns."""
    if wanted == 1:
        return [np.maximum.reduce(fits, axis=0)]
    for place in range(wanted):
        for row in range(len(fits) - 1, place, -1):
            upper, lower = fits[row - 1], fits[row]
            smaller = np.minimum(upper, lower)
            np.maximum(upper, lower, out=upper)
            fits[row] = smaller
    return list(fits[:wanted])


def tightest(
    free: Sequence[int],
    share: int,
    each: int = 1,
    idle: Sequence[int] | None = None,
    tasks: int = 1,
) -> Devices | None:
    """The devices of a node that a task takes its share of, ascending, or ``None``.

    Args:
        free: free thousandths of each device, also those that become free when ``idle`` is given.
        share: thousandths of each device.
        each: how many devices.
        idle: thousandths that are free at once: devices where they suffice come before others,
            among shared and among whole devices.
        tasks: how many such tasks, this one included, are about to be placed here one after
            another. As many of them as fit now will fit; always taking the tightest devices could
            leave too few *different* ones.
    """
    now = free if idle is None else idle
    fit = [
        (amount >= MILLI, now[device] < share, amount, device)
        for device, amount in enumerate(free)
        if amount >= share
    ]
    if len(fit) < each:
        return None
    if each == 1:
        return (min(fit)[3],)
    fit.sort()
    order = [device for *_, device in fit]
    if tasks > 1:
        order = _needed_first(order, [amount // share for amount in free], each, tasks)
    return tuple(sorted(order[:each]))


def _needed_first(order: list[int], fits: list[int], each: int, tasks: int) -> list[int]:
    """The order with those devices in front that one task has to take, for all tasks to fit.

    A device with capacity for all t tasks loses a place in sum_d min(t, c_d) whenever a task passes
    it by, one with less capacity only when it is used. So of the former at most as many may be
    passed by as the sum exceeds k t.
    """
    tasks = min(tasks, _most(fits, each))
    spare = sum(min(tasks, fit) for fit in fits) - each * tasks
    roomy = [device for device in order if fits[device] >= tasks]
    needed = roomy[: max(0, len(roomy) - spare)]
    return needed + [device for device in order if device not in needed]


def _most(fits: list[int], each: int) -> int:
    """The number of tasks that fit: the formula of the module for one node."""
    rising = sorted(fits)
    return min(sum(rising[: len(rising) - j]) // (each - j) for j in range(each))
