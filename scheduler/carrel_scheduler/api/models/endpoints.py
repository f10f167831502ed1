"""Requests about endpoints and routes: what may change while they are in use."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from carrel_scheduler.api.models import fields
from carrel_scheduler.api.models.fields import Request, refuse
from carrel_scheduler.api.problems import Code
from carrel_schema.sections import Access


class InferencePatch(Request):
    """How it is served; what is left out stays."""

    min_replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    max_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    in_flight_per_replica: Annotated[int, Field(ge=1, le=100_000)] | None = None
    readiness_path: fields.ShortText | None = None
    startup_seconds: fields.PositiveSeconds | None = None
    idle_seconds: fields.PositiveSeconds | None = None
    drain_seconds: fields.Seconds | None = None


class EndpointPatch(Request):
    """What is to change; whatever replicas run makes a new revision."""

    command: Annotated[list[fields.Text], Field(min_length=1, max_length=1024)] | None = None
    environment: fields.Environment | None = None
    files: Annotated[dict[fields.RelativePath, fields.FileText], Field(max_length=1000)] | None = (
        None
    )
    working_dir: fields.WorkingDir | None = None
    gpus: fields.Gpus | None = None
    cpu_millicores: Annotated[int, Field(ge=1, le=fields.MOST_CPU_MILLICORES)] | None = None
    memory_bytes: (
        Annotated[int, Field(ge=fields.LEAST_MEMORY_BYTES, le=fields.MOST_MEMORY_BYTES)] | None
    ) = None
    inference: InferencePatch | None = None

    @model_validator(mode="after")
    def _small_enough(self) -> Self:
        if sum(len(text.encode()) for text in (self.files or {}).values()) > (
            fields.MOST_FILES_BYTES
        ):
            refuse(
                Code.FILES_TOO_LARGE, "`files` of at most 1 MiB in all; put larger ones on a volume"
            )
        return self


class Sharing(Request):
    """Who may come in by a route from now on; ``route`` is its name, empty for the first."""

    access: Access
    route: fields.ShortText = ""
