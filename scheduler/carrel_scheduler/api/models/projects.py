"""Requests about projects: create, and change by merge patch.

In a patch a field that is left out stays, objects are merged, and ``null`` means "no bound" where a
bound may be missing.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from carrel_scheduler.api.models import fields
from carrel_scheduler.api.models.fields import Request, refuse
from carrel_scheduler.api.problems import Code
from carrel_schema import names

Weight = Annotated[int, Field(ge=0, le=1_000_000)]
Rank = Annotated[int, Field(ge=-1000, le=1000)]
Extensions = Annotated[int, Field(ge=0, le=1000)]


class Amounts(Request):
    """An amount of each resource; ``null`` means no bound."""

    gpus: fields.Gpus | None = None
    cpu_millicores: fields.CpuMillicores | None = None
    memory_bytes: fields.MemoryBytes | None = None


class LimitIn(Amounts):
    """Amounts that use never exceeds; ``null`` means no bound."""


class QuotaIn(Amounts):
    """Guaranteed amounts; ``null`` means no bound."""

    gpus: fields.Gpus | None = 0.0


class InteractiveIn(Request):
    """Rules for workspaces; ``null`` means no such limit."""

    time_limit_seconds: fields.PositiveSeconds | None = None
    idle_timeout_seconds: fields.PositiveSeconds | None = None
    busy_cap_seconds: fields.PositiveSeconds | None = 86_400.0
    warn_before_seconds: fields.Seconds = 600.0
    extend_seconds: fields.PositiveSeconds = 3600.0
    max_extensions: Extensions = 0
    apply_to_running: bool = False


class TrainingIn(Request):
    """Rules for trainings, or changes of them; ``null`` means no such limit."""

    idle_gpu_seconds: fields.PositiveSeconds | None = None
    time_limit_seconds: fields.PositiveSeconds | None = None
    apply_to_running: bool = False


class Rules(Request):
    """What an admin sets for a project as for a department, complete."""

    description: fields.Text = ""
    quota: QuotaIn = QuotaIn()
    limit: LimitIn = LimitIn()
    over_quota: bool = True
    weight: Weight | None = None
    rank: Rank = 0

    @model_validator(mode="after")
    def _limit_holds_quota(self) -> Self:
        for amount in ("gpus", "cpu_millicores", "memory_bytes"):
            quota, limit = getattr(self.quota, amount), getattr(self.limit, amount)
            if quota is not None and limit is not None and limit < quota:
                refuse(
                    Code.LIMIT_BELOW_QUOTA,
                    f"`limit.{amount}` of at least `quota.{amount}`, which is {quota:g}",
                )
        return self


class DepartmentFields(Rules):
    """A department; what is left out is as by default."""


class ProjectFields(Rules):
    """What an admin sets for a project, complete; ``department`` may be null for none."""

    interactive: InteractiveIn = InteractiveIn()
    training: TrainingIn = TrainingIn()
    department: fields.Name | None = None


class ProjectCreate(ProjectFields):
    """A project to create."""

    name: Annotated[fields.ProjectName, Field(description=names.PROJECT_WORDS)]


class QuotaPatch(Amounts):
    """Changes of a quota or limit."""


class InteractivePatch(InteractiveIn):
    """Changes of the rules for workspaces."""

    busy_cap_seconds: fields.PositiveSeconds | None = None


class ProjectPatch(Request):
    """Changes of a project. ``resource_version`` refuses them if it is no longer the stored one."""

    resource_version: Annotated[int, Field(ge=0, le=2**53)] | None = None
    description: fields.Text = ""
    quota: QuotaPatch = QuotaPatch()
    limit: QuotaPatch = QuotaPatch()
    over_quota: bool = True
    weight: Weight | None = None
    rank: Rank = 0
    interactive: InteractivePatch = InteractivePatch()
    training: TrainingIn = TrainingIn()
    department: fields.Name | None = None
