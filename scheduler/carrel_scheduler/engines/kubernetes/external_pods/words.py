"""What pods are told, in tokens and sentences."""

from typing import Final

from carrel_scheduler.core.messages import render
from carrel_scheduler.core.reasons import Reason

NO_PROJECT: Final = "ProjectNotFound"
CAN_NOT_BE_PLACED: Final = "CanNotBePlaced"
REFUSED: Final = "BindingRefused"
INCOMPLETE: Final = "GangIncomplete"
NODE_LOST: Final = "NodeLost"
PROTECTED: Final = "EvictionRefused"
PODS_MISSING: Final = "PodsMissing"
QUEUED: Final = "Queued"


def no_project(name: str) -> str:
    """A pod names a project that is not there."""
    return (
        f"There is no project `{name}`. Label the pod with `carrel.dev/project`, or make the "
        "project; the pod is placed as soon as it is there."
    )


def waits(reason: Reason, project: str) -> tuple[str, str]:
    """Why a pod waits: token and sentence, with what would help. Names of others are left out."""
    sentence = render.sentence(reason, project, names=False)
    helps = render.help_text(reason, project, names=False)
    return reason.token.value, f"{sentence} {helps}".strip()


def evicted(reason: Reason, project: str) -> tuple[str, str]:
    """Why a pod gives way."""
    return reason.token.value, render.sentence(reason, project, names=False)


def does_not_give_way(why: str) -> str:
    """A pod is to give way, and the cluster does not let it be evicted."""
    return f"It is to give way, and is not evicted: {why.rstrip('.')}. That is tried again."


def incomplete(name: str) -> str:
    """A gang of which one could not start."""
    return f"Not all of `{name}` could start, so none of it holds room; it starts again as a whole."


def node_lost(node: str) -> str:
    """A pod's node is gone or does not answer."""
    return (
        f"Node `{node}` does not answer or is gone: what ran there counts as lost, and is placed "
        "elsewhere when its controller makes it again."
    )
