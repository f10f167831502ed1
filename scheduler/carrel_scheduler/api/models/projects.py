"""Changes of projects by merge patch.

A field that is left out stays, objects are merged, and ``null`` means "no bound" where a bound may
be missing.
"""

from typing import Annotated

from carrel_schema.answers import ProjectFields
from carrel_schema.constraints import Constraint


class ProjectChanges(ProjectFields, frozen=True, kw_only=True):
    """``resource_version`` refuses them if it is no longer the stored one."""

    resource_version: Annotated[int, Constraint(ge=0, le=2**53)] | None = None
