"""Projects and departments: quotas, limits, and the rules for their work."""

from typing import Annotated, Literal

import msgspec

from carrel_schema.constraints import (
    Constraint,
    PositiveSeconds,
    QuotaGpus,
    Seconds,
    Text,
)
from carrel_schema.objects.work import Meta

Weight = Annotated[int, Constraint(ge=0, le=1_000_000)]
Rank = Annotated[int, Constraint(ge=-1000, le=1000)]
Placement = Literal["pack", "spread"]
UserOrder = Literal["submission", "fair-share"]


class StayRule(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of how long work may run and be idle, whatever its kind; ``None``: no limit.

    Attributes:
        time_limit_seconds: how long it may run before it is stopped.
        idle_timeout_seconds: how long it may be without activity before it is stopped.
        busy_cap_seconds: how long a cell may compute before it counts as idle.
        warn_before_seconds: how long before a stop the owner is told.
        extend_seconds: what one extension adds; ``max_extensions``: how many there may be.
    """

    time_limit_seconds: PositiveSeconds | None = None
    idle_timeout_seconds: PositiveSeconds | None = None
    busy_cap_seconds: PositiveSeconds | None = 86_400.0
    warn_before_seconds: Seconds = 600.0
    extend_seconds: PositiveSeconds = 3600.0
    max_extensions: Annotated[int, Constraint(ge=0, le=1000)] = 0


class InteractiveLimits(StayRule, frozen=True, kw_only=True):
    """A project's rules for workspaces.

    ``apply_to_running``: whether a change also holds for workspaces that run already; else they
    keep the rule that they were started under.
    """

    apply_to_running: bool = False


class TrainingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """A project's rules for trainings; ``None`` means no such limit.

    Attributes:
        idle_gpu_seconds: how long all of its GPUs may be idle before it is stopped.
        time_limit_seconds: how long it may run before it is stopped.
        apply_to_running: whether a change also holds for trainings that run already.
    """

    idle_gpu_seconds: PositiveSeconds | None = None
    time_limit_seconds: PositiveSeconds | None = None
    apply_to_running: bool = False


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts per resource; ``None`` means no bound."""

    gpu_milli: int | None = 0
    cpu_milli: int | None = None
    memory_bytes: int | None = None


GroupName = Annotated[str, Constraint(form="name")]
GroupNames = Annotated[list[GroupName], Constraint(max_length=64)]
NodeGroupAmounts = Annotated[dict[GroupName, QuotaGpus], Constraint(max_length=64)]


class NodeGroupLists(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of nodes that work is kept to, by its kind; an empty list: any nodes.

    Attributes:
        training: for trainings and all other work that no person waits at.
        interactive: for workspaces.
    """

    training: GroupNames = []
    interactive: GroupNames = []


class QueueRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a queue, that is of a project or of a department.

    Stored specifications and the fields of REST derive from it, and say how they count amounts.

    Attributes:
        quota: the guaranteed resources.
        limit: the most that it may use, also of idle resources.
        over_quota: whether it may use more than the quota while others leave resources idle.
        weight: its share of the resources that nobody is guaranteed; null: in proportion to the
            GPU quota.
        rank: queues of a higher rank get resources over quota before all of a lower one.
        preempt_min_runtime_seconds: how long its work runs at least before it is preempted for work
            of higher priority in the same project; null: what the department says, else the
            cluster.
        reclaim_min_runtime_seconds: how long its work over quota runs at least before another queue
            reclaims the resources; null: as above.
        preemption_delay_seconds: how long its work waits before others are preempted for it; null:
            as above.
        reservation_delay_seconds: how long its large work waits before resources are reserved for
            it; null: as above.
        placement: whether its tasks are packed on few nodes or spread over many; null: as above.
        node_groups: groups of nodes that its work is kept to; none: all that are open to it, or as
            the department says.
        node_group_limits: the most GPUs that it may hold on the nodes of a group, by name of the
            group; of groups that are not named as many as `limit` allows.
        node_group_quotas: GPUs that are guaranteed to it on the nodes of a group, by name of the
            group; at most `quota.gpus` in all.
    """

    description: Text = ""
    quota: msgspec.Struct
    limit: msgspec.Struct
    over_quota: bool = True
    weight: Weight | None = None
    rank: Rank = 0
    preempt_min_runtime_seconds: Seconds | None = None
    reclaim_min_runtime_seconds: Seconds | None = None
    preemption_delay_seconds: Seconds | None = None
    reservation_delay_seconds: Seconds | None = None
    placement: Placement | None = None
    node_groups: NodeGroupLists = NodeGroupLists()
    node_group_limits: NodeGroupAmounts = {}
    node_group_quotas: NodeGroupAmounts = {}


class ProjectRules(QueueRules, frozen=True, kw_only=True):
    """The rules of a project: those of a queue, and those for its users and its work.

    Attributes:
        max_gpus_per_user: the most GPUs that the work of each of its users may have at a time, with
            what elastic work may grow to; null: no limit.
        user_order: how its waiting work of equal priority is ordered: by the time of submission, or
            first by the GPUs, then the CPU, that each user holds in the project.
        interactive: for workspaces.
        training: for trainings.
    """

    max_gpus_per_user: QuotaGpus | None = None
    user_order: UserOrder = "submission"
    interactive: InteractiveLimits = InteractiveLimits()
    training: TrainingLimits = TrainingLimits()


class ProjectSpec(ProjectRules, frozen=True, kw_only=True):
    """The settings of a project.

    Attributes:
        color: the number of its colour in the console.
        members_group: the Hub's group whose members belong to the project.
        department: the name of the department that it belongs to; empty: none.
    """

    quota: Quota = Quota()
    limit: Quota = Quota(gpu_milli=None)
    color: int = 0
    members_group: str = ""
    department: Annotated[str, Constraint(form="name")] = ""


class ProjectStatus(msgspec.Struct, kw_only=True):
    """Reserved for controllers; a project's use is computed when asked for."""

    observed_generation: int = 0


class Project(msgspec.Struct, kw_only=True):
    """A project."""

    meta: Meta
    spec: ProjectSpec
    status: ProjectStatus = msgspec.field(default_factory=ProjectStatus)


class DepartmentSpec(QueueRules, frozen=True, kw_only=True):
    """The settings of a department.

    Attributes:
        quota: guaranteed to its projects together; what their own quotas leave of it is shared
            among them by weight.
        limit: the most that its projects may use together, also of idle resources.
    """

    quota: Quota = Quota()
    limit: Quota = Quota(gpu_milli=None)


class DepartmentStatus(msgspec.Struct, kw_only=True):
    """Reserved for controllers."""

    observed_generation: int = 0


class Department(msgspec.Struct, kw_only=True):
    """A department: projects whose guarantees and limits are shared."""

    meta: Meta
    spec: DepartmentSpec
    status: DepartmentStatus = msgspec.field(default_factory=DepartmentStatus)
