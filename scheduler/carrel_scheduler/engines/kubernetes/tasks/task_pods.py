"""Pods of tasks: their names and labels, and what the engine reads of them.

Names are made from the task alone, so that every scheduler finds the same pod.
"""

import re
from datetime import datetime
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskRefused, TaskSpec
from carrel_scheduler.engines.kubernetes.tasks.settings import CONTAINER, FINALIZER
from carrel_scheduler.kube.metadata import Metadata
from carrel_schema import names
from carrel_schema.names import LONGEST_LABEL, label

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_USER: Final = re.compile(r"[^/\x00-\x1f\x7f]+")


def pod_name(task: TaskId) -> str:
    """The name of a task's pod. Raises ``EngineError`` where it cannot be one."""
    name = str(task)
    if not _NAME.fullmatch(name) or len(name) > LONGEST_LABEL:
        raise EngineError(
            f"task {name!r} cannot be a pod: small letters, digits and '-', "
            f"at most {LONGEST_LABEL} of them, are right"
        )
    return name


def labels(task: TaskSpec) -> dict[str, str]:
    """What a task's pod is found by."""
    return {
        names.PROJECT: label(task.project),
        names.WORKLOAD: label(task.name),
        names.WORKLOAD_UID: label(task.id.workload_uid),
        names.TASK: pod_name(task.id),
        names.TASK_INDEX: str(task.id.index),
        names.ATTEMPT: str(task.id.attempt),
        names.USER: label(task.user),
        names.KIND: task.kind,
        "app.kubernetes.io/managed-by": "carrel",
    }


def check_user(user: str) -> str:
    """A user's name, which becomes part of environments and labels."""
    if not _USER.fullmatch(user) or user.startswith("."):
        expected = "a name without '/' and control characters is right"
        raise TaskRefused("bad_name", "user", user, expected)
    return user


ENDED: Final = ("Succeeded", "Failed")


class _Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fields are named as in manifests."""


class Terminated(_Struct, frozen=True):
    """A container's end."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class Running(_Struct, frozen=True):
    """A container at work."""

    started_at: str | None = None


class Waiting(_Struct, frozen=True):
    """A container that has not begun."""

    reason: str = ""
    message: str = ""


class State(_Struct, frozen=True):
    """One of three."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Struct, frozen=True):
    """A container now."""

    name: str
    state: State = State()


class Condition(_Struct, frozen=True):
    """One of a pod's conditions."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class ContainerName(_Struct, frozen=True):
    """A container as it was asked for."""

    name: str


class PodSpec(_Struct, frozen=True):
    """What was asked for."""

    node_name: str = ""
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    containers: tuple[ContainerName, ...] = ()


class PodStatus(_Struct, frozen=True):
    """What is."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: tuple[ContainerStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class TaskPod(_Struct, frozen=True):
    """A pod that is a task."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def task(self) -> TaskId | None:
        """Which task; ``None`` where the label names none."""
        try:
            return TaskId.parse(self.metadata.labels.get(names.TASK, ""))
        except ValueError:
            return None

    @property
    def ours(self) -> bool:
        """Whether the engine made it, and not a spawner."""
        return FINALIZER in self.metadata.finalizers

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more, as its node says."""
        return self.status.phase in ENDED

    @property
    def container(self) -> str:
        """The name of the container that is the task."""
        present = [one.name for one in self.spec.containers]
        return CONTAINER if CONTAINER in present or not present else present[0]

    @property
    def state(self) -> State:
        """How that container is."""
        states = {one.name: one.state for one in self.status.container_statuses}
        return states.get(self.container, State())


def moment(text: str | None) -> float:
    """Epoch seconds of a time in an object; 0 for none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
