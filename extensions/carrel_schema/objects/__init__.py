"""The objects that last: projects and workloads, each with a specification and a status.

The API writes specifications, the reconciler alone writes status. Field names are those of the
REST API. Times are epoch seconds, amounts carry their unit in the name.
"""

from typing import TypeVar

from carrel_schema.objects.projects import (
    Department,
    DepartmentSpec,
    DepartmentStatus,
    GroupName,
    GroupNames,
    InteractiveLimits,
    NodeGroupAmounts,
    NodeGroupLists,
    Placement,
    Project,
    ProjectRules,
    ProjectSpec,
    ProjectStatus,
    QueueRules,
    Quota,
    Rank,
    StayRule,
    TrainingLimits,
    UserOrder,
    Weight,
)
from carrel_schema.objects.status import (
    Checkpoint,
    Failure,
    FailureClass,
    Limits,
    LossCause,
    Phase,
    Preemption,
    Progress,
    ReasonInfo,
    StatusPart,
    TaskInfo,
    Workload,
    WorkloadStatus,
)
from carrel_schema.objects.work import (
    Meta,
    Priority,
    Resources,
    RestartPolicy,
    Tasks,
    Work,
    WorkloadSpec,
)

__all__ = [
    "KINDS",
    "Checkpoint",
    "Department",
    "DepartmentSpec",
    "DepartmentStatus",
    "Failure",
    "FailureClass",
    "GroupName",
    "GroupNames",
    "InteractiveLimits",
    "Limits",
    "LossCause",
    "Meta",
    "NodeGroupAmounts",
    "NodeGroupLists",
    "Object",
    "ObjectT",
    "Phase",
    "Placement",
    "Preemption",
    "Priority",
    "Progress",
    "Project",
    "ProjectRules",
    "ProjectSpec",
    "ProjectStatus",
    "QueueRules",
    "Quota",
    "Rank",
    "ReasonInfo",
    "Resources",
    "RestartPolicy",
    "StatusPart",
    "StayRule",
    "TaskInfo",
    "Tasks",
    "TrainingLimits",
    "UserOrder",
    "Weight",
    "Work",
    "Workload",
    "WorkloadSpec",
    "WorkloadStatus",
]

Object = Project | Workload | Department
ObjectT = TypeVar("ObjectT", Project, Workload, Department)
KINDS: dict[str, type[Object]] = {
    "Project": Project,
    "Workload": Workload,
    "Department": Department,
}
