"""The columns of ``kubectl get``, in the words and the order of the command line's tables."""

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A printed column; ``priority`` 1 is shown with ``-o wide`` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def manifest(self) -> dict[str, Any]:
        """The column in the form of a CRD."""
        hidden = {"priority": self.priority} if self.priority else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **hidden}


_AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date")
WORK: Final = (
    PrinterColumn("Status", ".status.shown.status"),
    _AGE,
    PrinterColumn("Node", ".status.shown.node"),
    PrinterColumn("Image", ".spec.image", priority=1),
    PrinterColumn("User", ".spec.user"),
    PrinterColumn("GPUs Allocated (Requested)", ".status.shown.gpus"),
    PrinterColumn("PODs Running (Pending)", ".status.shown.pods"),
    PrinterColumn("Why", ".status.reason.sentence", priority=1),
)
POOL: Final = (
    PrinterColumn("GPUs", ".spec.quota.gpus", "number"),
    PrinterColumn("Limit", ".spec.limit.gpus", "number"),
    PrinterColumn("Weight", ".spec.weight", "integer"),
    PrinterColumn("Rank", ".spec.rank", "integer"),
    PrinterColumn("Department", ".spec.department", priority=1),
    _AGE,
)
GROUP: Final = (
    PrinterColumn("Status", ".status.phase"),
    PrinterColumn("Members", ".spec.minMember", "integer"),
    PrinterColumn("Pods", ".status.pods", "integer"),
    PrinterColumn("Placed", ".status.placed", "integer"),
    PrinterColumn("Queue", ".spec.queue"),
    _AGE,
    PrinterColumn("Why", ".status.reason", priority=1),
)
RULES: Final = (PrinterColumn("Fields", ".spec.rules[*].field"), _AGE)
LEVELS: Final = (PrinterColumn("Levels", ".spec.levels[*].nodeLabel"), _AGE)
NODES: Final = (
    PrinterColumn("Role", ".spec.role"),
    PrinterColumn("Nodes", ".status.nodes", "integer"),
    PrinterColumn("Available", ".status.available", "integer"),
    PrinterColumn("GPUs", ".status.gpus", "integer"),
    _AGE,
)
