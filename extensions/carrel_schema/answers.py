"""Answers of the REST API: projects, nodes, the queue, trials, the caller.

GPUs are counted as numbers (``gpus: 0.5``), times are epoch seconds. A server sends every field of
these; the defaults are for the answers of older servers, and the OpenAPI document leaves them out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from carrel_schema.constraints import (
    CpuMillicores,
    MemoryBytes,
    Name,
    ProjectName,
    QuotaGpus,
)
from carrel_schema.objects import ProjectRules, QueueRules, ReasonInfo


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of answers that are always complete."""


class HeldRole(Answer, frozen=True, kw_only=True):
    """A role that the caller has; ``source``: by what, as ``member`` or ``access rule``."""

    role: str
    scope: str
    source: str = ""


class WhoAmI(Answer, frozen=True, kw_only=True):
    """The caller.

    Attributes:
        admin: whether it administers the platform.
        projects: that it sees.
        default_project: where work goes when none is named.
        roles: that it has, and where.
        permissions: that it has in any scope.
    """

    user: str
    admin: bool = False
    projects: Sequence[str] = ()
    default_project: str | None = None
    roles: Sequence[HeldRole] = ()
    permissions: Sequence[str] = ()


class Members(Answer, frozen=True, kw_only=True):
    """The members of a project."""

    users: Sequence[str] = ()


class UploadedCode(Answer, frozen=True, kw_only=True):
    """The state of an uploaded folder.

    Attributes:
        digest: to submit work with.
        missing: chunks that have to be sent; once they are, the list is uploaded again.
    """

    digest: str
    missing: Sequence[str] = ()


class Amounts(Answer, frozen=True, kw_only=True):
    """An amount of each resource; ``null`` means no bound."""

    gpus: QuotaGpus | None = None
    cpu_millicores: CpuMillicores | None = None
    memory_bytes: MemoryBytes | None = None


class QuotaAmounts(Amounts, frozen=True, kw_only=True):
    """Guaranteed amounts; ``null`` means no bound."""

    gpus: QuotaGpus | None = 0.0


class QuotaFinding(Answer, frozen=True, kw_only=True):
    """A finding: quotas and limits that do not fit together.

    Attributes:
        kind, name: what it is about; of the cluster the name is empty.
        field: which field of it.
        severity: ``warning``: somebody may not get what they are guaranteed; ``notice``: a rule
            without effect.
    """

    kind: Literal["cluster", "department", "project"]
    name: str
    field: str
    severity: Literal["warning", "notice"]
    sentence: str


class UseOut(msgspec.Struct, frozen=True, kw_only=True):
    """A project's use of its quota now, and its pending work."""

    gpus_allocated: float = 0.0
    gpus_borrowed: float = 0.0
    gpus_waiting: float = 0.0
    fair_share_gpus: float = 0.0
    cpu_allocated_millicores: int = 0
    memory_allocated_bytes: int = 0
    running: int = 0
    waiting: int = 0


class DepartmentFields(QueueRules, Answer, frozen=True, kw_only=True):
    """The settings of a department, complete; a field left out has its default."""

    quota: QuotaAmounts = QuotaAmounts()
    limit: Amounts = Amounts()


class ProjectFields(ProjectRules, Answer, frozen=True, kw_only=True):
    """The settings of a project, complete; a field left out has its default.

    Attributes:
        department: the department that it belongs to; null: none.
    """

    quota: QuotaAmounts = QuotaAmounts()
    limit: Amounts = Amounts()
    department: Name | None = None


class ProjectCreate(ProjectFields, frozen=True, kw_only=True):
    """A project to create."""

    name: ProjectName


class EffectiveProjectRule(Answer, frozen=True, kw_only=True):
    """A rule as it holds for the work of a project.

    Attributes:
        value: what holds; null: nothing.
        origin: who says so: the project, its department, or the settings of the cluster.
    """

    value: float | str | None = None
    origin: Literal["project", "department", "cluster"] = "cluster"


class ProjectOut(ProjectFields, frozen=True, kw_only=True):
    """A project.

    Attributes:
        effective: the rules that it may take over from its department or the cluster, by field.
    """

    name: str
    color: int = 0
    resource_version: int = 0
    created_at: float = 0.0
    effective: Mapping[str, EffectiveProjectRule] = {}
    use: UseOut = UseOut()


class ProjectImpact(Answer, frozen=True, kw_only=True):
    """The workloads, as ``project/name``, that a change of rules would start and preempt."""

    would_start: Sequence[str] = ()
    would_give_way: Sequence[str] = ()


class DepartmentOut(DepartmentFields, frozen=True, kw_only=True):
    """A department: the rules that all its projects share."""

    name: str
    resource_version: int = 0
    created_at: float = 0.0


class DeviceHolder(Answer, frozen=True, kw_only=True):
    """The holder of a device. ``state``: ``running``, ``releasing`` or ``held`` (reserved).

    Of projects that the caller is not in, ``uid``, ``name``, ``user`` and ``kind`` are empty.
    ``color`` is its project's colour number, null when the project is gone. ``utilization`` (0 to 1
    of the device) and ``memory_used_mib`` are its own part, null while unknown and for projects
    that the caller is not in.
    """

    uid: str = ""
    name: str = ""
    project: str = ""
    user: str = ""
    kind: str = ""
    gpu_milli: int = 0
    borrowed: bool = False
    state: str = ""
    since: float = 0.0
    color: int | None = None
    utilization: float | None = None
    memory_used_mib: int | None = None


class MigInstanceView(Answer, frozen=True, kw_only=True):
    """An instance of a divided GPU."""

    uuid: str
    name: str = ""
    memory_mib: int = 0
    memory_used_mib: int = 0


class DeviceView(Answer, frozen=True, kw_only=True):
    """The state of one GPU.

    Attributes:
        utilization: a share (0 to 1) of the last seconds; null while it is not measured.
        broken: nothing new starts there; ``message``: why.
        conditions: what health checks found, in words.
        read_at: when it was last measured.
    """

    index: int
    uuid: str = ""
    name: str = ""
    memory_mib: int = 0
    memory_used_mib: int | None = None
    utilization: float | None = None
    power_watts: float | None = None
    temperature_c: int | None = None
    read_at: float | None = None
    numa_node: int | None = None
    simulated: bool = False
    broken: bool = False
    message: str = ""
    conditions: Sequence[str] = ()
    instances: Sequence[MigInstanceView] = ()
    allocated_milli: int = 0
    idle_since: float | None = None
    holders: Sequence[DeviceHolder] = ()


class DeviceLinkView(Answer, frozen=True, kw_only=True):
    """Two well connected GPUs. ``hops``: 0 NVLink or NVSwitch, 2 the same NUMA node."""

    first: int
    second: int
    hops: int


class NodeView(Answer, frozen=True, kw_only=True):
    """The state of one node; ``group`` is its group of nodes, empty if it is in none."""

    name: str
    status: str = ""
    group: str = ""
    simulated: bool = False
    driver: str = ""
    cpu_milli: int = 0
    cpu_allocated_milli: int = 0
    memory_bytes: int = 0
    memory_allocated_bytes: int = 0
    gpu_milli: int = 0
    gpu_allocated_milli: int = 0
    largest_free_gpus: int = 0
    fractions: str = ""
    devices: Sequence[DeviceView] = ()
    links: Sequence[DeviceLinkView] = ()


class RequestOut(Answer, frozen=True, kw_only=True):
    """The resource request of one task."""

    gpus: float = 0.0
    cpu_millicores: int = 0
    memory_bytes: int = 0


class SetAsideInput(Answer, frozen=True, kw_only=True):
    """An input of the scheduler that could not be processed; it is tried again when it changes.

    Attributes:
        source: what kind of input it is, such as ``workload`` or ``node``.
        key: which of them: a uid or a name.
        name: what people call it, as ``PROJECT/NAME``; empty where that is the key, or unknown.
        reason: a stable token.
        message: what the error said; the log may say more.
        since: epoch seconds of the first failure for that reason.
    """

    source: str
    key: str
    name: str = ""
    reason: str = ""
    message: str = ""
    since: float = 0.0

    @property
    def called(self) -> str:
        """The name of the input, else its key."""
        return self.name or self.key


class FaultList(Answer, frozen=True, kw_only=True):
    """The faults of the scheduler that concern single inputs or invariants.

    Attributes:
        set_aside: inputs that could not be processed, those that failed last at the end.
        violated_invariants: names of invariants that the audit found violated.
    """

    set_aside: Sequence[SetAsideInput] = ()
    violated_invariants: Sequence[str] = ()


class QueueEntryOut(Answer, frozen=True, kw_only=True):
    """A waiting workload; ``uid``, ``name`` and ``user`` are empty for foreign projects.

    ``color`` is the project's colour number.
    """

    position: int
    uid: str = ""
    name: str = ""
    project: str = ""
    user: str = ""
    kind: str = ""
    resources: RequestOut = RequestOut()
    tasks: int = 1
    waits_since: float = 0.0
    reason: ReasonInfo | None = None
    color: int | None = None


class TrialOut(Answer, frozen=True, kw_only=True):
    """A trial of an experiment.

    Attributes:
        state: ``waiting``, ``running``, ``completed``, ``pruned``, ``failed`` or ``stopped``.
        steps: reported values of the metric as pairs of step and value.
        workload: its name; empty when it was removed. ``seconds``: how long it has run.
        error: why it failed, with the last lines of its log.
        metrics: what it reported last, by name; of trials that ran in a worker.
    """

    number: int
    state: str = ""
    parameters: Mapping[str, Any] = {}
    value: float | None = None
    steps: Sequence[tuple[int, float]] = ()
    workload: str = ""
    phase: str = ""
    attempt: int = 0
    seconds: float | None = None
    error: str = ""
    metrics: Mapping[str, float] = {}


class Trials(Answer, frozen=True, kw_only=True):
    """The trials of an experiment, and the number of the best."""

    metric: str = "objective"
    direction: str = "minimize"
    best: int | None = None
    items: Sequence[TrialOut] = ()

    def __iter__(self) -> Iterator[TrialOut]:
        """The trials in the order of their numbers."""
        return iter(self.items)


class TrialLog(Answer, frozen=True, kw_only=True):
    """The end of what a trial printed."""

    trial: int = 0
    log: str = ""


class OutputNames(Answer, frozen=True, kw_only=True):
    """The outputs that workers of a map have handed back so far."""

    items: Sequence[str] = ()


class Draft(Answer, frozen=True, kw_only=True):
    """The body of ``POST /workloads`` with the best trial's parameters in it.

    ``secrets`` are names of secret variables that the experiment has and the body has not.
    """

    trial: int
    workload: Mapping[str, Any] = {}
    secrets: Sequence[str] = ()
