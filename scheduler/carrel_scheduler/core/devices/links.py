"""Choice of the best connected devices of a node for a task with several.

Chosen are those with the fewest hops in sum over all their pairs, then with the shortest longest
hop, then most devices that are free already, then those that leave the free rest best connected
(fewest hops in sum), then the lowest indices. The same state always gives the same answer.

Devices with equal links to all others are interchangeable, so only *how many* of each such group
are taken is searched, and of a group the lowest are. All ways are looked at while there are at most
``MOST_WAYS``: always up to 14 devices without any regularity, and far beyond with the few groups
that real machines consist of. Otherwise every device is tried as a centre with its nearest ones; by
the usual averaging argument that is at most twice the optimal sum where hops obey the triangle
inequality, and never worse after the single swaps that follow.

Nodes of one type have equal links and share one ``Links`` and its answers.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import Devices, Link

FAR = 3
"""Hops between devices whose link is not named."""
MOST_WAYS = 5_000

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The device links of all nodes with equal links.

    Attributes:
        hops: (d, d) hops between two devices, 0 on the diagonal; ``array`` is the same.
        groups: the devices, together where they have equal links to all others.
    """

    hops: tuple[tuple[int, ...], ...]
    groups: tuple[Devices, ...]
    array: Ints = field(repr=False)

    def choose(self, available: int, wanted: int, free: int = -1) -> Devices | None:
        """The best ``wanted`` of the available devices, ascending.

        Args:
            available: bits of the devices that may be taken.
            wanted: how many, at least 1.
            free: bits of those that are free already; -1 when all are.

        Returns:
            ``None`` when there are not enough.
        """
        count = available.bit_count()
        if count <= wanted:
            return tuple(_bits(available)) if count == wanted else None
        return _best(self, available, wanted, free & available)


@lru_cache(maxsize=4096)
def links_of(links: tuple[Link, ...], devices: int) -> Links | None:
    """The links of a node with so many devices; equal ones give the same object.

    ``None`` where all pairs are equally far apart, so that any choice is as good. Of a pair that is
    named twice the better link counts.

    Raises:
        InvalidEvent: ``unknown_device`` or ``bad_amount`` in ``links``.
    """
    for link in links:
        if not (0 <= link.first < devices and 0 <= link.second < devices):
            raise InvalidEvent("unknown_device", "links", link, f"devices 0 to {devices - 1}")
        if link.first == link.second:
            raise InvalidEvent("unknown_device", "links", link, "two different devices")
        if link.hops < 0:
            raise InvalidEvent("bad_amount", "links", link, "hops that are not negative")
    return _interned(tuple(sorted({_directed(link) for link in links})), devices)


def _directed(link: Link) -> tuple[int, int, int]:
    return (min(link.first, link.second), max(link.first, link.second), link.hops)


@lru_cache(maxsize=1024)
def _interned(pairs: tuple[tuple[int, int, int], ...], devices: int) -> Links | None:
    hops = np.full((devices, devices), FAR, np.int64)
    np.fill_diagonal(hops, 0)
    for first, second, distance in reversed(pairs):
        hops[first, second] = hops[second, first] = distance
    between = hops[~np.eye(devices, dtype=np.bool_)]
    if not between.size or bool((between == between[0]).all()):
        return None
    rows = tuple(tuple(row) for row in hops.tolist())
    return Links(rows, _groups(rows), hops)


@lru_cache(maxsize=1 << 15)
def _best(links: Links, available: int, wanted: int, free: int) -> Devices:
    groups = _parts(links, available, free)
    if _ways([len(group) for group in groups], wanted) > MOST_WAYS:
        return _around_centres(links, available, wanted, free)
    counts = _all_counts([len(group) for group in groups], wanted)
    hops = links.array
    heads = [group[0] for group in groups]
    between = hops[np.ix_(heads, heads)]
    inside = np.array([_inner(links, group) for group in groups])
    sums = _pair_sums(counts, between, inside)
    counts = counts[sums == sums.min()]
    candidates = [
        tuple(sorted(d for g, n in zip(groups, row, strict=True) for d in g[:n]))
        for row in counts.tolist()
    ]
    return min(candidates, key=lambda chosen: _rank(links, available, free, chosen))


def _groups(hops: tuple[tuple[int, ...], ...]) -> tuple[Devices, ...]:
    """The devices of a node, grouped by equal links: the devices of a group are interchangeable."""
    groups: list[list[int]] = []
    for device in range(len(hops)):
        for group in groups:
            if _twins(hops, group[0], device):
                group.append(device)
                break
        else:
            groups.append([device])
    return tuple(tuple(group) for group in groups)


def _twins(hops: tuple[tuple[int, ...], ...], one: int, other: int) -> bool:
    """Whether swapping two devices changes nothing; this is an equivalence."""
    a, b = hops[one], hops[other]
    return all(a[d] == b[d] for d in range(len(hops)) if d not in {one, other})


def _parts(links: Links, available: int, free: int) -> list[list[int]]:
    """The available devices of each group, those that are free already apart from the others."""
    parts = [
        [device for device in group if mask >> device & 1]
        for group in links.groups
        for mask in (free, available & ~free)
    ]
    return [part for part in parts if part]


def _inner(links: Links, group: list[int]) -> int:
    """Hops between members of a group: the same for every pair, as they are twins."""
    return links.hops[group[0]][group[1]] if len(group) > 1 else 0


def _ways(sizes: list[int], wanted: int) -> int:
    """The number of ways to split ``wanted`` over groups of these sizes."""
    ways = [1] + [0] * wanted
    for size in sizes:
        ways = [sum(ways[max(0, n - size) : n + 1]) for n in range(wanted + 1)]
    return ways[wanted]


def _all_counts(sizes: list[int], wanted: int) -> Ints:
    """(ways, groups) all these splits."""
    rows = np.zeros((1, 0), np.int64)
    left = np.array([wanted])
    behind = sum(sizes)
    for size in sizes:
        behind -= size
        steps = np.arange(size + 1)
        rest = left[:, None] - steps
        row, taken = np.nonzero((rest >= 0) & (rest <= behind))
        rows = np.column_stack([rows[row], taken])
        left = rest[row, taken]
    return rows


def _pair_sums(counts: Ints, between: Ints, inside: Ints) -> Ints:
    """(ways,) hops over all pairs among the chosen."""
    across = ((counts @ between) * counts).sum(axis=1) // 2
    within = (counts * (counts - 1) // 2) @ inside
    sums: Ints = across + within
    return sums


def _rank(
    links: Links, available: int, free: int, chosen: Devices
) -> tuple[int, int, int, int, Devices]:
    """The order that the module describes; smaller is better."""
    pairs = _pairs(links, list(chosen))
    rest = [d for d in _bits(available) if d not in chosen]
    waiting = sum(1 for d in chosen if not free >> d & 1)
    longest = max(pairs, default=0)
    return (sum(pairs), longest, waiting, sum(_pairs(links, rest)), chosen)


def _pairs(links: Links, devices: list[int]) -> list[int]:
    return [links.hops[a][b] for i, a in enumerate(devices) for b in devices[:i]]


def _around_centres(links: Links, available: int, wanted: int, free: int) -> Devices:
    """The best of each device with its nearest ones, improved by swaps of single devices."""
    devices = _bits(available)
    hops = links.array[np.ix_(devices, devices)]
    near = np.argsort(hops * 2 - np.eye(len(devices), dtype=np.int64), axis=1, kind="stable")
    stars = np.zeros(hops.shape, np.int64)
    np.put_along_axis(stars, near[:, :wanted], 1, axis=1)
    sums = ((stars @ hops) * stars).sum(axis=1)
    best = min(
        (tuple(devices[i] for i in np.flatnonzero(star)) for star in stars[sums == sums.min()]),
        key=lambda chosen: _rank(links, available, free, chosen),
    )
    chosen = np.isin(devices, best)
    while True:
        to_chosen = hops @ chosen
        inside, outside = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        gain = to_chosen[inside, None] - to_chosen[outside] + hops[np.ix_(inside, outside)]
        old, new = divmod(int(gain.argmax()), len(outside))
        if gain[old, new] <= 0:
            return tuple(devices[i] for i in inside.tolist())
        chosen[inside[old]], chosen[outside[new]] = False, True


def _bits(mask: int) -> list[int]:
    return [device for device in range(mask.bit_length()) if mask >> device & 1]
