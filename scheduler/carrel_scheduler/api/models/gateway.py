"""What a gateway tells of the requests that it passes on, and asks about who comes."""

from typing import Annotated

import msgspec
from pydantic import Field

from carrel_scheduler.api.models import fields
from carrel_scheduler.api.models.fields import Request

Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]
Uid = Annotated[fields.ShortText, Field(min_length=1, max_length=64)]


class LoadIn(Request):
    """One workload's requests; see ``workloads.loads.LoadReport``."""

    uid: Uid
    in_flight: Count = 0
    rate: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    requests: Count = 0
    errors: Count = 0
    latency: Annotated[list[tuple[Seconds, Count]], Field(max_length=200)] = Field(
        default_factory=list
    )
    last_request_at: fields.EpochSeconds | None = None
    targets: Annotated[dict[Uid, Count], Field(max_length=1000)] = Field(default_factory=dict)


class LoadsIn(Request):
    """Of some workloads, or with ``everything`` of all that it has addresses for."""

    gateway: Uid
    everything: bool = False
    items: Annotated[list[LoadIn], Field(max_length=10_000)] = Field(default_factory=list)


class TaskIn(Request):
    """The token that a task of some workload came with."""

    token: Annotated[str, Field(min_length=1, max_length=512)]


class TaskOut(msgspec.Struct, frozen=True, kw_only=True):
    """Whose work it is that came with a task token."""

    user: str
    project: str
    name: str
