"""Parts of a workload come and go while it runs: it begins, grows, gives back, starts again.

Members of a gang come and go one by one, as processes of their own. One elastic task whose GPUs
change is told to end with grace and starts again from its checkpoint, in another attempt, with what
it then holds; it keeps its room meanwhile.
"""

from collections.abc import Collection, Sequence

import msgspec

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.ledger.objects import ReasonInfo
from carrel_scheduler.workloads.cache import Entry
from carrel_scheduler.workloads.gangs import shape
from carrel_scheduler.workloads.lifecycle import reasons
from carrel_scheduler.workloads.reconcile.pass_changes import Cycle

CLAIM_SECONDS = 120.0


def placed(cycle: Cycle, entry: Entry, parts: Collection[int]) -> None:
    """A plan gave places to these parts: the workload begins with them, or grows by them."""
    if entry.holding:
        _grow(cycle, entry, parts)
    elif len(entry.places) >= shape.least_parts(entry.workload.spec):
        _begin(cycle, entry)


def _begin(cycle: Cycle, entry: Entry) -> None:
    entry.workload.status.queue_position = None
    cycle.show_tasks(entry)
    cycle.move(entry, "starting")
    if entry.needs_claim:
        entry.claim_until = cycle.now + CLAIM_SECONDS
        cycle.wake_hub.append(entry.uid)
    else:
        cycle.start(entry, entry.tasks)


def _grow(cycle: Cycle, entry: Entry, parts: Collection[int]) -> None:
    status = entry.workload.status
    if status.phase not in ("starting", "running") or entry.ending:
        cycle.turn_down(entry, parts, Outcome.GONE)
        return
    if any(task.place == "done" for task in status.tasks):
        cycle.turn_down(entry, parts, Outcome.SUCCEEDED)
        return
    if shape.resizes(entry.workload.spec):
        resize(cycle, entry, None)
    else:
        _join(cycle, entry, sorted(parts))
    cycle.row(entry, status.phase, status.phase, status.reason)


def _join(cycle: Cycle, entry: Entry, indices: Sequence[int]) -> None:
    """Start members that come to the others, under ids that were never used."""
    status = entry.workload.status
    used = {(task.index, task.attempt) for task in status.tasks}
    if any((index, status.attempt) in used for index in indices):
        for index in entry.places:
            entry.attempts.setdefault(index, status.attempt)
        status.attempt += 1
    for index in indices:
        entry.attempts[index] = status.attempt
    cycle.show_more_tasks(entry, indices)
    cycle.start(entry, indices)


def give_back(
    cycle: Cycle, entry: Entry, parts: Collection[int], reason: ReasonInfo | None
) -> None:
    """Have some parts end while the others go on."""
    status, grace = entry.workload.status, entry.workload.spec.grace_seconds
    cycle.leave(entry, parts)
    if shape.resizes(entry.workload.spec):
        resize(cycle, entry, reason)
        return
    going = entry.alive.intersection(parts)
    for index in sorted(going):
        cycle.stop(entry, index, grace, reason)
    _put(cycle, entry, going, place="leaving")
    status.reason = reason


def resize(cycle: Cycle, entry: Entry, reason: ReasonInfo | None) -> None:
    """Have an elastic task end, to start again with what it is to hold then."""
    held, wanted = entry.tasks[0].devices, entry.wanted[0].devices
    returns = tuple(device for device in held if device not in wanted)
    _put(cycle, entry, {0}, devices=held, returns=returns)
    entry.workload.status.reason = reason or reasons.grows_to(len(wanted))
    if not entry.resizing:
        entry.resizing = True
        cycle.stop(entry, 0, entry.workload.spec.grace_seconds, reason)


def start_again(cycle: Cycle, entry: Entry) -> None:
    """An elastic task has ended to go on with other devices."""
    status = entry.workload.status
    for part in sorted(entry.leaving):
        cycle.release(entry, part, Outcome.AGAIN)
    entry.resizing = False
    entry.attempts.clear()
    entry.ended.clear()
    status.attempt += 1
    cycle.show_tasks(entry)
    if status.phase == "running":
        cycle.move(entry, "starting")
    else:
        status.reason = None
        cycle.row(entry, status.phase, status.phase, None)
    cycle.start(entry, entry.tasks)


def left(cycle: Cycle, entry: Entry, index: int) -> None:
    """A member that was told to give its place back has ended."""
    cycle.release(entry, index, Outcome.AGAIN)
    _put(cycle, entry, {index}, place="given-back")
    _resettle(cycle, entry)


def done(cycle: Cycle, entry: Entry, index: int) -> None:
    """A member ended well while others go on: nobody waits for its place again."""
    cycle.release(entry, index, Outcome.SUCCEEDED)
    _put(cycle, entry, {index}, place="done")
    _resettle(cycle, entry)


def lose(cycle: Cycle, entry: Entry, how: str, *, lost: bool = False) -> None:
    """A gang cannot go on: all its members are to end, to start again together."""
    alone = entry.workload.spec.tasks == 1
    entry.workload.status.reason = reasons.gang_lost(how, lost=lost, alone=alone)
    end_all(cycle, entry)


def end_all(cycle: Cycle, entry: Entry) -> None:
    """The gang is over: whoever still runs is to end."""
    entry.ending = True
    cycle.give_up_room(entry, entry.workload.spec.grace_seconds)
    cycle.mark(entry)


def _resettle(cycle: Cycle, entry: Entry) -> None:
    """It holds less from now on."""
    status = entry.workload.status
    if not entry.leaving:
        status.reason = None
    cycle.row(entry, status.phase, status.phase, status.reason)


def _put(cycle: Cycle, entry: Entry, indices: Collection[int], **changes: object) -> None:
    """Change what the status says of tasks."""
    cycle.put_tasks(
        entry,
        [
            msgspec.structs.replace(task, **changes) if task.index in indices else task
            for task in entry.workload.status.tasks
        ],
    )
