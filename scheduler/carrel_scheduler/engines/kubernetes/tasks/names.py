"""Names and labels of a task's pod, made from the task alone, so that all who ask find the same."""

import re
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskRefused, TaskSpec
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
