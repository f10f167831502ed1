"""What is to be done to pods, decided in one turn and carried out after it."""

from dataclasses import dataclass, field

from carrel_scheduler.engines.kubernetes.external_pods.members import PodRef
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import Decision
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.ledger.records import Transition


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a pod to a node, with devices, after what was decided about its volumes is written.

    ``seen`` is the pod as it was decided on, ``counted`` whom it counts for (``pods.counted``).
    """

    pod: PodRef
    node: str
    devices: tuple[int, ...]
    seen: Pod
    first: tuple[Decision, ...] = ()
    counted: str = ""


@dataclass(frozen=True, slots=True)
class Evict:
    """Tell a pod to give way.

    Attributes:
        reason: a token in CamelCase, such as ``PreemptionByScheduler``.
        message: who wants the room, and why, in a sentence.
    """

    pod: PodRef
    reason: str
    message: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Say in a waiting pod's condition, and as an event, why it waits."""

    pod: PodRef
    token: str
    message: str


@dataclass(frozen=True, slots=True)
class Note:
    """Say as an event what happened to a pod."""

    pod: PodRef
    token: str
    message: str


@dataclass(frozen=True, slots=True)
class Nominate:
    """Say on which node room is being freed for a pod."""

    pod: PodRef
    node: str


@dataclass(slots=True)
class Orders:
    """All orders of a turn, and the rows of history that go with them."""

    binds: list[Bind] = field(default_factory=list)
    evictions: list[Evict] = field(default_factory=list)
    tells: list[Tell] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    nominations: list[Nominate] = field(default_factory=list)
    rows: list[Transition] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(
            self.binds
            or self.evictions
            or self.tells
            or self.notes
            or self.nominations
            or self.rows
        )
