"""What a gateway tells of the requests that it passes on, and asks about who comes."""

from typing import Annotated

import msgspec

from carrel_scheduler.api.models.workloads import EpochSeconds
from carrel_schema.constraints import Constraint, ShortText

Count = Annotated[int, Constraint(ge=0, le=2**53)]
Seconds = Annotated[float, Constraint(ge=0, le=1e6)]
Uid = Annotated[ShortText, Constraint(min_length=1, max_length=64)]


class LoadIn(msgspec.Struct, frozen=True, kw_only=True):
    """One workload's requests; see ``workloads.loads.LoadReport``."""

    uid: Uid
    in_flight: Count = 0
    rate: Annotated[float, Constraint(ge=0, le=1e12)] = 0.0
    requests: Count = 0
    errors: Count = 0
    latency: Annotated[list[tuple[Seconds, Count]], Constraint(max_length=200)] = []
    last_request_at: EpochSeconds | None = None
    targets: Annotated[dict[Uid, Count], Constraint(max_length=1000)] = {}


class LoadsIn(msgspec.Struct, frozen=True, kw_only=True):
    """Of some workloads, or with ``everything`` of all that it has addresses for."""

    gateway: Uid
    everything: bool = False
    items: Annotated[list[LoadIn], Constraint(max_length=10_000)] = []


class TaskIn(msgspec.Struct, frozen=True, kw_only=True):
    """The token that a task of some workload came with."""

    token: Annotated[str, Constraint(min_length=1, max_length=512)]


class TaskOut(msgspec.Struct, frozen=True, kw_only=True):
    """Whose work it is that came with a task token."""

    user: str
    project: str
    name: str
