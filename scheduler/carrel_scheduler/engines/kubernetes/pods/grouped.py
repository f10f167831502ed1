"""What a pod belongs to."""

from dataclasses import dataclass

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.gangs import Group


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one kind in a gang; ``least`` of them start together with the other roles."""

    name: str
    least: int


@dataclass(frozen=True, slots=True)
class Grouping:
    """What pods belong to.

    Attributes:
        uid: of the object at the top: a job, a group, or the pod itself.
        kind: of that object.
        roles: of a gang; empty where each pod is placed for itself.
        structure: of a gang, how its roles hang together, with leaves of one role each and no
            requests; ``None``: all roles side by side.
        priority: as the core sorts.
        controlled: pods that are lost are made again by a controller.
        created_at: of the object at the top; pods that come again keep its place in the queue.
        preemption_delay_s: so long it makes nobody give way.
    """

    uid: str
    name: str
    project: str
    user: str = ""
    kind: str = "Pod"
    priority: int = 50
    preemptible: Preemptibility = Preemptibility.YES
    interactive: bool = False
    controlled: bool = False
    created_at: float = 0.0
    roles: tuple[Role, ...] = ()
    structure: Group | None = None
    preemption_delay_s: float = 0.0

    @property
    def is_gang(self) -> bool:
        """Whether its pods start together or not at all."""
        return bool(self.roles)


@dataclass(frozen=True, slots=True)
class Grouped:
    """The group of a pod, and its role there."""

    grouping: Grouping
    role: str = ""
