"""Between the wire and the objects that last: GPUs in numbers here, in thousandths there."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from carrel_scheduler.api.identity import Principal, group_of
from carrel_scheduler.api.models import answers
from carrel_scheduler.api.models.projects import (
    DepartmentFields,
    ProjectCreate,
    ProjectFields,
    ProjectPatch,
)
from carrel_scheduler.api.models.workloads import ReportIn, WorkloadCreate
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.workloads.launch import builtin_programs
from carrel_scheduler.workloads.views.contract import ProjectUse, QueueEntry, Report
from carrel_schema import sections
from carrel_schema.answers import (
    AmountsOut,
    DepartmentOut,
    ProjectOut,
    QueueEntryOut,
    RequestOut,
    UseOut,
)
from carrel_schema.kinds import KINDS
from carrel_schema.objects import (
    Department,
    DepartmentSpec,
    InteractiveLimits,
    Meta,
    Project,
    ProjectSpec,
    Quota,
    Resources,
    TrainingLimits,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)


def to_workload(
    body: WorkloadCreate, principal: Principal, *, name: str, uid: str, now: float
) -> Workload:
    """A new workload; what was left to the kind (``preemptible``, ``priority``) is filled in."""
    facts = KINDS[body.kind]
    chosen = body.preemptible if facts.may_choose else None
    preemptible = facts.preemptible if chosen is None else chosen
    usual = facts.priority
    runs = body.kind if body.schedule is None else body.schedule.runs
    if body.kind == "workspace" and preemptible:
        usual = "build-preemptible"
    own = _sections(body)
    spec = WorkloadSpec(
        kind=body.kind,
        user=body.user or principal.name,
        command=list(body.command) or builtin_programs.command_for(runs),
        environment=dict(body.environment),
        files=dict(body.files),
        working_dir=body.working_dir,
        volumes=[(volume.source, volume.destination) for volume in body.volumes],
        read_only=[volume.source for volume in body.volumes if volume.read_only],
        image=body.image,
        resources=Resources(
            gpu_milli=gpu_milli(body.gpus),
            cpu_milli=_or_usual(body, "cpu_millicores", builtin_programs.CPU_MILLI.get(runs)),
            cpu_limit_milli=body.cpu_limit_millicores or 0,
            memory_bytes=body.memory_bytes,
            mig_profile=body.mig_profile,
        ),
        tasks=body.tasks,
        priority=usual if body.priority == "" else body.priority,
        preemptible=preemptible,
        restart_policy=body.restart_policy,
        backoff_limit=_or_usual(body, "backoff_limit", builtin_programs.BACKOFF_LIMIT.get(runs)),
        grace_seconds=body.grace_seconds,
        checkpoint_every_seconds=body.checkpoint_every_seconds,
        continue_from=body.continue_from,
        large_shm=body.large_shm,
        node_group=body.node_group,
        inputs=list(body.inputs),
        hold_for_claim=bool(body.hold_for_claim),
        external=bool(body.external),
        server_name=body.server_name or "",
        port=body.port,
        routes=[msgspec.convert(route.model_dump(), sections.Route) for route in body.routes]
        or builtin_programs.routes_for(runs, own.get("tensorboard")),
        **own,
    )
    meta = Meta(
        name=name,
        project=body.project,
        uid=uid,
        created_at=now,
        created_by=principal.name,
        labels=dict(body.labels),
    )
    return Workload(meta=meta, spec=spec, status=WorkloadStatus(queued_at=now))


def _or_usual(body: WorkloadCreate, field: str, usual: int | None) -> int:
    """What was asked for; where nothing was, what is usual for the kind."""
    asked: int = getattr(body, field)
    return asked if usual is None or field in body.model_fields_set else usual


_SECTION_TYPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "rendezvous": sections.Rendezvous,
    "elastic": sections.Elastic,
    "experiment": sections.ExperimentSpec,
    "inference": sections.InferenceSpec,
    "notebook": sections.NotebookSpec,
    "schedule": sections.ScheduleSpec,
    "tensorboard": sections.TensorBoardSpec,
}


def _sections(body: WorkloadCreate) -> dict[str, Any]:
    return {
        name: msgspec.convert(getattr(body, name).model_dump(), _SECTION_TYPES[name])
        for name in body.sections_given()
    }


def workload_fields(workload: Workload, status: WorkloadStatus) -> dict[str, Any]:
    """The fields of ``WorkloadOut`` and its descendants."""
    meta, spec = workload.meta, workload.spec
    return {
        "name": meta.name,
        "project": meta.project,
        "uid": meta.uid,
        "resource_version": meta.resource_version,
        "generation": meta.generation,
        "created_at": meta.created_at,
        "created_by": meta.created_by,
        "labels": meta.labels,
        "spec": _spec(spec),
        "status": status,
    }


def _spec(spec: WorkloadSpec) -> answers.WorkloadSpecOut:
    return answers.WorkloadSpecOut(
        kind=spec.kind,
        user=spec.user,
        command=spec.command,
        environment=spec.environment,
        files={name: len(text.encode()) for name, text in spec.files.items()},
        working_dir=spec.working_dir,
        volumes=volumes(spec),
        image=spec.image,
        gpus=gpus(spec.resources.gpu_milli),
        mig_profile=spec.resources.mig_profile,
        cpu_millicores=spec.resources.cpu_milli,
        cpu_limit_millicores=spec.resources.cpu_limit_milli or None,
        memory_bytes=spec.resources.memory_bytes,
        tasks=spec.tasks,
        priority=spec.priority,
        preemptible=KINDS[spec.kind].preemptible if spec.preemptible is None else spec.preemptible,
        suspend=spec.suspend,
        delete=spec.delete,
        restart_policy=spec.restart_policy,
        backoff_limit=spec.backoff_limit,
        grace_seconds=spec.grace_seconds,
        checkpoint_every_seconds=spec.checkpoint_every_seconds,
        continue_from=spec.continue_from,
        large_shm=spec.large_shm,
        node_group=spec.node_group,
        inputs=spec.inputs,
        hold_for_claim=spec.hold_for_claim,
        external=spec.external,
        server_name=spec.server_name,
        port=spec.port,
        owner=spec.owner,
        part=spec.part,
        routes=tuple(spec.routes),
        trial=spec.trial,
        **{name: getattr(spec, name) for name in _SECTION_TYPES},
    )


def volumes(spec: WorkloadSpec) -> list[answers.VolumeOut]:
    """The folders that its tasks see."""
    return [
        answers.VolumeOut(source=source, destination=where, read_only=source in spec.read_only)
        for source, where in spec.volumes
    ]


def to_project(body: ProjectCreate, principal: Principal, *, color: int, now: float) -> Project:
    """A new project."""
    meta = Meta(name=body.name, created_at=now, created_by=principal.name)
    return Project(meta=meta, spec=to_project_spec(body, group_of(body.name), color))


def to_project_spec(body: ProjectFields, members_group: str, color: int) -> ProjectSpec:
    """A project's specification from its complete fields."""
    return ProjectSpec(
        description=body.description,
        quota=_quota(body.quota.gpus, body.quota.cpu_millicores, body.quota.memory_bytes),
        limit=_quota(body.limit.gpus, body.limit.cpu_millicores, body.limit.memory_bytes),
        over_quota=body.over_quota,
        weight=body.weight,
        rank=body.rank,
        interactive=InteractiveLimits(**body.interactive.model_dump()),
        training=TrainingLimits(**body.training.model_dump()),
        color=color,
        members_group=members_group,
        department=body.department or "",
    )


def to_department(body: DepartmentFields, principal: Principal, *, name: str) -> Department:
    """A department; its version and times are the ledger's to set."""
    spec = DepartmentSpec(
        description=body.description,
        quota=_quota(body.quota.gpus, body.quota.cpu_millicores, body.quota.memory_bytes),
        limit=_quota(body.limit.gpus, body.limit.cpu_millicores, body.limit.memory_bytes),
        over_quota=body.over_quota,
        weight=body.weight,
        rank=body.rank,
    )
    return Department(meta=Meta(name=name, created_by=principal.name), spec=spec)


def department_out(department: Department) -> DepartmentOut:
    """A department as its admins see it."""
    spec, meta = department.spec, department.meta
    return DepartmentOut(
        name=meta.name,
        description=spec.description,
        quota=AmountsOut(**_amounts(spec.quota)),
        limit=AmountsOut(**_amounts(spec.limit)),
        over_quota=spec.over_quota,
        weight=spec.weight,
        rank=spec.rank,
        resource_version=meta.resource_version,
        created_at=meta.created_at,
    )


def patched(spec: ProjectSpec, patch: ProjectPatch) -> ProjectFields:
    """A project's complete fields after a merge patch; raises pydantic's ``ValidationError``."""
    changes = patch.model_dump(exclude_unset=True, exclude={"resource_version"})
    return ProjectFields.model_validate(_merged(_project_fields(spec), changes))


def _merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in changes.items():
        merged[key] = _merged(old[key], value) if isinstance(value, dict) else value
    return merged


def _project_fields(spec: ProjectSpec) -> dict[str, Any]:
    return {
        "description": spec.description,
        "quota": _amounts(spec.quota),
        "limit": _amounts(spec.limit),
        "over_quota": spec.over_quota,
        "weight": spec.weight,
        "rank": spec.rank,
        "interactive": msgspec.structs.asdict(spec.interactive),
        "training": msgspec.structs.asdict(spec.training),
        "department": spec.department or None,
    }


def project_out(project: Project, use: ProjectUse | None) -> ProjectOut:
    """A project with its quota line; one that the scheduler does not know yet uses nothing."""
    spec, meta = project.spec, project.meta
    return ProjectOut(
        name=meta.name,
        description=spec.description,
        quota=AmountsOut(**_amounts(spec.quota)),
        limit=AmountsOut(**_amounts(spec.limit)),
        over_quota=spec.over_quota,
        weight=spec.weight,
        rank=spec.rank,
        interactive=spec.interactive,
        training=spec.training,
        color=spec.color,
        department=spec.department or None,
        resource_version=meta.resource_version,
        created_at=meta.created_at,
        use=UseOut() if use is None else _use(use),
    )


def _use(use: ProjectUse) -> UseOut:
    return UseOut(
        gpus_allocated=gpus(use.gpu_allocated_milli),
        gpus_borrowed=gpus(use.gpu_borrowed_milli),
        gpus_waiting=gpus(use.gpu_waiting_milli),
        fair_share_gpus=gpus(use.fair_share_gpu_milli),
        cpu_allocated_millicores=use.cpu_allocated_milli,
        memory_allocated_bytes=use.memory_allocated_bytes,
        running=use.running,
        waiting=use.waiting,
    )


def queue_entry_out(entry: QueueEntry) -> QueueEntryOut:
    """A queue entry with its amounts in the wire's units."""
    return QueueEntryOut(
        position=entry.position,
        uid=entry.uid,
        name=entry.name,
        project=entry.project,
        user=entry.user,
        kind=entry.kind,
        resources=RequestOut(
            gpus=gpus(entry.resources.gpu_milli),
            cpu_millicores=entry.resources.cpu_milli,
            memory_bytes=entry.resources.memory_bytes,
        ),
        tasks=entry.tasks,
        waits_since=entry.waits_since,
        reason=entry.reason,
        color=entry.color,
    )


def to_report(body: ReportIn, now: float) -> Report:
    """A job's report; without a time of its own it is of now."""
    facts = body.model_dump()
    facts["at"] = now if body.at is None else body.at
    return msgspec.convert(facts, Report)


def gpus(milli: int) -> float:
    """Thousandths of a GPU as a number of GPUs."""
    return milli / MILLI


def gpu_milli(number: float) -> int:
    """A number of GPUs as thousandths."""
    return round(number * MILLI)


def _quota(number: float | None, cpu: int | None, memory: int | None) -> Quota:
    milli = None if number is None else gpu_milli(number)
    return Quota(gpu_milli=milli, cpu_milli=cpu, memory_bytes=memory)


def _amounts(quota: Quota) -> dict[str, Any]:
    return {
        "gpus": None if quota.gpu_milli is None else gpus(quota.gpu_milli),
        "cpu_millicores": quota.cpu_milli,
        "memory_bytes": quota.memory_bytes,
    }
