"""Names and labels of a workspace's pod."""

import hashlib

from carrel_schema.names import (
    ATTEMPT,
    KIND,
    PROJECT,
    TASK,
    TASK_INDEX,
    USER,
    WORKLOAD,
    WORKLOAD_UID,
    label,
)
from carrel_spawner.state import Address


def task_of(address: Address) -> str:
    """The id of the task that a workspace is; it has only one."""
    return f"{address.uid}-0-{address.attempt}"


def labels(address: Address, user: str) -> dict[str, str]:
    """What the scheduler, and people, find a workspace's pod by."""
    return {
        PROJECT: label(address.project),
        WORKLOAD: label(address.name),
        WORKLOAD_UID: label(address.uid),
        TASK: task_of(address),
        TASK_INDEX: "0",
        ATTEMPT: str(address.attempt),
        USER: label(user),
        KIND: "workspace",
    }


def ending_of(address: Address) -> str:
    """What a pod's name ends with, so that each start has a name of its own, found again."""
    return hashlib.sha256(task_of(address).encode()).hexdigest()[:8]
