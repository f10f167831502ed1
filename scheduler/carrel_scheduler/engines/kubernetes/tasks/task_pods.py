"""Pods of tasks: their names and labels, and what the engine reads of them.

Names are made from the task alone, so that every scheduler finds the same pod.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskRefused, TaskSpec
from carrel_scheduler.engines.kubernetes.pods.types import ContainerState, Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import visible_of
from carrel_scheduler.engines.kubernetes.tasks.settings import CONTAINER, FINALIZER
from carrel_schema import names
from carrel_schema.names import LONGEST_LABEL, label

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_USER: Final = re.compile(r"[^/\x00-\x1f\x7f]+")


def pod_name(task: TaskId) -> str:
    """The name of a task's pod. Raises ``EngineError`` for an invalid one."""
    name = str(task)
    if not _NAME.fullmatch(name) or len(name) > LONGEST_LABEL:
        raise EngineError(
            f"task {name!r} cannot be a pod: small letters, digits and '-', "
            f"at most {LONGEST_LABEL} of them, are right"
        )
    return name


def labels(task: TaskSpec) -> dict[str, str]:
    """The labels by which a task's pod is found."""
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


WHOLE: Final = 1000


def shares_gpus(task: TaskSpec) -> bool:
    """Whether it has a part of a GPU: a pod of ours holds the GPU, and it asks for none."""
    return has_instance(task) or has_share(task)


def has_share(task: TaskSpec) -> bool:
    """Whether it has a share of a GPU, whose memory is limited."""
    return 0 < task.gpu_milli < WHOLE


def has_instance(task: TaskSpec) -> bool:
    """Whether it has a MIG instance that is made for it; of others the node gives one by name."""
    return bool(task.mig_profile and task.mig_slots)


def check_user(user: str) -> str:
    """A user's name, which becomes part of environments and labels."""
    if not _USER.fullmatch(user) or user.startswith("."):
        expected = "a name without '/' and control characters is right"
        raise TaskRefused("bad_name", "user", user, expected)
    return user


class TaskPod(Pod, frozen=True):
    """The pod of a task."""

    @property
    def task(self) -> TaskId | None:
        """The task of the pod; ``None`` where the label names none."""
        try:
            return TaskId.parse(self.metadata.labels.get(names.TASK, ""))
        except ValueError:
            return None

    @property
    def ours(self) -> bool:
        """Whether the engine created the pod, and not a spawner."""
        return FINALIZER in self.metadata.finalizers

    @property
    def container(self) -> str:
        """The name of the task's container."""
        present = [one.name for one in self.spec.containers]
        return CONTAINER if CONTAINER in present or not present else present[0]

    @property
    def state(self) -> ContainerState:
        """The state of the task's container."""
        states = {one.name: one.state for one in self.status.container_statuses}
        return states.get(self.container, ContainerState())

    @property
    def preparing(self) -> ContainerState:
        """The state of the init container, unless it has succeeded."""
        for one in self.status.init_container_statuses:
            end = one.state.terminated
            if end is None or end.exit_code:
                return one.state
        return ContainerState()


def known_gpus(
    pods: Iterable[TaskPod], by_claim: Callable[[str], frozenset[str]]
) -> dict[str, dict[str, frozenset[str]]]:
    """UUIDs of the GPUs, or of the MIG instances, that workloads have, by node and by workload.

    A workload is left out on a node where those of one of its pods are not known.

    Args:
        pods: that have not ended.
        by_claim: UUIDs of the GPUs that the claim of a pod has, by the pod's uid; empty: unknown.
    """
    found: dict[str, dict[str, frozenset[str]]] = {}
    unknown: set[tuple[str, str]] = set()
    for pod in pods:
        if pod.task is None:
            continue
        node, uid = pod.spec.node_name, pod.task.workload_uid
        # Whoever has claims of their own may have any device by them.
        uuids = frozenset[str]()
        if not pod.spec.resource_claims:
            uuids = visible_of(pod) or by_claim(pod.metadata.uid)
        on_node = found.setdefault(node, {})
        on_node[uid] = on_node.get(uid, frozenset()) | uuids
        if not uuids:
            unknown.add((node, uid))
    for node, uid in unknown:
        del found[node][uid]
    return found


def moment(time: datetime | None) -> float:
    """Epoch seconds of a time in an object; 0 for none."""
    return 0.0 if time is None else time.timestamp()
