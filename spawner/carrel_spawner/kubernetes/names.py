"""Names and labels of a workspace's pod, the same as the scheduler knows them."""

import hashlib
import re
from typing import Final

from carrel_spawner.state import Address

GROUP: Final = "carrel.dev"
SCHEDULER_NAME: Final = "carrel"
PROJECT: Final = f"{GROUP}/project"
WORKLOAD: Final = f"{GROUP}/workload"
WORKLOAD_UID: Final = f"{GROUP}/workload-uid"
TASK: Final = f"{GROUP}/task"
TASK_INDEX: Final = f"{GROUP}/task-index"
ATTEMPT: Final = f"{GROUP}/attempt"
USER: Final = f"{GROUP}/user"
KIND: Final = f"{GROUP}/kind"
LONGEST_LABEL: Final = 63
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def namespace_of(project: str) -> str:
    """The namespace of a project's work."""
    return f"carrel-{project}"


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


def label(text: str) -> str:
    """A text as a label's value: itself if it can be one, else what is left of it and a digest."""
    if len(text) <= LONGEST_LABEL and _LABEL.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    left = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[: LONGEST_LABEL - 9].rstrip("-")
    return f"{left}-{digest}" if left else digest


def ending_of(address: Address) -> str:
    """What a pod's name ends with, so that each start has a name of its own, found again."""
    return hashlib.sha256(task_of(address).encode()).hexdigest()[:8]
