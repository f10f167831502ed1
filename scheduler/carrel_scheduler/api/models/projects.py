"""Changes of projects by merge patch.

A field that is left out stays, objects are merged, and ``null`` means "no bound" where a bound may
be missing.
"""

from typing import Annotated, Any

import msgspec

from carrel_schema.answers import ProjectFields
from carrel_schema.constraints import Constraint, ProjectName, QuotaGpus
from carrel_schema.objects import GroupName

GroupAmountChanges = Annotated[dict[GroupName, QuotaGpus | None], Constraint(max_length=64)] | None


class ProjectChanges(ProjectFields, frozen=True, kw_only=True):
    """Changes of a project.

    Attributes:
        resource_version: the changes are refused if this is no longer the stored version.
        node_group_limits: limits to set; null removes the limit of a group, or all limits.
        node_group_quotas: quotas to set, likewise.
    """

    resource_version: Annotated[int, Constraint(ge=0, le=2**53)] | None = None
    node_group_limits: GroupAmountChanges = None  # type: ignore[assignment]
    node_group_quotas: GroupAmountChanges = None  # type: ignore[assignment]


class ProjectsChange(msgspec.Struct, frozen=True, kw_only=True):
    """A merge patch for several projects.

    Attributes:
        projects: their names, each once.
        changes: the changes of each project; fields left out stay.
    """

    projects: Annotated[list[ProjectName], Constraint(min_length=1, max_length=200)]
    changes: dict[str, Any]
