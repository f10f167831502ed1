"""What follows from what the engine sees: a task runs, a task ended, a start was refused."""

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.ledger.objects import TaskInfo
from carrel_scheduler.policy.limits import rule_for
from carrel_scheduler.workloads.book import Entry
from carrel_scheduler.workloads.cycle import Cycle, Stop
from carrel_scheduler.workloads.outcomes import outcome


def on_task(cycle: Cycle, task: TaskStatus) -> None:
    """Take in one observation; those of past attempts are only cleaned up."""
    entry = cycle.book.get(task.id.workload_uid)
    if entry is None or task.id.attempt != entry.workload.status.attempt or not entry.holding:
        if task.phase is TaskPhase.ENDED:
            cycle.forgets.append(task.id)
        elif entry is None or not entry.holding or _is_past(entry, task.id):
            cycle.stops.append(Stop(task.id, 0.0))
        return
    if task.phase is TaskPhase.RUNNING:
        _running(cycle, entry, task)
    elif task.phase is TaskPhase.ENDED:
        _ended(cycle, entry, task)


def start_failed(cycle: Cycle, task: TaskId, message: str) -> None:
    """The engine could not start a task: as if it had ended with that message."""
    node = ""
    entry = cycle.book.get(task.workload_uid)
    if entry is not None and task.index in entry.places:
        node = entry.places[task.index].node
    on_task(
        cycle,
        TaskStatus(id=task, phase=TaskPhase.ENDED, node=node, ended_at=cycle.now, message=message),
    )


def _is_past(entry: Entry, task: TaskId) -> bool:
    return task.attempt < entry.workload.status.attempt


def _running(cycle: Cycle, entry: Entry, task: TaskStatus) -> None:
    _show(cycle, entry, task)
    status = entry.workload.status
    if status.phase != "starting":
        return
    if sum(1 for info in status.tasks if info.started_at) == entry.workload.spec.tasks:
        project = cycle.book.projects.get(entry.workload.meta.project)
        if project is not None:
            status.rule = rule_for(project.spec, entry.workload.spec)
        cycle.move(entry, "running")


def _ended(cycle: Cycle, entry: Entry, task: TaskStatus) -> None:
    if task.id.index in entry.ended:
        return
    entry.ended[task.id.index] = task
    _show(cycle, entry, task)
    cycle.forgets.append(task.id)
    if len(entry.ended) < len(entry.places):
        _end_the_others(cycle, entry, task)
        return
    _settle(cycle, entry)


def _end_the_others(cycle: Cycle, entry: Entry, task: TaskStatus) -> None:
    """A gang that lost a member ends together, to start again together."""
    if task.exit_code == 0 or entry.workload.status.phase in ("preempting", "stopping"):
        return
    grace = entry.workload.spec.grace_seconds
    cycle.stops += [
        Stop(entry.task_id(index), grace) for index in entry.places if index not in entry.ended
    ]


def _settle(cycle: Cycle, entry: Entry) -> None:
    status = entry.workload.status
    result = outcome(entry.workload.spec, status, list(entry.ended.values()), cycle.now)
    if result.failed:
        status.failures += 1
    at_once = result.phase == "pending" and result.not_before is None
    cycle.release_all(entry, waits=at_once and not entry.workload.spec.delete)
    cycle.move(entry, result.phase, result.reason)
    if entry.workload.spec.delete:
        cycle.removed.append(entry.uid)
    elif result.phase == "pending":
        status.attempt += 1
        status.not_before = result.not_before
        if result.not_before is None:
            cycle.enqueue(entry)
    elif result.phase == "stopped":
        status.attempt += 1


def _show(cycle: Cycle, entry: Entry, task: TaskStatus) -> None:
    """Keep what is known of the task in the status."""
    status = entry.workload.status
    known = next((info for info in status.tasks if info.index == task.id.index), None)
    started = task.started_at or (known.started_at if known else None)
    info = TaskInfo(
        index=task.id.index,
        attempt=task.id.attempt,
        node=task.node,
        devices=known.devices if known else task.devices,
        pid=task.pid or (known.pid if known else 0),
        started_at=started,
        ended_at=task.ended_at or None,
        exit_code=task.exit_code,
        signal=task.signal,
        message=task.message,
        ports=known.ports if known else {},
    )
    cycle.ports.let_go(task.id)
    others = [other for other in status.tasks if other.index != task.id.index]
    status.tasks = sorted([*others, info], key=lambda one: one.index)
    cycle.mark(entry)
