"""What a gateway tells of the requests that it passes on."""

from typing import Annotated

from pydantic import Field

from carrel_scheduler.api.models import fields
from carrel_scheduler.api.models.fields import Request

Count = Annotated[int, Field(ge=0, le=2**53)]
Uid = Annotated[fields.ShortText, Field(min_length=1, max_length=64)]


class LoadIn(Request):
    """One workload's requests; see ``workloads.loads.LoadReport``."""

    uid: Uid
    in_flight: Count = 0
    rate: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    requests: Count = 0
    errors: Count = 0
    last_request_at: fields.EpochSeconds | None = None
    targets: Annotated[dict[Uid, Count], Field(max_length=1000)] = Field(default_factory=dict)


class LoadsIn(Request):
    """Of some workloads, or with ``everything`` of all that it has addresses for."""

    gateway: Uid
    everything: bool = False
    items: Annotated[list[LoadIn], Field(max_length=10_000)] = Field(default_factory=list)
