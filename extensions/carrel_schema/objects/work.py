"""The identity of an object, and the specification of work."""

from typing import Annotated, Literal

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
    ShortText,
    StallSeconds,
    WorkingDir,
)
from carrel_schema.kinds import WorkloadKind

RestartPolicy = Literal["on-failure", "never", "always"]
Priority = (
    Annotated[int, Constraint(ge=0, le=1_000_000)] | Annotated[str, Constraint(max_length=64)]
)
Tasks = Annotated[int, Constraint(ge=1, le=10_000)]


class Meta(msgspec.Struct, kw_only=True):
    """Identity of an object. ``project`` is empty for a project itself.

    ``resource_version`` is the number of the store's last change to it, ``generation`` counts
    changes of the specification only. ``deleting``: it is being deleted, and is kept until its
    work has ended; of workloads the specification says so.
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
    """The resources that one task needs.

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
    """The specification of work, in the same words in a request, in the ledger and in an answer.

    A field that is added here is asked for, checked, stored, written in manifests and answered.

    Attributes:
        command: the program and its arguments.
        environment: variables of its tasks.
        working_dir: the folder to start in.
        image: container image.
        tasks: how many start together.
        priority: its place among the project's own, a named level or a number; empty: the kind's.
        preemptible: may it be preempted? Trainings may, interactive work may not, by default.
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
        move_to_better_type: while it runs and may be preempted, it moves to GPUs of a better one of
            those types once all of it fits there, and goes on from its last checkpoint.
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
    stall_after_seconds: StallSeconds | None = None
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
    move_to_better_type: bool = False
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
    """The specification of a workload.

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
