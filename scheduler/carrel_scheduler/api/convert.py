"""Conversion between the wire (GPUs in numbers) and stored objects (in thousandths).

Fields of the same name mean the same and are copied; only what differs is written out.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from carrel_scheduler.api.models import answers, validators
from carrel_scheduler.api.models.workloads import ReportIn
from carrel_scheduler.api.principals.identity import Principal, group_of
from carrel_scheduler.core.mig import counted_gpu_milli
from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.workloads.contract import ProjectUse, QueueEntry
from carrel_scheduler.workloads.launch import builtin_programs
from carrel_schema.answers import (
    Amounts,
    DepartmentFields,
    DepartmentOut,
    ProjectCreate,
    ProjectFields,
    ProjectOut,
    QueueEntryOut,
    QuotaAmounts,
    RequestOut,
    UseOut,
)
from carrel_schema.history import Report
from carrel_schema.kinds import KINDS
from carrel_schema.objects import (
    Department,
    DepartmentSpec,
    Meta,
    Project,
    ProjectRules,
    ProjectSpec,
    QueueRules,
    Quota,
    Resources,
    Work,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from carrel_schema.wire import Volume, WorkloadCreate, WorkloadSpecOut

_ANSWERED: Final = tuple(
    name
    for name in WorkloadSpec.__struct_fields__
    if name in WorkloadSpecOut.__struct_fields__ and name not in ("files", "volumes")
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
    asked = {name: getattr(body, name) for name in Work.__struct_fields__} | {
        "command": body.command or builtin_programs.command_for(runs),
        "priority": usual if body.priority == "" else body.priority,
        "preemptible": preemptible,
        "backoff_limit": _or_usual(body, "backoff_limit", builtin_programs.BACKOFF_LIMIT.get(runs)),
        "retries": builtin_programs.retries(
            body.retries, body.backoff_limit if "backoff_limit" in body.given else 0
        ),
        "routes": body.routes or builtin_programs.routes_for(runs, body.tensorboard),
    }
    spec = WorkloadSpec(
        **asked,
        user=body.user or principal.name,
        files=body.files,
        volumes=[(volume.source, volume.destination) for volume in body.volumes],
        read_only=[volume.source for volume in body.volumes if volume.read_only],
        resources=Resources(
            gpu_milli=gpu_milli(body.gpus),
            cpu_milli=_or_usual(body, "cpu_millicores", builtin_programs.CPU_MILLI.get(runs)),
            cpu_limit_milli=body.cpu_limit_millicores or 0,
            memory_bytes=body.memory_bytes,
            mig_profile=body.mig_profile,
            gpu_memory_mib=-(-body.gpu_memory_bytes // MIB),
            gpu_devices=body.gpu_devices,
        ),
        hold_for_claim=bool(body.hold_for_claim),
        external=bool(body.external),
        server_name=body.server_name or "",
    )
    meta = Meta(
        name=name,
        project=body.project,
        uid=uid,
        created_at=now,
        created_by=principal.name,
        labels=body.labels,
    )
    return Workload(meta=meta, spec=spec, status=WorkloadStatus(queued_at=now))


def _or_usual(body: WorkloadCreate, field: str, usual: int | None) -> int:
    """The requested value, or the default of the kind."""
    asked: int = getattr(body, field)
    return asked if usual is None or field in body.given else usual


def workload_fields(workload: Workload, status: WorkloadStatus) -> dict[str, Any]:
    """The fields of ``WorkloadOut`` and its descendants."""
    meta = msgspec.structs.asdict(workload.meta)
    del meta["deleting"]
    return {**meta, "spec": spec_out(workload.spec), "status": status}


def spec_out(spec: WorkloadSpec) -> WorkloadSpecOut:
    """A specification in the form of answers."""
    resources = spec.resources
    found = {name: getattr(spec, name) for name in _ANSWERED} | {
        "files": {name: len(text.encode()) for name, text in spec.files.items()},
        "volumes": volumes(spec),
        "gpus": gpus(resources.gpu_milli),
        "gpu_memory_bytes": resources.gpu_memory_mib * MIB,
        "gpu_devices": resources.gpu_devices,
        "mig_profile": resources.mig_profile,
        "cpu_millicores": resources.cpu_milli,
        "cpu_limit_millicores": resources.cpu_limit_milli or None,
        "memory_bytes": resources.memory_bytes,
    }
    if spec.preemptible is None:
        found["preemptible"] = KINDS[spec.kind].preemptible
    return answers.said(**found)


def volumes(spec: WorkloadSpec) -> list[Volume]:
    """The folders that the tasks see."""
    return [
        Volume(source=source, destination=where, read_only=source in spec.read_only)
        for source, where in spec.volumes
    ]


def to_project(body: ProjectCreate, principal: Principal, *, color: int, now: float) -> Project:
    """A new project."""
    meta = Meta(name=body.name, created_at=now, created_by=principal.name)
    return Project(meta=meta, spec=to_project_spec(body, group_of(body.name), color))


def to_project_spec(body: ProjectFields, members_group: str, color: int) -> ProjectSpec:
    """A project's specification from all of its fields."""
    fields = _rules(body, ProjectRules) | {"department": body.department or ""}
    return ProjectSpec(**fields, color=color, members_group=members_group)


def to_department(body: DepartmentFields, principal: Principal, *, name: str) -> Department:
    """A department; the ledger sets its version and times."""
    spec = DepartmentSpec(**_rules(body, QueueRules))
    return Department(meta=Meta(name=name, created_by=principal.name), spec=spec)


def _rules(body: DepartmentFields | ProjectFields, kind: type[QueueRules]) -> dict[str, Any]:
    """The rules of a kind in a request, with amounts as they are stored."""
    fields = {name: getattr(body, name) for name in kind.__struct_fields__}
    return fields | {"quota": _quota(body.quota), "limit": _quota(body.limit)}


def department_out(department: Department) -> DepartmentOut:
    """A department in the form for its admins."""
    meta = department.meta
    return DepartmentOut(
        **_rules_out(department.spec),
        name=meta.name,
        resource_version=meta.resource_version,
        created_at=meta.created_at,
    )


def patched(spec: ProjectSpec, changes: Mapping[str, Any]) -> ProjectFields:
    """A project's complete fields after a merge patch; raises pydantic's ``ValidationError``."""
    old = msgspec.to_builtins(ProjectFields(**_project_fields(spec)))
    merged = _merged(old, changes)
    for field in ("node_group_limits", "node_group_quotas"):
        amounts = merged[field] or {}
        merged[field] = {group: gpus for group, gpus in amounts.items() if gpus is not None}
    return validators.read(ProjectFields, merged)


def _merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in changes.items():
        merged[key] = _merged(old[key], value) if isinstance(value, dict) else value
    return merged


def _rules_out(
    spec: DepartmentSpec | ProjectSpec, kind: type[QueueRules] = QueueRules
) -> dict[str, Any]:
    """The rules of a kind in a specification, with amounts as REST has them."""
    fields = {name: getattr(spec, name) for name in kind.__struct_fields__}
    quota, limit = QuotaAmounts(**_amounts(spec.quota)), Amounts(**_amounts(spec.limit))
    return fields | {"quota": quota, "limit": limit}


def _project_fields(spec: ProjectSpec) -> dict[str, Any]:
    return _rules_out(spec, ProjectRules) | {"department": spec.department or None}


def project_out(project: Project, use: ProjectUse | None) -> ProjectOut:
    """A project with its quota line; one that the scheduler does not know yet uses nothing."""
    spec, meta = project.spec, project.meta
    return ProjectOut(
        **_project_fields(spec),
        name=meta.name,
        color=spec.color,
        resource_version=meta.resource_version,
        created_at=meta.created_at,
        effective={} if use is None else use.rules,
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
    """A queue entry in the units of the API."""
    return QueueEntryOut(
        position=entry.position,
        uid=entry.uid,
        name=entry.name,
        project=entry.project,
        user=entry.user,
        kind=entry.kind,
        resources=RequestOut(
            gpus=gpus(counted_gpu_milli(entry.resources)),
            cpu_millicores=entry.resources.cpu_milli,
            memory_bytes=entry.resources.memory_bytes,
        ),
        tasks=entry.tasks,
        waits_since=entry.waits_since,
        reason=entry.reason,
        color=entry.color,
    )


def to_report(body: ReportIn, now: float) -> Report:
    """A job's report; without a time it gets the present one."""
    facts = msgspec.structs.asdict(body)
    return Report(**(facts | {"at": now if body.at is None else body.at}))


def gpus(milli: int) -> float:
    """Thousandths of a GPU as a number of GPUs."""
    return milli / MILLI


def gpu_milli(number: float) -> int:
    """A number of GPUs as thousandths."""
    return round(number * MILLI)


def _quota(asked: Amounts) -> Quota:
    milli = None if asked.gpus is None else gpu_milli(asked.gpus)
    return Quota(gpu_milli=milli, cpu_milli=asked.cpu_millicores, memory_bytes=asked.memory_bytes)


def _amounts(quota: Quota) -> dict[str, Any]:
    return {
        "gpus": None if quota.gpu_milli is None else gpus(quota.gpu_milli),
        "cpu_millicores": quota.cpu_milli,
        "memory_bytes": quota.memory_bytes,
    }
