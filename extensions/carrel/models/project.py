"""Projects: guarantees, limits, rules for workspaces, and use."""

from collections.abc import Iterable

import msgspec


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts per resource; ``None`` means no bound."""

    gpus: float | None = None
    cpu_millicores: int | None = None
    memory_bytes: int | None = None


class InteractiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for workspaces; ``None`` means no such limit. ``max_extensions`` 0: no extension.

    ``apply_to_running``: changes also hold for what runs already.
    """

    time_limit_seconds: float | None = None
    idle_timeout_seconds: float | None = None
    busy_cap_seconds: float | None = None
    warn_before_seconds: float = 600.0
    extend_seconds: float = 3600.0
    max_extensions: int = 0
    apply_to_running: bool = False


class TrainingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for trainings; ``None`` means no such limit. Idle: none of its GPUs does anything."""

    idle_gpu_seconds: float | None = None
    time_limit_seconds: float | None = None
    apply_to_running: bool = False


class ProjectUse(msgspec.Struct, frozen=True, kw_only=True):
    """The project's quota line now."""

    gpus_allocated: float = 0.0
    gpus_borrowed: float = 0.0
    gpus_waiting: float = 0.0
    fair_share_gpus: float = 0.0
    cpu_allocated_millicores: int = 0
    memory_allocated_bytes: int = 0
    running: int = 0
    waiting: int = 0


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project. ``quota`` is guaranteed, ``limit`` caps all use, ``weight`` ``None``: by quota."""

    name: str
    description: str = ""
    quota: Amounts = Amounts()
    limit: Amounts = Amounts()
    over_quota: bool = True
    weight: int | None = None
    rank: int = 0
    interactive: InteractiveLimits = InteractiveLimits()
    training: TrainingLimits = TrainingLimits()
    color: int = 0
    department: str | None = None
    resource_version: int = 0
    created_at: float = 0.0
    use: ProjectUse = ProjectUse()


class Department(msgspec.Struct, frozen=True, kw_only=True):
    """Projects whose guarantees and limits are shared; each rule is as a project's, for all."""

    name: str
    description: str = ""
    quota: Amounts = Amounts()
    limit: Amounts = Amounts()
    over_quota: bool = True
    weight: int | None = None
    rank: int = 0
    resource_version: int = 0
    created_at: float = 0.0


def by_department(projects: Iterable[Project]) -> list[tuple[str, list[Project]]]:
    """Projects under their departments, both by name; those of none come last, under ``""``."""
    found: dict[str, list[Project]] = {}
    for project in sorted(projects, key=lambda project: project.name):
        found.setdefault(project.department or "", []).append(project)
    return sorted(found.items(), key=lambda group: (not group[0], group[0]))


class ProjectImpact(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of a project's rules would do at once, as ``project/name`` of workloads."""

    would_start: list[str] = []
    would_give_way: list[str] = []
