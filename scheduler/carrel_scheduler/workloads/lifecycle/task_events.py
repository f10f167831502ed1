"""Handlers of what engines and clusters report: starts, ends and disruptions of tasks.

Members of a gang start together, start again together when one is lost, and end together: each by
itself when it is done, all when one fails.

The owners of work on a node that is drained, or does not answer, are warned while it still runs. A
task whose pod another part of the cluster evicts is preempted as by a plan: it is queued again, and
a workspace says why it stopped. A task that ends without notice is lost; the engine reports that.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from carrel_scheduler.core.messages.sentences import join
from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.engines.external import Disruption, NodeHealth
from carrel_scheduler.workloads.gangs import membership
from carrel_scheduler.workloads.lifecycle.outcomes import (
    DRAIN,
    EVICT,
    NextPhase,
    how_task_ended,
    outcome,
)
from carrel_scheduler.workloads.lifecycle.session_limits import rule_for
from carrel_scheduler.workloads.lifecycle.termination import count_loss, preempt
from carrel_scheduler.workloads.state import failure_reasons, reasons, shape
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.pass_changes import PassChanges, Stop
from carrel_schema.objects import ReasonInfo, TaskInfo


def on_task(changes: PassChanges, task: TaskStatus) -> None:
    """Handle one observed task; those of past attempts are only cleaned up."""
    entry = changes.cache.get(task.id.workload_uid)
    if entry is None or not entry.holding or not _is_present(entry, task.id):
        if task.phase is TaskPhase.ENDED:
            changes.forgets.append(task.id)
        elif entry is None or not entry.holding or _is_past(entry, task.id):
            changes.stops.append(Stop(task.id, 0.0))
        return
    if task.phase is TaskPhase.RUNNING:
        _show(changes, entry, task)
        _begun(changes, entry)
    elif task.phase is TaskPhase.ENDED:
        _ended(changes, entry, task)
    elif task.message:
        _not_begun_yet(changes, entry, task)


def start_failed(
    changes: PassChanges, task: TaskId, message: str, *, elsewhere: bool = False
) -> None:
    """The engine could not start a task: as if it had ended with that message.

    ``elsewhere``: it is to be placed again, and that counts as no failure.
    """
    node = ""
    entry = changes.cache.get(task.workload_uid)
    if entry is not None and task.index in entry.tasks:
        node = entry.tasks[task.index].node
    ended = TaskStatus(
        id=task,
        phase=TaskPhase.ENDED,
        node=node,
        ended_at=changes.now,
        message=message,
        misplaced=elsewhere,
    )
    on_task(changes, ended)


def stop_failed(changes: PassChanges, entry: CachedWorkload, task: TaskId, message: str) -> None:
    """Show that the engine cannot pass on that a task is to end; "": it can again."""
    if not entry.holding or not _is_present(entry, task):
        return
    status = entry.workload.status
    if status.reason is not None:
        status.reason = reasons.not_told(status.reason, message)
    infos = [
        msgspec.structs.replace(info, message=message) if info.index == task.index else info
        for info in status.tasks
    ]
    changes.put_tasks(entry, infos)


def _is_present(entry: CachedWorkload, task: TaskId) -> bool:
    return task.index in entry.alive and task == entry.task_id(task.index)


def _is_past(entry: CachedWorkload, task: TaskId) -> bool:
    return task.attempt < entry.attempt_of(task.index)


def _begun(changes: PassChanges, entry: CachedWorkload) -> None:
    """Move a workload to running once all its tasks run."""
    status = entry.workload.status
    started = {info.index for info in status.tasks if info.started_at}
    if status.phase != "starting" or not entry.alive <= started:
        return
    project = changes.cache.projects.get(entry.workload.meta.project)
    if project is not None:
        status.rule = rule_for(project.spec, entry.workload.spec)
    changes.move(entry, "running")
    show_node_health(changes, entry)
    if shape.meets(entry.workload.spec):
        membership.expect_all(changes, entry)


def _not_begun_yet(changes: PassChanges, entry: CachedWorkload, task: TaskStatus) -> None:
    """Show in the status what a start waits for, such as an image pull."""
    if entry.workload.status.phase != "starting":
        return
    entry.workload.status.reason = failure_reasons.not_begun_yet(task.message)
    _show(changes, entry, task)


def _ended(changes: PassChanges, entry: CachedWorkload, task: TaskStatus) -> None:
    task = _as_lost(changes, entry, task)
    index, phase = task.id.index, entry.workload.status.phase
    entry.alive.discard(index)
    _show(changes, entry, task)
    changes.forgets.append(task.id)
    goes_on = phase in ("starting", "running") and not entry.ending
    if goes_on and entry.resizing and task.exit_code != 0:
        membership.start_again(changes, entry)
        return
    if goes_on and index in entry.leaving and not entry.resizing:
        membership.left(changes, entry, index)
    else:
        entry.ended[index] = task
        if goes_on and entry.alive:
            _one_less(changes, entry, task)
    if not entry.alive:
        _settle(changes, entry)
    elif not entry.ending:
        _begun(changes, entry)


def _as_lost(changes: PassChanges, entry: CachedWorkload, task: TaskStatus) -> TaskStatus:
    """The end of a task as a loss, where its node offers fewer GPUs than are in use: one went away.

    Which one is unknown on a node whose GPUs are only counted.
    """
    place = entry.tasks.get(task.id.index)
    if task.exit_code == 0 or task.lost or place is None or not place.devices:
        return task
    if not changes.external_pods.is_short_of_gpus(place.node):
        return task
    how = how_task_ended(entry.workload.spec, task)
    told = f"{how}, while {place.node} offers fewer GPUs than are in use there"
    return msgspec.structs.replace(task, lost=True, loss="gpu", message=told)


def _one_less(changes: PassChanges, entry: CachedWorkload, task: TaskStatus) -> None:
    """A member ended while others go on."""
    if task.exit_code != 0:
        how = how_task_ended(entry.workload.spec, task)
        membership.lose(changes, entry, how, lost=task.lost, loss=task.loss, index=task.id.index)
    elif task.id.index == 0 and shape.is_mpi(entry.workload.spec):
        membership.end_all(changes, entry)  # the others were there for the first
    else:
        membership.done(changes, entry, task.id.index)


def _settle(changes: PassChanges, entry: CachedWorkload) -> None:
    status = entry.workload.status
    result = outcome(entry.workload.spec, status, list(entry.ended.values()), changes.now)
    if result.failure is not None:
        status.failures += 1
        status.last_failure = result.failure
    status.losses = result.losses
    if result.failed_node:
        _blame(changes, entry, result)
    if status.last_preemption is not None:
        ended_at = max((task.ended_at for task in entry.ended.values()), default=0.0)
        count_loss(entry, ended_at or changes.now, done=result.phase == "succeeded")
    at_once = result.phase == "pending" and result.not_before is None
    changes.release_all(entry, waits=at_once and not entry.workload.spec.delete)
    changes.move(entry, result.phase, result.reason)
    if entry.workload.spec.delete:
        changes.removed.append(entry.uid)
    elif result.phase == "pending":
        status.attempt += 1
        status.not_before = result.not_before
        if result.not_before is None:
            changes.enqueue(entry)
    elif result.phase == "stopped":
        status.attempt += 1


def _blame(changes: PassChanges, entry: CachedWorkload, result: NextPhase) -> None:
    """Keep where an attempt failed, so that the next one is placed elsewhere first."""
    status = entry.workload.status
    latest = (result.failed_node, *status.failed_nodes)
    status.failed_nodes = tuple(dict.fromkeys(latest))[:AVOIDED_NODES]
    if result.failed_node not in changes.cache.counted_nodes:
        blamed = (*result.failed_devices, *status.failed_devices)
        status.failed_devices = tuple(dict.fromkeys(blamed))[:AVOIDED_DEVICES]
    entry.outdated = entry.queued  # the core asks for it with other wishes now


def _show(changes: PassChanges, entry: CachedWorkload, task: TaskStatus) -> None:
    """Write the observed state of the task into the status."""
    index = task.id.index
    tasks = {info.index: info for info in entry.workload.status.tasks}
    known = tasks.get(index) or TaskInfo(index=index, attempt=task.id.attempt, node=task.node)
    tasks[index] = msgspec.structs.replace(
        known,
        attempt=task.id.attempt,
        node=task.node or known.node,  # a pod that never got one is reported without
        devices=known.devices or task.devices,
        pid=task.pid or known.pid,
        started_at=task.started_at or known.started_at,
        ended_at=task.ended_at or None,
        exit_code=task.exit_code,
        signal=task.signal,
        message=task.message,
        lost=task.lost,
        loss=task.loss,
        address=task.address or known.address,
    )
    if known.ports:
        changes.ports.let_go(task.id)
    changes.put_tasks(entry, tasks.values())


AVOIDED_NODES = 3
"""The number of nodes of failed attempts, the latest, that are taken last."""
AVOIDED_DEVICES = 64
"""The same of GPUs, of those nodes whose GPUs are known one by one."""
_AWAY = (NodeHealth.SILENT, NodeHealth.GONE)


def follow_disruptions(changes: PassChanges) -> None:
    """Handle the changes of nodes and pods since the last pass."""
    if changed := changes.external_pods.changed_nodes():
        _show_nodes(changes, changed)
    for disruption in changes.external_pods.disruptions():
        _disrupted(changes, disruption)


def show_node_health(changes: PassChanges, entry: CachedWorkload) -> None:
    """Write the state of its nodes into the reason of running work, unless all are in order."""
    status = entry.workload.status
    told = status.reason
    if status.phase != "running" or (told is not None and told.token not in OF_NODES):
        return
    nodes = sorted({place.node for place in entry.places.values()})
    healths = {name: changes.external_pods.node_health(name) for name in nodes}
    interactive = entry.workload.spec.kind == "workspace"
    reason = node_trouble(healths, changes.now, interactive=interactive)
    if _sentence(reason) != _sentence(told):
        status.reason = reason
        changes.mark(entry)


def _show_nodes(changes: PassChanges, changed: Mapping[str, NodeHealth]) -> None:
    """Update the reasons of work on nodes whose health has changed."""
    for entry in changes.cache.holding:
        if any(place.node in changed for place in entry.places.values()):
            show_node_health(changes, entry)


def _sentence(reason: ReasonInfo | None) -> str:
    return "" if reason is None else reason.sentence


def _disrupted(changes: PassChanges, disruption: Disruption) -> None:
    task = disruption.task
    entry = changes.cache.get(task.workload_uid)
    if entry is None or task.index not in entry.alive or task != entry.task_id(task.index):
        return
    health = changes.external_pods.node_health(disruption.node)
    going_on = entry.workload.status.phase in ("starting", "running") and not entry.ending
    if not going_on or health in _AWAY or task.index in entry.leaving or _does_without(entry):
        return
    drained = health in (NodeHealth.CORDONED, NodeHealth.DRAINING)
    how = "" if drained else disruption.cause
    interactive = entry.workload.spec.kind == "workspace"
    reason = told_to_leave(disruption.node, how, interactive=interactive)
    changes.decide(entry, "evict", reason=reason)
    preempt(changes, entry, DRAIN if drained else EVICT, reason)


def _does_without(entry: CachedWorkload) -> bool:
    """Whether the other tasks go on when one of them has ended."""
    spec = entry.workload.spec
    stays = len(entry.places) - len(entry.leaving)
    return not shape.resizes(spec) and stays - 1 >= shape.least_parts(spec)


_MOST_NODES: Final = 5
_LATER: Final = "Save your work; started again, the workspace comes up on another node."
_NOW: Final = "Save your work now, and start the workspace again: it comes up on another node."
_WAIT: Final = "Its files are safe; if nothing is heard for long it ends, and can be started again."
_MOVES: Final = "If nothing is heard for long it starts elsewhere, from its last checkpoint."
_NO_ANSWER: Final = (
    (
        "{} does not answer; what runs there may be lost.",
        "{} do not answer; what runs there may be lost.",
    ),
    _WAIT,
    _MOVES,
)
_OF_NODES: Final[Mapping[NodeHealth, tuple[tuple[str, str], str, str]]] = {
    NodeHealth.GONE: _NO_ANSWER,
    NodeHealth.SILENT: _NO_ANSWER,
    NodeHealth.DRAINING: (
        ("{} is being emptied for maintenance.", "{} are being emptied for maintenance."),
        _LATER,
        "",
    ),
    NodeHealth.CORDONED: (
        (
            "{} takes no new work and may be emptied soon.",
            "{} take no new work and may be emptied soon.",
        ),
        _LATER,
        "",
    ),
}
"""Sentences about one node and several, help for who sits at a workspace, help for others; without
such help they are not told."""
OF_NODES: Final = frozenset(health.value for health in _OF_NODES)


def told_to_leave(node: str, how: str, *, interactive: bool) -> ReasonInfo:
    """Handle a disruption: another part of the cluster terminates the task's pod.

    Args:
        node: where it runs.
        how: in a few words, where the node is not just being emptied.
        interactive: its owner works in it.
    """
    emptied = f"`{node}` is being emptied for maintenance."
    return ReasonInfo(
        token="Evicted" if how else "NodeDrained",
        cls="evicted",
        sentence=f"It has to leave `{node}`: {how}." if how else emptied,
        help=_NOW
        if interactive
        else "It goes on from its last checkpoint as soon as there is capacity.",
        data={"nodes": [node]},
    )


def node_trouble(
    healths: Mapping[str, NodeHealth], at: float, *, interactive: bool
) -> ReasonInfo | None:
    """The reason about the health of running work's nodes, for its owner; ``None`` without one.

    Args:
        healths: of its nodes, in order.
        at: since when that is so, epoch seconds.
        interactive: its owner works in it; other work moves by itself.
    """
    for health, (said, in_workspaces, elsewise) in _OF_NODES.items():
        names = [name for name, one in healths.items() if one is health][:_MOST_NODES]
        if names and (interactive or elsewise):
            return ReasonInfo(
                token=health.value,
                sentence=said[len(names) > 1].format(join([f"`{name}`" for name in names])),
                help=in_workspaces if interactive else elsewise,
                data={"nodes": names, "at": at},
            )
    return None
