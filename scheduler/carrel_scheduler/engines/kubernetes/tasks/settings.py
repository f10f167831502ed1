"""Settings of the engine of a cluster, and paths inside its containers."""

from dataclasses import dataclass
from typing import Final

from carrel_schema.names import CHECKPOINTS_CLAIM, GROUP

HOME: Final = "/carrel"
"""The folder of everything that the engine puts into a container."""
WORK: Final = f"{HOME}/work"
CHECKPOINTS: Final = f"{HOME}/checkpoints"
BEFORE: Final = f"{HOME}/before"
"""Checkpoints of the work that a task goes on from."""
ARTIFACTS: Final = f"{HOME}/artifacts"
MODEL: Final = f"{HOME}/model"
EVENTS: Final = f"{HOME}/events"
GIVEN: Final = f"{HOME}/given"
"""Files that came along, until the task begins and has copies of them in its folder."""
RUN: Final = f"{HOME}/run"
"""Notes of terminals beside the task; memory."""

FINALIZER: Final = f"{GROUP}/seen"
"""Keeps a pod until the scheduler has recorded its end, whoever deletes it."""
FORGOTTEN: Final = f"{GROUP}/forgotten"
"""Label of pods whose end was recorded: they are kept for their logs only."""
CONTAINER: Final = "task"
LOST_AFTER_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class PodSettings:
    """Settings of the pods of tasks.

    Attributes:
        image: of tasks that name none.
        pull_policy: of images; empty: Kubernetes' own choice.
        user, group: under which containers run, whatever their image sets; volumes belong to the
            group. Images of workspaces use the same, so that both read each other's files.
        storage_claim: claim of the project's namespace for checkpoints and event files; empty:
            there is none, and they go with their pod.
        lost_after_seconds: how long a node may be silent before its tasks are taken for lost.
        external_seconds: how long the engine waits for a pod that somebody else makes.
        begin_seconds: how long a task may wait for its image or its container before it has failed.
        cluster_domain: what the cluster's names end with.
        pull_secrets: names of secrets that images are pulled with.
        gpu_image: of what prepares the limiter of GPU memory in pods with a share, and of the pods
            that hold shared GPUs: one with Carrel in it; empty: as ``image``.
        limits_gpu_memory: whether pods with a share of a GPU are kept within their memory.
    """

    image: str
    pull_policy: str = ""
    user: int = 1000
    group: int = 1000
    storage_claim: str = CHECKPOINTS_CLAIM
    lost_after_seconds: int = LOST_AFTER_SECONDS
    external_seconds: float = 120.0
    begin_seconds: float = 600.0
    cluster_domain: str = "cluster.local"
    pull_secrets: tuple[str, ...] = ()
    gpu_image: str = ""
    limits_gpu_memory: bool = True
