"""The objects of the REST API as typed structures.

Fields that a newer server adds are ignored, words that it adds (a phase, a kind) are plain strings,
so an old client keeps working. Times are epoch seconds; amounts carry their unit in the name; GPUs
are counted as numbers (``0.5``).
"""

from carrel.models.batch import BatchAnswer, Problem, Submitted
from carrel.models.cluster import Device, Holder, Identity, Node, QueueEntry
from carrel.models.history import (
    Decision,
    Event,
    History,
    MetricPoint,
    Report,
    Transition,
    Usage,
)
from carrel.models.project import (
    Amounts,
    Department,
    InteractiveLimits,
    Project,
    ProjectImpact,
    ProjectUse,
    TrainingLimits,
    by_department,
)
from carrel.models.workload import (
    AT_REST,
    HOLDING,
    Checkpoint,
    Forecast,
    Limits,
    Preemption,
    Progress,
    Reason,
    Task,
    Volume,
    Workload,
    WorkloadPage,
    WorkloadSpec,
    WorkloadStatus,
)

__all__ = [
    "AT_REST",
    "HOLDING",
    "Amounts",
    "BatchAnswer",
    "Checkpoint",
    "Decision",
    "Department",
    "Device",
    "Event",
    "Forecast",
    "History",
    "Holder",
    "Identity",
    "InteractiveLimits",
    "Limits",
    "MetricPoint",
    "Node",
    "Preemption",
    "Problem",
    "Progress",
    "Project",
    "ProjectImpact",
    "ProjectUse",
    "QueueEntry",
    "Reason",
    "Report",
    "Submitted",
    "Task",
    "TrainingLimits",
    "Transition",
    "Usage",
    "Volume",
    "Workload",
    "WorkloadPage",
    "WorkloadSpec",
    "WorkloadStatus",
    "by_department",
]
