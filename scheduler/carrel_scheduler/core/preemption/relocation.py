"""Relocation: the tasks of a node to move so that one more task fits there, and their new places.

The choice is worked out in plain integers before any move: for whole devices those are cleared
whose holders lose the least work, for a share the one device that needs least, for CPU and memory
further work, least loss first. New places are reserved until the tasks have stopped. Many move at
once when a gang needs capacity, and most are alike: equal ones are spread over the nodes in one
step.
"""

from collections.abc import Container, Iterator, Sequence
from itertools import groupby

import msgspec
import numpy as np

from carrel_scheduler.core import mig
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.devices.classes import GpuForm, GpuKind
from carrel_scheduler.core.devices.device_choice import profile_on
from carrel_scheduler.core.preemption.group_quotas import home_of, staying
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.work.jobs import JobInfo
from carrel_scheduler.core.work.tasks import devices_of

PLACES = 16
"""The most places for a MIG instance that are tried on a node."""


class NodeTask(msgspec.Struct, frozen=True, gc=False):
    """A task on a node.

    Attributes:
        row: in the task columns; ``job``: slot of its workload.
        lost: work that moving it loses, GPU-seconds.
        movable: it may be moved.
    """

    row: int
    job: int
    devices: tuple[int, ...]
    share: int
    host: tuple[int, ...]
    lost: float
    movable: bool


def occupants(cycle: Cycle, rows: Sequence[int]) -> list[NodeTask]:
    """The tasks of these rows."""
    tasks, jobs, now = cycle.state.tasks, cycle.state.jobs, cycle.now
    at = np.array(rows, np.int64)
    slots = tasks.job.take(at)
    may_stop = (tasks.victim.take(at) >= 0) & ~cycle.moves.evicted.take(at)
    columns = (
        *(slots.tolist(), tasks.mask.take(at).tolist(), tasks.share.take(at).tolist()),
        *(tasks.cls.take(at).tolist(), may_stop.tolist(), jobs.since.take(slots).tolist()),
    )
    found = []
    for row, slot, mask, share, cls, stops, since in zip(rows, *columns, strict=True):
        movable = stops and _moves(cycle, jobs.at(slot))
        devices = devices_of(mask)
        lost = max(1, len(devices)) * max(0.0, now - since)
        found.append(NodeTask(row, slot, devices, share, tasks.hosts[cls], lost, movable))
    return found


def _moves(cycle: Cycle, job: JobInfo) -> bool:
    """Whether a job may lie elsewhere as well."""
    if job.shape.structure.whole and len(job.rows) > 1:
        return False  # one of its tasks never moves without the others
    return not (job.spec.interactive or job.shape.bound or cycle.answered(job))


def tasks_to_move(
    cycle: Cycle, cls: int, node: int, here: Sequence[NodeTask]
) -> Iterator[list[NodeTask]]:
    """The occupants of a node to move for one task of a class; least work lost first.

    For a MIG instance several ways: those of the cheapest may have nowhere to go.
    """
    kind, host = cycle.state.classes.kinds[cls], cycle.state.classes.host(cls)
    soon = cycle.free_capacity.soon
    if kind.types is not None and cycle.state.nodes.types[:, node].any():
        return  # who moves from which device would have to be sought by its type
    free = soon.devices[:, node].tolist()
    ways: list[list[NodeTask] | None]
    if kind.form is GpuForm.NONE:
        ways = [[]]
    elif kind.form is GpuForm.WHOLE:
        ways = [_for_whole(cycle, kind, node, free, here)]
    elif cycle.state.nodes.mig.item(node):
        ways = [*_for_instance(cycle, kind, node, here)]
    else:
        share = cycle.state.classes.share_on(cls, cycle.state.nodes, node)
        ways = [_for_share(cycle, kind, share, node, free, here)]
    for chosen in ways:
        if chosen is None:
            continue
        short = {
            row: amount - soon.host.item(row, node) - sum(_held(one, row) for one in chosen)
            for row, amount in enumerate(host)
            if amount
        }
        if (all_of_them := _with_host(short, chosen, here)) is not None:
            yield all_of_them


def _for_whole(
    cycle: Cycle, kind: GpuKind, node: int, free: list[int], here: Sequence[NodeTask]
) -> list[NodeTask] | None:
    """Clear the devices that lose least until enough are free; tasks on several count once."""
    cleared = {device for device, milli in enumerate(free) if milli >= MILLI}
    on = _by_device(here, len(free))
    clearable = [d for d, there in enumerate(on) if d not in cleared and _clears(free[d], there)]
    if len(cleared) + len(clearable) < kind.amount:
        return None
    options = [device for device in clearable if cycle.free_capacity.open.item(device, node)]
    chosen: dict[int, NodeTask] = {}
    lost = {device: _lost(on[device], chosen) for device in options}
    while len(cleared) < kind.amount:
        left = [device for device in options if device not in cleared]
        if not left:
            return None
        best = min(left, key=lost.__getitem__)
        new = [one for one in on[best] if one.row not in chosen]
        chosen |= {one.row: one for one in new}
        held = {device for one in new for device in one.devices}
        cleared |= {d for d in held if _whole_without(free[d], on[d], chosen)}
        cleared.add(best)
        lost |= {device: _lost(on[device], chosen) for device in held if device in lost}
    return list(chosen.values())


def _clears(free: int, there: Sequence[NodeTask]) -> bool:
    """Whether a device is whole once everybody on it has moved, and they may."""
    for one in there:
        if not one.movable:
            return False
        free += one.share
    return free >= MILLI


def _lost(there: Sequence[NodeTask], chosen: Container[int]) -> float:
    """The cost of clearing a device, beyond the cost of tasks that are chosen already."""
    return sum([one.lost / len(one.devices) for one in there if one.row not in chosen])


def _by_device(here: Sequence[NodeTask], devices: int) -> list[list[NodeTask]]:
    """The tasks on each device."""
    found: list[list[NodeTask]] = [[] for _ in range(devices)]
    for one in here:
        for device in one.devices:
            found[device].append(one)
    return found


def _whole_without(free: int, there: Sequence[NodeTask], gone: Container[int]) -> bool:
    """Whether a device is free without these rows."""
    return all(one.row in gone for one in there) and free + sum(o.share for o in there) >= MILLI


def _for_share(
    cycle: Cycle, kind: GpuKind, share: int, node: int, free: list[int], here: Sequence[NodeTask]
) -> list[NodeTask] | None:
    """The cheapest tasks on each of the devices where the least has to be freed."""
    if share <= 0:
        return None
    options: list[tuple[float, int, list[NodeTask]]] = []
    for device, milli in enumerate(free):
        if not cycle.free_capacity.open.item(device, node):
            continue
        available, taken = milli, []
        for one in sorted(here, key=lambda one: (one.lost, one.row)):
            if available >= share:
                break
            if device in one.devices and one.movable:
                available += one.share
                taken.append(one)
        if available >= share:
            options.append((sum(one.lost for one in taken), device, taken))
    if len(options) < kind.devices:
        return None
    chosen: list[NodeTask] = []
    for _, _, taken in sorted(options, key=lambda option: option[:2])[: kind.devices]:
        chosen += [one for one in taken if one not in chosen]
    return chosen


def _for_instance(
    cycle: Cycle, kind: GpuKind, node: int, here: Sequence[NodeTask]
) -> Iterator[list[NodeTask]]:
    """The holders of instances that lie at a place, for each place; what loses least first."""
    fact, capacity = cycle.state.nodes.fact(node), cycle.free_capacity
    model = mig.model_of(fact.mig_model)
    profile = profile_on(kind, model)
    if profile is None:
        return
    on = _by_device(here, fact.devices)
    devices = [
        (
            capacity.soon.slots.item(device, node) if capacity.open.item(device, node) else 0,
            [_instance_user(cycle, one, model) for one in on[device]],
        )
        for device in range(fact.devices)
        if device not in fact.undivided
    ]
    for found in mig.clearings(profile, devices)[:PLACES]:
        rows = {user.order for user in found.victims}
        yield [one for one in here if one.row in rows]


def _instance_user(cycle: Cycle, one: NodeTask, model: mig.Model) -> mig.InstanceUser:
    tasks = cycle.state.tasks
    bits = model.full if one.share >= MILLI else tasks.slots.item(one.row)
    request = cycle.state.jobs.at(one.job).shape.requests[tasks.index.item(one.row)]
    return mig.InstanceUser(
        bits=bits,
        cost=round(one.lost),
        order=one.row,
        evictable=one.movable,
        media=request.mig_profile.endswith(mig.MEDIA),
    )


def _with_host(
    short: dict[int, int], chosen: list[NodeTask], here: Sequence[NodeTask]
) -> list[NodeTask] | None:
    """Choose further occupants while CPU, memory or another host resource is short."""
    for one in sorted(here, key=lambda one: (one.lost, one.row)):
        if all(amount <= 0 for amount in short.values()):
            break
        helps = any(amount > 0 and _held(one, row) for row, amount in short.items())
        if helps and one.movable and one not in chosen:
            chosen = [*chosen, one]
            short = {row: amount - _held(one, row) for row, amount in short.items()}
    return chosen if all(amount <= 0 for amount in short.values()) else None


def _held(one: NodeTask, row: int) -> int:
    return one.host[row] if row < len(one.host) else 0


def have_places(cycle: Cycle, going: list[NodeTask]) -> bool:
    """Whether each of these tasks of one node would fit elsewhere, before anything moves.

    Elsewhere is another node, and for a share of a GPU also another device of the same node.
    """
    tasks = cycle.state.tasks
    for cls, one in {tasks.cls.item(one.row): one for one in going}.items():
        counts = cycle.counts_kept(cls, soon=True)
        here = 0 if 0 < one.share < MILLI else counts.item(tasks.node.item(one.row))
        if int(counts.sum()) <= here:
            return False
    return True


def relocate(cycle: Cycle, going: list[NodeTask]) -> bool:
    """Reserve a place for each, one after the other, the largest first."""
    return all(_relocate_one(cycle, one) for one in sorted(going, key=_largest_first))


def relocate_together(cycle: Cycle, going: list[NodeTask]) -> bool:
    """Reserve a place for each, equal ones together; earlier ones stay where one finds none."""
    ordered = sorted(going, key=_largest_first)
    tasks = cycle.state.tasks
    for cls, group in groupby(ordered, key=lambda one: tasks.cls.item(one.row)):
        alike = list(group)
        jobs = [cycle.state.jobs.at(one.job) for one in alike]
        many = len(alike) > 1 and all(
            job.shape.plain
            and not cycle.limited_by_group(job)
            and home_of(cycle, job, job.rows) is None
            for job in jobs
        )
        if not (_relocate_alike(cycle, cls, alike) if many else relocate(cycle, alike)):
            return False
    return True


def _largest_first(one: NodeTask) -> tuple[int, ...]:
    return (-one.share * len(one.devices), -one.host[0], one.row)


def _relocate_one(cycle: Cycle, one: NodeTask) -> bool:
    job = cycle.state.jobs.at(one.job)
    index = cycle.state.tasks.index.item(one.row)
    if cycle.over_limit(job, [index]) is not None:
        return False
    with staying(cycle, job, [index]):
        return place(cycle, job, [index], soon=True)


def _relocate_alike(cycle: Cycle, cls: int, alike: list[NodeTask]) -> bool:
    """Tasks of one class without constraints: on what is idle now, where that suffices."""
    view, chooser = cycle.free_capacity.idle, cycle.state.chooser
    for soon in (False, True):
        spread = chooser.spread(cls, len(alike), cycle.counts_kept(cls, soon=soon), view)
        if spread is not None:
            places = [(node, left) for node, count in spread for left in range(count, 0, -1)]
            pairs = zip(alike, places, strict=True)
            return all(_hold(cycle, cls, one, *place) for one, place in pairs)
    return False


def _hold(cycle: Cycle, cls: int, one: NodeTask, node: int, left: int) -> bool:
    """Reserve a place on a node for one of ``left`` tasks that go there."""
    job = cycle.state.jobs.at(one.job)
    index = cycle.state.tasks.index.item(one.row)
    footprint = cycle.footprint(cls, node, soon=True, tasks=left)
    if footprint is None or cycle.over_limit(job, [index]) is not None:
        return False
    cycle.moves.reserve(job, index, footprint, fixed=cycle.is_fixed(job))
    return True
