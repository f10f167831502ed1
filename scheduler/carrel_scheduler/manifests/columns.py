"""What ``kubectl get`` shows, in the words and the order of the command line's tables."""

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``priority`` 1 is shown with ``-o wide`` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def manifest(self) -> dict[str, Any]:
        """The column in the form of a CRD."""
        hidden = {"priority": self.priority} if self.priority else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **hidden}


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")
WORK: Final = (
    Column("Status", ".status.shown.status"),
    _AGE,
    Column("Node", ".status.shown.node"),
    Column("Image", ".spec.image", priority=1),
    Column("User", ".spec.user"),
    Column("GPUs Allocated (Requested)", ".status.shown.gpus"),
    Column("PODs Running (Pending)", ".status.shown.pods"),
    Column("Why", ".status.reason.sentence", priority=1),
)
POOL: Final = (
    Column("GPUs", ".spec.quota.gpus", "number"),
    Column("Limit", ".spec.limit.gpus", "number"),
    Column("Weight", ".spec.weight", "integer"),
    Column("Rank", ".spec.rank", "integer"),
    Column("Department", ".spec.department", priority=1),
    _AGE,
)
GROUP: Final = (
    Column("Status", ".status.phase"),
    Column("Members", ".spec.minMember", "integer"),
    Column("Pods", ".status.pods", "integer"),
    Column("Placed", ".status.placed", "integer"),
    Column("Queue", ".spec.queue"),
    _AGE,
    Column("Why", ".status.reason", priority=1),
)
RULES: Final = (Column("Fields", ".spec.rules[*].field"), _AGE)
LEVELS: Final = (Column("Levels", ".spec.levels[*].nodeLabel"), _AGE)
NODES: Final = (
    Column("Role", ".spec.role"),
    Column("Nodes", ".status.nodes", "integer"),
    Column("Available", ".status.available", "integer"),
    Column("GPUs", ".status.gpus", "integer"),
    _AGE,
)
