"""Sections: the parts of specification and status that only some kinds of work have.

A section is ``None`` for every other kind. Times are seconds, amounts carry their unit.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

from carrel_schema.constraints import (
    Constraint,
    LongestText,
    Mark,
    Name,
    Number,
    ParameterName,
    Parameters,
    PathText,
    PositiveSeconds,
    Seconds,
    ShortText,
)

Access = Literal["user", "project", "everyone"]
ParameterType = Literal["float", "int", "categorical"]
Choice = str | int | float | bool | None


Retry = Annotated[int, Constraint(ge=0, le=1000)]
GIT_ADDRESS: Final = (
    r"^((https?|git)://[A-Za-z0-9][^\s@\x00]*|ssh://([A-Za-z0-9._-]+@)?[A-Za-z0-9][^\s@\x00]*"
    r"|[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\s\x00-][^\s@\x00]*)?$"
)
REVISION: Final = r"^([A-Za-z0-9_][A-Za-z0-9_./@~^{}+-]*)?$"
BELOW: Final = (
    r"^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*(/[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)*$"
)


class Assets(msgspec.Struct, frozen=True, kw_only=True):
    """Assets that work is put together from, by name; see ``governance.assets``.

    Attributes:
        environment: what runs where: image, command, variables.
        compute: how much it gets: GPUs, cores, memory.
        data_sources: what it finds.
    """

    environment: Name | None = None
    compute: Name | None = None
    data_sources: Annotated[list[Name], Constraint(max_length=32)] = []


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """Retries of failures by class; null: the default.

    Attributes:
        application: errors of the program itself, usually 0; with a backoff limit that is asked
            for, as many as that.
        memory: more memory used than asked for; usually the backoff limit.
        crash: any other exit; usually the backoff limit.
        stalled: it stood still and was ended for that; usually the backoff limit.
        gpu: its GPU failed or went away; usually as ``lost``.
        node: its node failed, went away or was drained; usually as ``lost``.
        lost: it vanished, nobody knows how; usually 50. Losses, of whichever class, are counted in
            a row.
    """

    application: Retry | None = None
    memory: Retry | None = None
    crash: Retry | None = None
    stalled: Retry | None = None
    gpu: Retry | None = None
    node: Retry | None = None
    lost: Retry | None = None


class CodeSource(msgspec.Struct, frozen=True, kw_only=True):
    """The code that a task finds in its folder: an uploaded folder, or a revision of a repository.

    Attributes:
        digest: of the list of files of a folder that was uploaded to the project.
        git: address of a Git repository, without a password.
        revision: a branch, tag or commit; empty: the default branch.
        secret: name of a secret, of the type password or ssh-key, that the repository asks for.
    """

    digest: Annotated[str, Constraint(pattern=r"^([0-9a-f]{64})?$")] = ""
    git: Annotated[str, Constraint(max_length=2048, pattern=GIT_ADDRESS)] = ""
    revision: Annotated[str, Constraint(max_length=255, pattern=REVISION)] = ""
    secret: Name | None = None


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """A Git repository that each task finds in a folder of its own folder.

    Attributes:
        git: its address, without a password.
        destination: the folder, relative to the task's.
        revision: a branch, tag or commit; empty: the default branch.
        secret: name of a secret, of the type password or ssh-key, that the repository asks for.
    """

    git: Annotated[str, Constraint(min_length=1, max_length=2048, pattern=GIT_ADDRESS)]
    destination: Annotated[str, Constraint(min_length=1, max_length=255, pattern=BELOW)]
    revision: Annotated[str, Constraint(max_length=255, pattern=REVISION)] = ""
    secret: Name | None = None


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency: work of the same project that has to end first.

    Attributes:
        name: of that work.
        condition: ``ok``: it has to succeed; ``any``: it only has to end.
        uid: of the work that had the name at submission.
        unmet: why it cannot end as asked any more; empty: it still can, or has.
    """

    name: Name
    condition: Literal["ok", "any"] = "ok"
    uid: Annotated[str, Mark.INTERNAL] = ""
    unmet: Annotated[Literal["", "failed", "deleted"], Mark.INTERNAL] = ""


class Rendezvous(msgspec.Struct, frozen=True, kw_only=True):
    """The rendezvous of a gang: how its members find each other.

    Attributes:
        launcher: each: every worker runs the command; mpi: the first one does, and reaches the
            others through a host file.
        join_timeout_seconds: the gang ends when a worker has not joined by then.
    """

    launcher: Literal["each", "mpi"] = "each"
    join_timeout_seconds: PositiveSeconds = 600.0


class Elastic(msgspec.Struct, frozen=True, kw_only=True):
    """Starts with less than it asks for, grows into idle room, shrinks first.

    Attributes:
        min_tasks: as few tasks as it may run with; 0: all, so only the GPUs change.
        gpus_of_task: the number of GPUs of its one task is halved and doubled.
    """

    min_tasks: Annotated[int, Constraint(ge=0, le=10_000)] = 0
    gpus_of_task: bool = False


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A dimension of a search space.

    ``low`` and ``high`` bound numbers, ``step`` and ``log`` shape them; ``choices`` are those of a
    categorical one.
    """

    type: ParameterType
    low: Number | None = None
    high: Number | None = None
    step: Annotated[float, Constraint(gt=0, le=1e308)] | None = None
    log: bool = False
    choices: Annotated[tuple[Choice, ...], Constraint(max_length=1000)] = ()


class ExperimentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A search for good hyperparameters.

    Attributes:
        parameters: the search space by name; empty when trials define it as they run.
        metric: the reported value that counts.
        direction: whether less or more of it is better.
        sampler: how configurations are chosen.
        pruner: what ends trials early that look bad.
        seed: of the sampler; the same seed, the same configurations.
        completions: how many trials in all.
        parallelism: how many trials at once.
        max_failed_trials: the experiment ends when more have crashed.
        trial_process: fresh: each trial is a workload with a process of its own; warm: workers
            that stay run one after the other; auto: fresh, and warm once trials of a Python
            script have turned out to be short.
        map: trials are the items of a ``carrel.map``, numbered from 0; nothing is searched.
    """

    parameters: Annotated[dict[ParameterName, Parameter], Constraint(max_length=200)] = {}
    metric: ParameterName = "objective"
    direction: Literal["minimize", "maximize"] = "minimize"
    sampler: Literal["tpe", "random", "grid", "cmaes"] = "tpe"
    pruner: Literal["none", "median", "hyperband"] = "none"
    seed: Annotated[int, Constraint(ge=0, le=2**32 - 1)] | None = None
    completions: Annotated[int, Constraint(ge=1, le=100_000)] = 10
    parallelism: Annotated[int, Constraint(ge=1, le=1000)] = 1
    max_failed_trials: Annotated[int, Constraint(ge=0, le=100_000)] = 3
    trial_process: Literal["auto", "warm", "fresh"] = "auto"
    map: bool = False


class TrialSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration of an experiment.

    Attributes:
        worker: it is a worker, which runs trials one after the other; the number is its own.
    """

    number: int
    parameters: dict[str, Any] = {}
    worker: bool = False


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A port of the tasks that people reach through the authenticated gateway.

    Attributes:
        port: that the server listens on; 0: one is chosen and told as ``PORT``.
        name: tells several routes of a workload apart; empty for the first.
        access: who may come in; its user, its project, or everyone with an account.
        keep_prefix: the server sees the gateway's path before its own.
        timeout_seconds: how long the server may take to begin an answer.
        max_request_bytes: the largest request body.
        idle_seconds: stop the work when nobody has come for so long.
    """

    port: Annotated[int, Constraint(ge=0, le=65_535)] = 0
    name: Annotated[str, Constraint(pattern=r"^([a-z0-9][-a-z0-9]{0,31})?$")] = ""
    access: Access = "user"
    keep_prefix: bool = False
    timeout_seconds: PositiveSeconds = 300.0
    max_request_bytes: Annotated[int, Constraint(ge=1, le=2**40)] = 64 * 1024 * 1024
    idle_seconds: PositiveSeconds | None = None


class InferenceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A served endpoint.

    Attributes:
        min_replicas: never fewer; 0 allows none while nobody asks.
        max_replicas: never more.
        in_flight_per_replica: as many requests at once as one replica should have.
        readiness_path: answers 2xx or 3xx once a replica can serve; without it, its port accepts.
        startup_seconds: a replica that is not ready by then has failed.
        idle_seconds: without requests for so long it goes down to its minimum.
        drain_seconds: how long a replica that goes may finish its requests.
        revision: counted up by every change of what replicas run.
    """

    min_replicas: Annotated[int, Constraint(ge=0, le=1000)] = 1
    max_replicas: Annotated[int, Constraint(ge=1, le=1000)] = 1
    in_flight_per_replica: Annotated[int, Constraint(ge=1, le=100_000)] = 8
    readiness_path: ShortText = ""
    startup_seconds: PositiveSeconds = 600.0
    idle_seconds: PositiveSeconds = 300.0
    drain_seconds: Seconds = 30.0
    revision: Annotated[int, Mark.INTERNAL] = 1


class NotebookSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A notebook that runs as a job.

    Attributes:
        path: of the notebook; it is read when the job starts.
        output: where the executed notebook is written, cell by cell; ``{name}`` in it is the
            job's name, ``{date}`` the day on which it began.
        parameters: set in a cell behind the one tagged ``parameters``.
        kernel: the kernel to run it with, if not its own.
        cell_timeout_seconds: the longest that one cell may take.
    """

    path: PathText
    output: LongestText = ""
    parameters: Parameters = {}
    kernel: ShortText = ""
    cell_timeout_seconds: PositiveSeconds | None = None


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that starts work by the clock.

    Attributes:
        cron: five fields.
        time_zone: of the IANA database.
        runs: the kind of each run; the rest of the specification is that of the runs.
        overlap: when the run before still goes on; leave this one out, run both, or end the older.
        keep: how many ended runs stay listed.
        starting_deadline_seconds: a run missed by more than this is left out.
    """

    cron: Annotated[ShortText, Constraint(form="cron")]
    time_zone: Annotated[ShortText, Constraint(form="time_zone")] = "UTC"
    runs: Literal["notebook", "training"] = "notebook"
    overlap: Literal["skip", "allow", "replace"] = "skip"
    keep: Annotated[int, Constraint(ge=1, le=1000)] = 5
    starting_deadline_seconds: PositiveSeconds = 3600.0


class TensorBoardSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A TensorBoard over the event files of jobs of its project, by name.

    Attributes:
        events: the places of these, in the same order, found at submission.
        idle_seconds: stop it when nobody has looked for so long.
    """

    jobs: Annotated[tuple[Name, ...], Constraint(min_length=1, max_length=100), Mark.REQUIRED] = ()
    events: Annotated[tuple[str, ...], Mark.INTERNAL] = ()
    idle_seconds: PositiveSeconds = 1800.0


class ExperimentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of trials, and the best so far."""

    running: int = 0
    completed: int = 0
    pruned: int = 0
    failed: int = 0
    best_trial: int | None = None
    best_value: float | None = None
    best_parameters: dict[str, Any] = {}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that serves requests.

    Attributes:
        uid: of the replica's workload; ``attempt`` is its run.
        host: where its server listens; ``ports`` by the names of its routes.
        state: ``ready`` for requests, or ``draining``: it finishes those that it has.
        since: when it came into this state.
    """

    uid: str
    attempt: int = 0
    host: str = ""
    ports: dict[str, int] = {}
    revision: int = 1
    state: Literal["ready", "draining"] = "ready"
    since: float = 0.0


class EndpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an endpoint.

    Attributes:
        url: path below the public address.
        wanted: replicas that there should be; ``ready`` and ``starting`` are those that there are.
        revision: the one that requests are served by; while ``updating`` another one comes.
        in_flight: requests that are being answered or held.
        latency_p50_seconds: within which half of the last minute's answers began, as measured by
            gateways; ``latency_p99_seconds`` within which 99 of 100 did; none without requests.
        targets: where requests go.
        made: the highest number that a replica was given; ``counted``: up to which ends of
            replicas were looked at; ``tried``: the revision that counted failures are of.
    """

    url: str = ""
    wanted: int = 0
    ready: int = 0
    starting: int = 0
    revision: int = 0
    updating: bool = False
    in_flight: int = 0
    requests_per_second: float = 0.0
    latency_p50_seconds: float | None = None
    latency_p99_seconds: float | None = None
    last_request_at: float | None = None
    targets: tuple[Target, ...] = ()
    made: int = 0
    counted: int = 0
    tried: int = 0


class NotebookStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a notebook's run. Cells are counted from 1, with those of text.

    Attributes:
        cell: the last one that is done; ``cells``: how many there are.
        output: path of the executed notebook.
        resumed_from: the cell that this attempt began with; ``None`` at the first attempt.
        error: why it failed, in a sentence; ``code`` is the stable word for it.
    """

    cell: Annotated[int, Constraint(ge=0, le=1_000_000)] = 0
    cells: Annotated[int, Constraint(ge=0, le=1_000_000)] = 0
    output: LongestText = ""
    resumed_from: Annotated[int, Constraint(ge=1, le=1_000_000)] | None = None
    error: Annotated[LongestText, Constraint(max_length=2000)] = ""
    code: ShortText = ""


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last and the next run of a schedule.

    Attributes:
        last_at: the planned time of the last run; ``last_run`` is its name.
        next_at: when the next one is due; ``None`` while suspended.
        missed: how many were left out because nobody was there to begin them in time.
        skipped: how many were left out because the run before still went on.
        runs: how many were begun.
    """

    last_at: float | None = None
    next_at: float | None = None
    last_run: str = ""
    missed: int = 0
    skipped: int = 0
    runs: int = 0
