"""Reports of the gateway about requests, and its questions about callers."""

from typing import Annotated

import msgspec

from carrel_scheduler.api.models.workloads import EpochSeconds
from carrel_schema.constraints import Constraint, ShortText

Count = Annotated[int, Constraint(ge=0, le=2**53)]
Seconds = Annotated[float, Constraint(ge=0, le=1e6)]
Uid = Annotated[ShortText, Constraint(min_length=1, max_length=64)]


class LoadIn(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one workload; see ``workloads.loads.LoadReport``."""

    uid: Uid
    in_flight: Count = 0
    rate: Annotated[float, Constraint(ge=0, le=1e12)] = 0.0
    requests: Count = 0
    errors: Count = 0
    latency: Annotated[list[tuple[Seconds, Count]], Constraint(max_length=200)] = []
    last_request_at: EpochSeconds | None = None
    targets: Annotated[dict[Uid, Count], Constraint(max_length=1000)] = {}


class LoadsIn(msgspec.Struct, frozen=True, kw_only=True):
    """The loads of some workloads, or with ``everything`` of all that the gateway serves."""

    gateway: Uid
    everything: bool = False
    items: Annotated[list[LoadIn], Constraint(max_length=10_000)] = []


class TaskIn(msgspec.Struct, frozen=True, kw_only=True):
    """The task token that a request to the gateway had."""

    token: Annotated[str, Constraint(min_length=1, max_length=512)]


class TaskOut(msgspec.Struct, frozen=True, kw_only=True):
    """The workload that a task token belongs to, and its user."""

    user: str
    project: str
    name: str
