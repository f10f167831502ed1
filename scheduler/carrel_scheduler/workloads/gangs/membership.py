"""Parts of a workload come and go while it runs: it grows, gives back, starts again.

Members of a gang come and go one by one, as processes of their own. One elastic task whose GPUs
change is ended with grace and starts again from its checkpoint, in another attempt, with what
it then holds; it keeps its allocation meanwhile.
"""

from collections.abc import Collection, Sequence

import msgspec

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.workloads.state import failure_reasons, reasons, shape
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_schema.objects import LossCause, ReasonInfo


def grow(changes: PassChanges, entry: CachedWorkload, parts: Collection[int]) -> None:
    """A plan gave places to more parts of a workload that holds resources."""
    status = entry.workload.status
    if status.phase not in ("starting", "running") or entry.ending:
        changes.turn_down(entry, parts, Outcome.GONE)
        return
    if any(task.place == "done" for task in status.tasks):
        changes.turn_down(entry, parts, Outcome.SUCCEEDED)
        return
    if shape.resizes(entry.workload.spec):
        resize(changes, entry, None)
    else:
        _join(changes, entry, sorted(parts))
    changes.row(entry, status.phase, status.phase, status.reason)


def _join(changes: PassChanges, entry: CachedWorkload, indices: Sequence[int]) -> None:
    """Start members that join the running ones, under task ids that were never used."""
    status = entry.workload.status
    used = {(task.index, task.attempt) for task in status.tasks}
    if any((index, status.attempt) in used for index in indices):
        for index in entry.places:
            entry.attempts.setdefault(index, status.attempt)
        status.attempt += 1
    for index in indices:
        entry.attempts[index] = status.attempt
    changes.show_more_tasks(entry, indices)
    changes.start(entry, indices)


def give_back(
    changes: PassChanges, entry: CachedWorkload, parts: Collection[int], reason: ReasonInfo | None
) -> None:
    """Have some parts end while the others go on."""
    status, grace = entry.workload.status, entry.workload.spec.grace_seconds
    changes.leave(entry, parts)
    if shape.resizes(entry.workload.spec):
        resize(changes, entry, reason)
        return
    going = entry.alive.intersection(parts)
    for index in sorted(going):
        changes.stop(entry, index, grace, reason)
    _put(changes, entry, going, place="leaving")
    status.reason = reason


def resize(changes: PassChanges, entry: CachedWorkload, reason: ReasonInfo | None) -> None:
    """Have an elastic task end, to start again with what it is to hold then."""
    held, wanted = entry.tasks[0].devices, entry.wanted[0].devices
    returns = tuple(device for device in held if device not in wanted)
    _put(changes, entry, {0}, devices=held, returns=returns)
    entry.workload.status.reason = reason or reasons.grows_to(len(wanted))
    if not entry.resizing:
        entry.resizing = True
        changes.stop(entry, 0, entry.workload.spec.grace_seconds, reason)


def start_again(changes: PassChanges, entry: CachedWorkload) -> None:
    """An elastic task has ended to go on with other devices."""
    status = entry.workload.status
    for part in sorted(entry.leaving):
        changes.release(entry, part, Outcome.AGAIN)
    entry.resizing = False
    entry.attempts.clear()
    entry.ended.clear()
    status.attempt += 1
    changes.show_tasks(entry)
    if status.phase == "running":
        changes.move(entry, "starting")
    else:
        status.reason = None
        changes.row(entry, status.phase, status.phase, None)
    changes.start(entry, entry.tasks)


def left(changes: PassChanges, entry: CachedWorkload, index: int) -> None:
    """Handle the end of a member that releases its allocation."""
    changes.release(entry, index, Outcome.AGAIN)
    _put(changes, entry, {index}, place="given-back")
    _record_less(changes, entry)


def done(changes: PassChanges, entry: CachedWorkload, index: int) -> None:
    """A member ended well while others go on: nobody waits for its place again."""
    changes.release(entry, index, Outcome.SUCCEEDED)
    _put(changes, entry, {index}, place="done")
    _record_less(changes, entry)


def lose(
    changes: PassChanges,
    entry: CachedWorkload,
    how: str,
    *,
    lost: bool = False,
    loss: LossCause = "",
    stalled: bool = False,
    index: int | None = None,
    node: str = "",
    devices: Collection[int] = (),
) -> None:
    """A gang cannot go on: all its members are to end, to start again together.

    ``index``: of the member that failed, where one did; ``loss``: what went away under it;
    ``stalled``: it is ended because it stood still; ``devices`` of ``node``: the GPUs at fault.
    """
    alone = entry.workload.spec.tasks == 1
    reason = failure_reasons.gang_lost(
        how,
        lost=lost,
        loss=loss,
        stalled=stalled,
        alone=alone,
        index=index,
        devices=[f"{node}/{device}" for device in sorted(devices)],
    )
    entry.workload.status.reason = reason
    end_all(changes, entry)


def end_all(changes: PassChanges, entry: CachedWorkload) -> None:
    """End all members that still run, because the gang cannot go on."""
    entry.ending = True
    changes.evict_all(entry, entry.workload.spec.grace_seconds)
    changes.mark(entry)


def expect_all(changes: PassChanges, entry: CachedWorkload) -> None:
    """Start the join timeout of a gang of which all members run."""
    if len(entry.alive) > 1 and entry.meet_until is None:
        seconds = shape.rendezvous_of(entry.workload.spec).join_timeout_seconds
        entry.meet_until = changes.now + seconds


def joined(entry: CachedWorkload, members: Collection[int]) -> None:
    """Record the members that have met at the rendezvous."""
    entry.joined.update(members)
    if entry.alive <= entry.joined:
        entry.meet_until = None


def end_unless_joined(changes: PassChanges, entry: CachedWorkload) -> None:
    """End a gang whose join timeout is over and that some member has not joined."""
    if entry.meet_until is None or entry.meet_until > changes.now:
        return
    entry.meet_until = None
    missing = sorted(entry.alive - entry.joined - entry.leaving)
    if entry.workload.status.phase == "running" and 0 in entry.joined and missing:
        waited = shape.rendezvous_of(entry.workload.spec).join_timeout_seconds
        how = failure_reasons.never_joined(missing, shape.port_of(entry.workload), waited)
        lose(changes, entry, how)


def _record_less(changes: PassChanges, entry: CachedWorkload) -> None:
    """Record that the workload holds less from now on."""
    status = entry.workload.status
    if not entry.leaving:
        status.reason = None
    changes.row(entry, status.phase, status.phase, status.reason)


def _put(
    changes: PassChanges, entry: CachedWorkload, indices: Collection[int], **fields: object
) -> None:
    """Change the status of tasks."""
    changes.put_tasks(
        entry,
        [
            msgspec.structs.replace(task, **fields) if task.index in indices else task
            for task in entry.workload.status.tasks
        ],
    )
