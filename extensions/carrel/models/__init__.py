"""The objects of the REST API as typed structures.

Fields that a newer server adds are ignored, words that it adds (a phase, a kind) are plain strings,
so an old client keeps working. Times are epoch seconds; amounts carry their unit in the name; GPUs
are counted as numbers (``0.5``).
"""

from carrel.models.workload import Event, by_department
from carrel_schema.answers import Amounts, ProjectImpact, QuotaAmounts, QuotaFinding
from carrel_schema.answers import DepartmentOut as Department
from carrel_schema.answers import DeviceHolder as Holder
from carrel_schema.answers import DeviceView as Device
from carrel_schema.answers import FaultList as Faults
from carrel_schema.answers import NodeView as Node
from carrel_schema.answers import ProjectOut as Project
from carrel_schema.answers import QueueEntryOut as QueueEntry
from carrel_schema.answers import UseOut as ProjectUse
from carrel_schema.answers import WhoAmI as Identity
from carrel_schema.files import Artifacts, CheckpointList, StoredCheckpoint, StoredCopy, StoredFile
from carrel_schema.history import Decision, GpuUsePoint, History, Report, Transition, Usage
from carrel_schema.history import Point as MetricPoint
from carrel_schema.objects import (
    Checkpoint,
    InteractiveLimits,
    Limits,
    Preemption,
    Progress,
    TrainingLimits,
    WorkloadStatus,
)
from carrel_schema.objects import ReasonInfo as Reason
from carrel_schema.objects import TaskInfo as Task
from carrel_schema.problems import BatchAnswer
from carrel_schema.problems import BatchItem as Submitted
from carrel_schema.problems import ProblemBody as Problem
from carrel_schema.wire import AT_REST, HOLDING, Forecast, Remedy, Volume, WorkloadPage
from carrel_schema.wire import WorkloadOut as Workload
from carrel_schema.wire import WorkloadSpecOut as WorkloadSpec

__all__ = [
    "AT_REST",
    "HOLDING",
    "Amounts",
    "Artifacts",
    "BatchAnswer",
    "Checkpoint",
    "CheckpointList",
    "Decision",
    "Department",
    "Device",
    "Event",
    "Faults",
    "Forecast",
    "GpuUsePoint",
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
    "QuotaAmounts",
    "QuotaFinding",
    "Reason",
    "Remedy",
    "Report",
    "StoredCheckpoint",
    "StoredCopy",
    "StoredFile",
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
