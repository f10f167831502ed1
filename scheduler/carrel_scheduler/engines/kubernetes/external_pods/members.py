"""A pod that others made, in the terms of the scheduler: what it asks for and whom it belongs to.

The rest of the guests' code works on these facts; ``reading`` gets them from objects of Kubernetes.
"""

from dataclasses import dataclass

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping
from carrel_scheduler.engines.kubernetes.pods.types import Pod


@dataclass(frozen=True, slots=True)
class PodRef:
    """One pod for ever: a name may come again, its uid does not."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Member:
    """A pod as it was last seen.

    Attributes:
        pod: as the cluster shows it.
        role: its role in a gang.
        node: where it was bound to; empty while it waits.
        devices: which GPUs of the node its binding names; ``None`` where it names none.
        gated: whoever made it holds it back.
        ending: it was told to end.
        outcome: how it ended; ``None`` while it may still run.
        grace_seconds: how long it may take to end.
        started_at: when its node took it up; 0 while nobody knows.
        told: the reason that its condition says, so that it is not said twice.
        refusal: why its group can not be understood, in words; empty when it can.
    """

    ref: PodRef
    grouping: Grouping
    pod: Pod
    role: str = ""
    node: str = ""
    devices: tuple[int, ...] | None = None
    gated: bool = False
    ending: bool = False
    outcome: Outcome | None = None
    grace_seconds: float = 30.0
    started_at: float = 0.0
    told: str = ""
    refusal: str = ""
