"""Replicas as workloads: the workload of a new one, the state of an existing one."""

from collections.abc import Sequence
from typing import Final

from carrel_scheduler.workloads.controllers.contract import NewPart, at_rest, suspended
from carrel_scheduler.workloads.controllers.inference.plan import State
from carrel_schema.objects import TaskInfo, Workload, WorkloadSpec
from carrel_schema.sections import InferenceSpec

REVISION_LABEL: Final = "carrel.dev/revision"
LONGEST_NAME: Final = 63


def new(owner: Workload, parts: Sequence[Workload], made: int, count: int) -> list[NewPart]:
    """New replicas of the present revision; ``made`` is the number of the last of them."""
    revision_now = (owner.spec.inference or InferenceSpec()).revision
    taken = {part.spec.part for part in parts}
    return [
        NewPart(
            number=number,
            name=_name(owner.meta.name, number),
            spec=spec(owner.spec),
            labels={**owner.meta.labels, REVISION_LABEL: str(revision_now)},
        )
        for number in range(made - count + 1, made + 1)
        if number not in taken
    ]


def _name(owner: str, number: int) -> str:
    suffix = f"-r{number}"
    return owner[: LONGEST_NAME - len(suffix)].rstrip("-") + suffix


def spec(owner: WorkloadSpec) -> WorkloadSpec:
    """The specification of each replica; an ended replica is replaced, not restarted."""
    return WorkloadSpec(
        kind="replica",
        command=owner.command,
        environment=owner.environment,
        files=owner.files,
        working_dir=owner.working_dir,
        volumes=owner.volumes,
        read_only=owner.read_only,
        image=owner.image,
        resources=owner.resources,
        priority=owner.priority,
        preemptible=False,
        restart_policy="never",
        backoff_limit=0,
        grace_seconds=owner.grace_seconds,
        continue_from=owner.continue_from,
        continues=owner.continues,
        model=owner.model,
        model_uid=owner.model_uid,
        large_shm=owner.large_shm,
        node_group=owner.node_group,
        gpu_types=owner.gpu_types,
        routes=owner.routes,
    )


def revision(part: Workload) -> int:
    """The revision of the endpoint that a replica runs."""
    text = part.meta.labels.get(REVISION_LABEL, "")
    return int(text) if text.isdecimal() else 0


def task(part: Workload) -> TaskInfo | None:
    """The task of the replica's present attempt."""
    return next((one for one in part.status.tasks if one.ended_at is None), None)


def serves(part: Workload) -> bool:
    """Whether the replica's process runs and is not terminating."""
    asked_to_end = part.spec.delete or part.spec.suspend
    return part.status.phase == "running" and not asked_to_end


def state(part: Workload, now: float) -> tuple[State, float]:
    """The state of a replica by its status, and since when."""
    status = part.status
    if at_rest(part):
        return ("leaving" if part.spec.delete else "ended"), status.ended_at or now
    if part.spec.delete or part.spec.suspend:
        return "leaving", now
    if status.phase == "pending":
        return "waiting", status.queued_at
    if status.phase in ("starting", "running"):
        return "starting", status.started_at or now
    return "leaving", now


def stopped(part: Workload) -> Workload:
    """The replica with a specification that stops it; its record and its log stay."""
    return suspended(part)
