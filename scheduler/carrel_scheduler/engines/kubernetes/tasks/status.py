"""The status of a task from its pod: pure.

A task has ended by its pod's phase, which the node writes once no container runs; when
its pod is gone; or when it was to be gone for some time and its node does not answer. An end that
nobody asked for and that was not the program's own doing is *lost*: it may be run again.
"""

from typing import Final

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.engines.kubernetes.pods.types import Terminated
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod, moment
from carrel_schema import names
from carrel_schema.objects import LossCause

SIGNALS: Final = range(128 + 1, 128 + 65)
SIGTERM: Final = 15
NOT_FOUND: Final = 127
SILENT_SECONDS: Final = 30.0
"""A pod that should be gone since so long is on a node that does not answer."""
DEADLINE: Final = "DeadlineExceeded"
_UNKNOWN: Final = "ContainerStatusUnknown"
_GPU_LOST: Final = "GpuReservationLost"
_REASONS: Final = {
    "Evicted": "its node ran short of resources",
    "NodeLost": "its node does not answer",
    "NodeShutdown": "its node was shut down",
    "Terminated": "its node was shut down",
    "Shutdown": "its node was shut down",
    "NodeAffinity": "its node was changed while it was down",
    "Preempting": "its node needed the resources for a part of the system",
    "PreemptionByScheduler": "another scheduler needed its resources",
    "DeletionByTaintManager": "its node does not answer or was taken out of service",
    "EvictionByEvictionAPI": "it was evicted, as when a node is drained",
    "DeletionByPodGC": "its node is gone",
    _GPU_LOST: "its GPU may be given to others",
    "TerminationByKubelet": "its node ran short of resources or was shut down",
}
_NOT_THE_NODE: Final = frozenset({_GPU_LOST, "PreemptionByScheduler"})
_WAITING: Final = {
    "ErrImagePull": "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled",
    "InvalidImageName": "its image has no valid name",
    "ErrImageNeverPull": "its image is not on the node and may not be pulled",
    "CreateContainerConfigError": "its container cannot be made",
    "CreateContainerError": "its container cannot be made",
}
_BEGINS: Final = ("", "ContainerCreating", "PodInitializing")
_NEVER_PULLED: Final = ("InvalidImageName", "ErrImageNeverPull")
ENDED_EARLY: Final = "it was ended before it began"


def read(pod: TaskPod, task: TaskId, now: float, *, asked: str = "") -> TaskStatus:
    """The status of a task.

    Args:
        pod: the task's.
        task: which.
        now: epoch seconds.
        asked: why the engine asked for its end, if it did.
    """
    if pod.ended:
        return _ended(pod, task, asked=asked)
    leaving = pod.metadata.deletion_timestamp
    if leaving and not pod.spec.node_name:
        return _never_began(pod, task, moment(leaving), asked)
    if leaving and now >= moment(leaving) + SILENT_SECONDS:
        return _lost(
            pod, task, now, _because(pod) or _REASONS["NodeLost"], loss=_loss(pod) or "node"
        )
    running = pod.state.running
    if running is None:
        return _status(pod, task, TaskPhase.STARTING, message=_waits(pod))
    return _status(pod, task, TaskPhase.RUNNING, started_at=moment(running.started_at))


def gone(pod: TaskPod, task: TaskId, now: float, *, asked: str = "") -> TaskStatus:
    """The status of a task whose pod was deleted; ``pod`` is as it was last seen."""
    if pod.ended:
        return _ended(pod, task, asked=asked)
    return _lost(pod, task, now, _because(pod) or "its pod was deleted")


def _ended(pod: TaskPod, task: TaskId, *, asked: str) -> TaskStatus:
    end, deadline = pod.state.terminated, pod.status.reason == DEADLINE
    end = end or pod.preparing.terminated
    why = "" if deadline else _because(pod)
    if end is None or end.reason == _UNKNOWN:
        if deadline or asked:
            return _never_began(pod, task, 0.0, asked)
        reason = why or pod.status.message or "nobody saw how it ended"
        at = moment(end.finished_at) if end else 0.0
        return _lost(pod, task, at, reason, lost=not _refused(pod))
    code, killed = end.exit_code, end.exit_code in SIGNALS
    away = bool(pod.metadata.deletion_timestamp or why) and not (asked or deadline)
    lost = away and code != 0
    message = _of_end(end) or (why or "its pod was deleted" if lost else "")
    return _status(
        pod,
        task,
        TaskPhase.ENDED,
        started_at=moment(end.started_at),
        ended_at=moment(end.finished_at),
        exit_code=None if killed else code,
        signal=code - 128 if killed else 0,
        message=message,
        last_output=end.message if code and not message else "",
        lost=lost,
        loss=_loss(pod) if lost else "",
    )


def _never_began(pod: TaskPod, task: TaskId, at: float, asked: str) -> TaskStatus:
    """The status of a task that was stopped before it began."""
    signal = SIGTERM if asked in ("", ENDED_EARLY) else 0
    message = asked or ENDED_EARLY
    return _status(pod, task, TaskPhase.ENDED, ended_at=at, signal=signal, message=message)


def _lost(
    pod: TaskPod,
    task: TaskId,
    at: float,
    why: str,
    *,
    lost: bool = True,
    loss: LossCause | None = None,
) -> TaskStatus:
    running = pod.state.running
    return _status(
        pod,
        task,
        TaskPhase.ENDED,
        started_at=moment(running.started_at) if running else 0.0,
        ended_at=at,
        message=why,
        lost=lost,
        loss=(_loss(pod) if loss is None else loss) if lost else "",
    )


def _status(
    pod: TaskPod,
    task: TaskId,
    phase: TaskPhase,
    *,
    started_at: float = 0.0,
    ended_at: float = 0.0,
    exit_code: int | None = None,
    signal: int = 0,
    message: str = "",
    last_output: str = "",
    lost: bool = False,
    loss: LossCause = "",
) -> TaskStatus:
    ended = phase is TaskPhase.ENDED
    return TaskStatus(
        id=task,
        phase=phase,
        node=pod.spec.node_name,
        started_at=started_at,
        ended_at=max(ended_at, started_at, moment(pod.metadata.creation_timestamp)) if ended else 0,
        exit_code=exit_code,
        signal=signal,
        message=message,
        last_output=last_output,
        lost=lost,
        loss=loss,
        devices=devices(pod),
        address=pod.status.pod_ip,
    )


def devices(pod: TaskPod) -> tuple[int, ...]:
    """The devices that its place has, as they were written down when it was bound."""
    text = pod.metadata.annotations.get(names.DEVICES, "")
    return tuple(int(one) for one in text.split(",") if one)


def _of_end(end: Terminated) -> str:
    if end.reason == "OOMKilled":
        return "killed for memory: it used more than it asked for"
    if end.reason in ("StartError", "ContainerCannotRun"):
        return f"its container could not start: {end.message.strip()}"
    if end.exit_code == NOT_FOUND:
        return end.message.strip().rpartition("\n")[2]
    return ""


def _because(pod: TaskPod) -> str:
    """The reason why another part of the cluster ended it, as a sentence; empty if unknown."""
    reason, message = _disruption(pod)
    return _said(_REASONS.get(reason, reason), message) if reason else ""


def _loss(pod: TaskPod) -> LossCause:
    """The cause of a loss; empty if unknown."""
    reason, _ = _disruption(pod)
    if reason == _GPU_LOST:
        return "gpu"
    return "node" if reason in _REASONS and reason not in _NOT_THE_NODE else ""


def _disruption(pod: TaskPod) -> tuple[str, str]:
    """The reason, and its message, for which another part of the cluster ended it."""
    if pod.status.reason in _REASONS:
        return pod.status.reason, pod.status.message
    for condition in pod.status.conditions:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return condition.reason, condition.message
    return "", ""


def _said(words: str, message: str) -> str:
    return f"{words} ({message.strip().rstrip('.')})" if message else words


def _refused(pod: TaskPod) -> bool:
    """Whether its node did not take it in, so that trying again at once would not help."""
    reason = pod.status.reason
    return reason.startswith("OutOf") or "Admission" in reason


def _waits(pod: TaskPod) -> str:
    """The reason why a task has not begun, if that is worth showing."""
    waiting = pod.preparing.waiting or pod.state.waiting
    if waiting is None or waiting.reason in _BEGINS:
        return ""
    return _said(_WAITING.get(waiting.reason, waiting.reason), waiting.message)


def start_failure(pod: TaskPod, now: float, image_timeout: float) -> str:
    """The reason why a task will not start; empty while it may.

    Its image may take ``image_timeout`` seconds.
    """
    waiting, why = pod.preparing.waiting or pod.state.waiting, _waits(pod)
    if waiting is None or not why or pod.ended:
        return ""
    over = now >= moment(pod.metadata.creation_timestamp) + image_timeout
    return why if over or waiting.reason in _NEVER_PULLED else ""


def look_again_at(pod: TaskPod, image_timeout: float) -> float | None:
    """The time at which an unchanged pod is to be checked again; epoch seconds."""
    if pod.ended:
        return None
    if pod.metadata.deletion_timestamp:
        return moment(pod.metadata.deletion_timestamp) + SILENT_SECONDS
    waits = _waits(pod)
    return moment(pod.metadata.creation_timestamp) + image_timeout if waits else None
