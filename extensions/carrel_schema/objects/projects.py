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
    """How long a run may stay, whatever its kind; ``None`` means no such limit.

    Attributes:
        time_limit_seconds: time in running after which it is stopped.
        idle_timeout_seconds: stopped after so long without activity.
        busy_cap_seconds: a cell that computes longer than this counts as idle from then on.
        warn_before_seconds: how long before a stop the owner is told.
        extend_seconds: what "keep" adds; ``max_extensions`` how often (0: not allowed).
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
        idle_gpu_seconds: stopped after so long without work on any of the GPUs it holds.
        time_limit_seconds: time in running after which it is stopped.
        apply_to_running: as for workspaces.
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
    """Groups of nodes by what runs there; an empty list keeps work to none of them.

    Attributes:
        training: for trainings and all other work that no person waits at.
        interactive: for workspaces.
    """

    training: GroupNames = []
    interactive: GroupNames = []


class ProjectSpec(msgspec.Struct, kw_only=True):
    """What an admin sets for a project.

    ``limit`` caps all use, also of idle resources. ``weight`` ``None`` means in proportion to the
    GPU quota. ``members_group`` is the Hub group whose members belong to the project.
    ``department`` is the name of the one that it belongs to; empty: none.

    Attributes:
        preempt_min_runtime_seconds: so long its work runs before it is evicted for work of higher
            priority of its own project; null: as the department, else the cluster, says.
        reclaim_min_runtime_seconds: so long its work runs before others reclaim what it borrowed;
            null: as above.
        preemption_delay_seconds: so long its work waits before others are evicted for it; null: as
            above.
        patience_seconds: so long its large work waits before places are reserved for it; null: as
            above.
        placement: whether its tasks fill nodes one after the other or spread over them; null: as
            above.
        node_groups: groups of nodes that its work is kept to; none: all that are open to it, or as
            the department says.
        node_group_limits: GPUs that it may hold on the nodes of a group at most, by name of the
            group; of groups that are not named as many as `limit` allows.
        node_group_quotas: GPUs that are guaranteed to it on the nodes of a group, by name of the
            group; at most `quota.gpus` in all.
        max_gpus_per_user: GPUs that the work of each of its users may have at a time, what it may
            grow to included; null: no limit.
        user_order: what decides between its waiting work of equal priority: only who submitted
            first, or before that whose user holds fewer GPUs, then less CPU, of the project's.
    """

    description: Text = ""
    quota: Quota = Quota()
    limit: Quota = Quota(gpu_milli=None)
    over_quota: bool = True
    weight: Weight | None = None
    rank: Rank = 0
    preempt_min_runtime_seconds: Seconds | None = None
    reclaim_min_runtime_seconds: Seconds | None = None
    preemption_delay_seconds: Seconds | None = None
    patience_seconds: Seconds | None = None
    placement: Placement | None = None
    node_groups: NodeGroupLists = NodeGroupLists()
    node_group_limits: NodeGroupAmounts = {}
    node_group_quotas: NodeGroupAmounts = {}
    max_gpus_per_user: QuotaGpus | None = None
    user_order: UserOrder = "submission"
    interactive: InteractiveLimits = InteractiveLimits()
    training: TrainingLimits = TrainingLimits()
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


class DepartmentSpec(msgspec.Struct, kw_only=True):
    """What an admin sets for a department: the same rules as a project's, for all its projects.

    Attributes:
        quota: guaranteed to its projects together; what their own quotas leave goes to them by
            weight.
        limit: caps all use of its projects together, also of idle resources.
        over_quota: whether they may borrow beyond the department's quota.
        weight: its share of what nobody is guaranteed; null: in proportion to the GPU quota.
        rank: served strictly first out of the surplus when higher.
        preempt_min_runtime_seconds: so long its work runs before it is evicted for work of higher
            priority of its own project; null: as the department, else the cluster, says.
        reclaim_min_runtime_seconds: so long its work runs before others reclaim what it borrowed;
            null: as above.
        preemption_delay_seconds: so long its work waits before others are evicted for it; null: as
            above.
        patience_seconds: so long its large work waits before places are reserved for it; null: as
            above.
        placement: whether its tasks fill nodes one after the other or spread over them; null: as
            above.
        node_groups: groups of nodes that its work is kept to; none: all that are open to it, or as
            the department says.
        node_group_limits: GPUs that it may hold on the nodes of a group at most, by name of the
            group; of groups that are not named as many as `limit` allows.
        node_group_quotas: GPUs that are guaranteed to it on the nodes of a group, by name of the
            group; at most `quota.gpus` in all.
    """

    description: Text = ""
    quota: Quota = Quota()
    limit: Quota = Quota(gpu_milli=None)
    over_quota: bool = True
    weight: Weight | None = None
    rank: Rank = 0
    preempt_min_runtime_seconds: Seconds | None = None
    reclaim_min_runtime_seconds: Seconds | None = None
    preemption_delay_seconds: Seconds | None = None
    patience_seconds: Seconds | None = None
    placement: Placement | None = None
    node_groups: NodeGroupLists = NodeGroupLists()
    node_group_limits: NodeGroupAmounts = {}
    node_group_quotas: NodeGroupAmounts = {}


class DepartmentStatus(msgspec.Struct, kw_only=True):
    """Reserved for controllers."""

    observed_generation: int = 0


class Department(msgspec.Struct, kw_only=True):
    """A department: projects whose guarantees and limits are shared."""

    meta: Meta
    spec: DepartmentSpec
    status: DepartmentStatus = msgspec.field(default_factory=DepartmentStatus)
