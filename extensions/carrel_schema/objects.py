"""The objects that last: projects and workloads, each with a specification and a status.

The API writes specifications, the reconciler alone writes status. Field names are those of the
REST API. Times are epoch seconds, amounts carry their unit in the name.
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from carrel_schema import sections
from carrel_schema.constraints import (
    Command,
    Constraint,
    Environment,
    Files,
    GpuType,
    LevelName,
    Port,
    PositiveSeconds,
    QuotaGpus,
    Seconds,
    ShortText,
    Text,
    WorkingDir,
)
from carrel_schema.kinds import WorkloadKind

Phase = Literal[
    "pending",
    "starting",
    "running",
    "preempting",
    "stopping",
    "succeeded",
    "failed",
    "stopped",
]
RestartPolicy = Literal["on-failure", "never", "always"]
Priority = (
    Annotated[int, Constraint(ge=0, le=1_000_000)] | Annotated[str, Constraint(max_length=64)]
)
Tasks = Annotated[int, Constraint(ge=1, le=10_000)]
FailureClass = Literal["application", "memory", "crash", "stalled", "gpu", "node", "lost"]
LossCause = Literal["", "gpu", "node"]
"""What went away under a task that was lost; empty where nobody knows."""


class Meta(msgspec.Struct, kw_only=True):
    """Identity of an object. ``project`` is empty for a project itself.

    ``resource_version`` is the number of the store's last change to it, ``generation`` counts
    changes of the specification only. ``deleting``: it is to go, and is kept until its work has
    ended; of workloads their specification says so.
    """

    name: str
    project: str = ""
    uid: str = ""
    resource_version: int = 0
    generation: int = 0
    created_at: float = 0.0
    created_by: str = ""
    labels: dict[str, str] = {}
    deleting: bool = False


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What one task needs.

    ``cpu_milli`` is its share of the processors while others want them, too; idle ones it may use
    up to ``cpu_limit_milli`` (0: all). Memory is both: what is set aside, and never more.
    ``mig_profile`` asks for one MIG instance, as ``1g.10gb``, in place of GPUs. ``mig_milli`` is
    the part of a GPU that it is, where that is another than its name alone tells; else 0.
    ``gpu_memory_mib`` is the part of a GPU's memory that was asked for in place of GPUs, 0: none;
    ``gpu_milli`` is then the share of a GPU that has it. A share is taken of each of
    ``gpu_devices`` GPUs of one node.
    """

    gpu_milli: int = 0
    gpu_memory_mib: int = 0
    gpu_devices: int = 1
    cpu_milli: int = 100
    cpu_limit_milli: int = 0
    memory_bytes: int = 1024**3
    mig_profile: str = ""
    mig_milli: int = 0


class Work(msgspec.Struct, kw_only=True):
    """What is asked for, in the same words in a request, in the ledger and in an answer.

    A field that is added here is asked for, checked, stored, written in manifests and answered.

    Attributes:
        command: the program and its arguments.
        environment: variables of its tasks.
        working_dir: the folder to start in.
        image: container image.
        tasks: how many start together.
        priority: its place among the project's own, a named level or a number; empty: the kind's.
        preemptible: may it give way to others? Trainings may, interactive work may not, by default.
        restart_policy: when to start it again after its end.
        backoff_limit: how often to start it again when it fails; given, also after its own errors.
        retries: failures by class that are followed by another attempt, see ``sections``.
        restart_when_stalled: what is done when it stands still, without work on its GPUs and
            without a report: it is started again, or its owner is only told; by default as the
            cluster does.
        avoid_failed_nodes: after a crash or a loss, nodes and GPUs other than those of the last
            attempts are taken first; never a condition.
        stall_after_seconds: so long without work on its GPUs and without a report it stands still.
        assets: what it was put together from, see ``sections``.
        code: the code that its tasks find in their folder, see ``sections``.
        repositories: further Git repositories in folders of it, see ``sections``.
        grace_seconds: time to save when it must stop.
        time_limit_seconds: time in running after which it is stopped, if its project does not
            stop it earlier.
        idle_timeout_seconds: after so long without activity, of trainings without work on their
            GPUs, it is stopped, if its project does not stop it earlier.
        checkpoint_every_seconds: how often it should save.
        continue_from: other work of its user, whose checkpoints it begins with; ``work:name`` for a
            certain one of them, or for a copy that was kept.
        model: ``name@version`` of a model of its project, which its tasks may read.
        after: work of its project that has to end before it starts, see ``sections``.
        inputs: names of the notebook's variables that came along, for display.
        port: of a workspace's server.
        large_shm: shared memory of its own, as large as its memory.
        node_group: only nodes of this group.
        gpu_types: models of GPUs that will do, the best first: A100, H100.
        topology_required: all tasks run in one domain of this level, as node or a label of nodes.
        topology_preferred: all tasks run in one domain of this level if they can.
        routes: ports that people reach through the gateway.
        rendezvous, elastic, experiment, inference, notebook, schedule, tensorboard: see
            ``sections``; only of the kinds that have them.
    """

    kind: WorkloadKind = "training"
    command: Command = []
    environment: Environment = {}
    working_dir: WorkingDir = ""
    image: ShortText = ""
    tasks: Tasks = 1
    priority: Priority = ""
    preemptible: bool | None = None
    restart_policy: RestartPolicy = "on-failure"
    backoff_limit: Annotated[int, Constraint(ge=0, le=1000)] = 6
    retries: sections.Retries | None = None
    restart_when_stalled: bool | None = None
    avoid_failed_nodes: bool = True
    stall_after_seconds: Annotated[float, Constraint(ge=60, le=7 * 86_400)] | None = None
    assets: sections.Assets | None = None
    code: sections.CodeSource | None = None
    repositories: Annotated[list[sections.Repository], Constraint(max_length=8)] = []
    after: Annotated[list[sections.Dependency], Constraint(max_length=100)] = []
    grace_seconds: Annotated[float, Constraint(ge=0, le=3600)] = 30.0
    time_limit_seconds: PositiveSeconds | None = None
    idle_timeout_seconds: PositiveSeconds | None = None
    checkpoint_every_seconds: Annotated[float, Constraint(ge=1, le=7 * 86_400)] | None = None
    continue_from: ShortText = ""
    model: ShortText = ""
    inputs: Annotated[list[ShortText], Constraint(max_length=1000)] = []
    port: Port | None = None
    large_shm: bool = False
    node_group: ShortText = ""
    gpu_types: Annotated[list[GpuType], Constraint(max_length=8)] = []
    topology_required: LevelName = ""
    topology_preferred: LevelName = ""
    routes: Annotated[list[sections.Route], Constraint(max_length=16)] = []
    rendezvous: sections.Rendezvous | None = None
    elastic: sections.Elastic | None = None
    experiment: sections.ExperimentSpec | None = None
    inference: sections.InferenceSpec | None = None
    notebook: sections.NotebookSpec | None = None
    schedule: sections.ScheduleSpec | None = None
    tensorboard: sections.TensorBoardSpec | None = None


class WorkloadSpec(Work, kw_only=True):
    """What a user asks for.

    Attributes:
        user: whose work it is (may differ from the creator when the spawner asks).
        suspend: true asks for a stop that keeps the definition.
        resumes: counted up by every resume, so that a workload stopped by a limit can be resumed.
        read_only: sources of those ``volumes`` that are not to be written to.
        hold_for_claim: a workspace that got its turn in the queue waits for its command; see
            ``claim`` in the API.
        external: a workspace that the Hub itself runs at the place that it is given, as a pod
            labelled with the task's id; it has no command of ours.
        server_name: of a workspace: the Hub's named server, empty for the default one.
        continues: uid of ``continue_from``, or ``copies/uid`` of a kept checkpoint.
        model_uid: uid of the copy that ``model`` is.
        blocked_by: names among ``after`` that have not ended as they are to.
        delete: true asks for the end of its tasks and then of the object.
        asked_by: who asked for the present ``suspend`` or ``delete``; empty when nobody is known.
        parent: name of the job that submitted it; empty: a person did.
        ancestors: uids of the jobs above it, from the one that a person submitted.
        owner: uid of the composite workload that it is a part of; ``part`` is its number there.
        trial: see ``sections``; of trials only.
    """

    user: ShortText = ""
    files: Files = {}
    volumes: list[tuple[str, str]] = []
    read_only: list[str] = []
    resources: Resources = Resources()
    suspend: bool = False
    resumes: int = 0
    delete: bool = False
    asked_by: str = ""
    continues: str = ""
    model_uid: str = ""
    blocked_by: list[str] = []
    hold_for_claim: bool = False
    external: bool = False
    server_name: ShortText = ""
    parent: str = ""
    ancestors: list[str] = []
    owner: str = ""
    part: int = 0
    trial: sections.TrialSpec | None = None


class StatusPart(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts of a status; what an answer leaves out of them, clients take as empty."""


class ReasonInfo(StatusPart, frozen=True, kw_only=True):
    """A reason as people and machines read it: token, class, sentence and the data behind it."""

    token: str
    cls: str = ""
    sentence: str = ""
    help: str = ""
    data: dict[str, Any] = {}


class TaskInfo(StatusPart, frozen=True, kw_only=True):
    """One task's present run.

    Attributes:
        ports: those it was given, by the names of its routes.
        lost: it ended without anybody having seen how.
        loss: what went away under it, of a lost one.
        place: ``held``; ``leaving`` while it ends to give its place back to others;
            ``given-back`` once it has, and may come again; ``done`` when it ended well.
        returns: those of ``devices`` that it gives back while it goes on with the others.
        address: where its servers listen, where it has an address of its own; else its node's.
        mig_slots: the memory slots of its MIG instance, as bits, where Carrel divides the GPU.
    """

    index: int
    attempt: int
    node: str
    devices: tuple[int, ...] = ()
    mig_slots: int = 0
    pid: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int = 0
    message: str = ""
    ports: dict[str, int] = {}
    lost: bool = False
    loss: LossCause = ""
    place: Literal["held", "leaving", "given-back", "done"] = "held"
    returns: tuple[int, ...] = ()
    address: str = ""


class Checkpoint(StatusPart, frozen=True, kw_only=True):
    """The last saved state a job told us of."""

    step: int
    at: float


class Progress(StatusPart, frozen=True, kw_only=True):
    """How far a job is, as it reports itself."""

    done: float
    total: float | None = None
    unit: str = "step"
    at: float = 0.0
    rate: float | None = None


class Preemption(StatusPart, frozen=True, kw_only=True):
    """The four facts of an eviction: when, for whom, under which rule, what was lost."""

    at: float
    rule: str
    for_project: str
    for_workload: str
    for_workload_uid: str = ""
    lost_seconds: float = 0.0
    checkpoint_step: int | None = None


class Failure(StatusPart, frozen=True, kw_only=True):
    """The last attempt that failed.

    Attributes:
        cls: ``application``: another attempt would fail alike; ``memory``: it used more than it
            asked for; ``crash``: any other exit; ``stalled``: it stood still and was ended;
            ``gpu``, ``node``: with its GPU or its node; ``lost``: nobody knows how.
        cause: the exception, or the last line of its output.
        again: the attempt before ended in the same way, both within seconds.
        ran_seconds: how long the attempt ran.
    """

    at: float
    attempt: int
    cls: FailureClass = "crash"
    cause: str = ""
    again: bool = False
    exit_code: int | None = None
    signal: int = 0
    ran_seconds: float = 0.0


class Limits(StatusPart, frozen=True, kw_only=True):
    """Limits in force for a running workload, and when they strike next.

    ``stops_at`` with ``stops_because`` (``TimeLimit`` or ``Idle``) is the next stop that is coming
    if nothing changes; ``warn_at`` is when the owner is told.
    """

    stops_at: float | None = None
    stops_because: str = ""
    warn_at: float | None = None
    idle_since: float | None = None
    extended_until: float | None = None
    may_extend: bool = False
    extensions: int = 0


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


class WorkloadStatus(msgspec.Struct, kw_only=True):
    """What is. Written by the reconciler only.

    Attributes:
        reason: of a waiting, giving way, stopped or failed workload; of others ``None``.
        attempt: number of the present or next run, from 0.
        failures: attempts that failed and count against ``backoff_limit``.
        losses: attempts in a row that were lost soon after they began, with their node or GPU.
        failed_nodes: where the last attempts crashed or were lost, the latest first; other nodes
            are taken first, unless it asks for no such care (``avoid_failed_nodes``).
        failed_devices: the GPUs of those attempts, or those at fault, as ``NODE/INDEX``, where
            nodes tell their GPUs apart; others of the node are taken first.
        queue_position: place among all waiting workloads, from 1.
        borrowed: runs beyond its project's guaranteed quota.
        lowered_by: the scope of a budget that was used up when it was queued, so that it has the
            lowest priority and is preemptible; empty: none.
        rule: the project's limits that it was started under.
        ran_seconds: time in running before the present run; its time limit goes on from there.
        parameters: what the job said it was run with: texts, numbers, switches, by name.
        experiment, endpoint, notebook, schedule: see ``sections``; only of the kinds that have
            them.
    """

    phase: Phase = "pending"
    reason: ReasonInfo | None = None
    observed_generation: int = 0
    observed_resumes: int = 0
    tasks: list[TaskInfo] = []
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    failed_nodes: tuple[str, ...] = ()
    failed_devices: tuple[str, ...] = ()
    preemptions: int = 0
    queue_position: int | None = None
    borrowed: bool = False
    queued_at: float = 0.0
    started_at: float | None = None
    first_started_at: float | None = None
    ended_at: float | None = None
    not_before: float | None = None
    progress: Progress | None = None
    checkpoint: Checkpoint | None = None
    metrics: dict[str, float] = {}
    parameters: dict[str, Any] = {}
    last_preemption: Preemption | None = None
    last_failure: Failure | None = None
    limits: Limits | None = None
    lowered_by: str = ""
    rule: StayRule | None = None
    ran_seconds: float = 0.0
    experiment: sections.ExperimentStatus | None = None
    endpoint: sections.EndpointStatus | None = None
    notebook: sections.NotebookStatus | None = None
    schedule: sections.ScheduleStatus | None = None


class Workload(msgspec.Struct, kw_only=True):
    """A workload."""

    meta: Meta
    spec: WorkloadSpec
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


Weight = Annotated[int, Constraint(ge=0, le=1_000_000)]
Rank = Annotated[int, Constraint(ge=-1000, le=1000)]
Placement = Literal["pack", "spread"]
UserOrder = Literal["submission", "fair-share"]


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


Object = Project | Workload | Department
ObjectT = TypeVar("ObjectT", Project, Workload, Department)
KINDS: dict[str, type[Object]] = {
    "Project": Project,
    "Workload": Workload,
    "Department": Department,
}
