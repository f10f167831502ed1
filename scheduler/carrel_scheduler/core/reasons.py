"""Reasons why a workload waits, starts or was evicted; ``core.messages`` words them.

A reason has a class (*never*, *not now*, *held back*, *starting*), a stable token that machines
match on, and the facts. Sentences are made from it at the edge, the same for every surface.
"""

from dataclasses import dataclass
from enum import StrEnum


class ReasonClass(StrEnum):
    """The kind of a reason."""

    NEVER = "never"
    NOT_NOW = "not-now"
    HELD_BACK = "held-back"
    STARTING = "starting"
    EVICTED = "evicted"


class Token(StrEnum):
    """Stable tokens; part of the API."""

    NEVER_FITS = "NeverFits"
    NO_ELIGIBLE_NODE = "NoEligibleNode"
    """No node satisfies the conditions: ``detail`` says which one leaves none."""
    NODES_CLOSED = "NodesClosed"
    """Nodes that satisfy them take no new work: drained or switched off."""
    NO_NODE_FITS = "NoNodeFits"
    NO_MIG_INSTANCE = "NoMigInstance"
    """``detail`` is the profile; amounts count instances."""
    TOPOLOGY_TOO_SMALL = "TopologyTooSmall"
    """No domain of the level ``detail`` holds the tasks together; amounts count tasks."""
    WAITS_FOR_ROOM = "WaitsForRoom"
    QUOTA_USED = "QuotaUsed"
    """``detail`` is the group of nodes where it is the quota there."""
    OVER_LIMIT = "OverLimit"
    OVER_GROUP_LIMIT = "OverNodeGroupLimit"
    """``detail`` is the group of nodes."""
    NON_PREEMPTIBLE_BEYOND_QUOTA = "NonPreemptibleBeyondQuota"
    """``detail`` is the group of nodes where the rest is guaranteed to others."""
    OVER_QUOTA_OFF = "OverQuotaOff"
    HELD_FOR = "HeldFor"
    RESERVED = "Reserved"
    """Capacity is reserved for it after a long wait; other work still runs there."""
    NO_VICTIMS_FOUND = "NoVictimsFound"
    """Victims are allowed, but no set of them that is enough was found within the limits."""
    QUEUED_BEHIND = "QueuedBehind"
    PREEMPTION_DELAYED = "PreemptionDelayed"
    """Victims are allowed, but not before ``until``."""
    WAITS_FOR_GANG = "WaitsForGang"
    """Too few of its tasks may start for its minimum: ``there`` of ``tasks``."""
    GATED = "Gated"
    """Its submitter keeps its tasks from starting."""
    GROWING = "Growing"
    """The workload runs with ``there`` of ``tasks`` tasks; amounts say what the next ones lack."""
    STARTING = "Starting"
    RECLAIMED = "Reclaimed"
    """``detail`` is the group of nodes where the quota there was claimed."""
    PREEMPTED = "Preempted"
    CONSOLIDATED = "Consolidated"
    GANG_INCOMPLETE = "GangIncomplete"
    NODE_DRAINED = "NodeDrained"
    IMPROVED = "MovedToPreferred"
    """It moves to nodes that it prefers, where there is capacity now."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of a scarce resource: ``amount`` of it, since ``since`` (epoch seconds)."""

    project: str
    uid: str
    name: str
    user: str
    amount: int
    borrowed: bool
    since: float


@dataclass(frozen=True, slots=True)
class Reason:
    """The one reason of a workload in one cycle.

    Attributes:
        resource: what is short: ``gpu`` (thousandths), ``cpu`` (millicores), ``memory`` (MiB),
            ``gpu_memory`` (MiB of one GPU), ``tasks``, ``mig`` (instances), or the name of an
            extended resource; empty when it is not about an amount.
        requested, short, bound: amounts in the unit of ``resource``: asked for in all, missing, and
            the quota, limit or node size that binds.
        project: whose quota or limit binds (a project, or a queue above it), or, for an eviction,
            which project needed the capacity.
        workload, workload_uid: for an eviction or a held place, the workload it is for.
        holders: who holds the resource, largest first, at most five.
        nodes: the nodes it is about.
        ahead: how many workloads of the same project are served before it.
        kept: other things it lacks could be taken back, but too little of this resource.
        detail: what it is about beside amounts, see the token.
        tasks, there: of a gang: how many tasks, and how many of them run or may start.
        passed_by: how many of ``ahead`` came later, and go first because their users hold less.
        user_gpus: what its user holds in the project then, in thousandths.
        until: epoch seconds until which it stands, 0 when that is open.
        divided: nodes that it may use, and whose GPUs are MIG instances in place of what it asks
            for.
        instead: the profile of the instance that would serve it there, or the largest one; empty
            where one instance is no use.
    """

    cls: ReasonClass
    token: Token
    resource: str = ""
    requested: int = 0
    short: int = 0
    bound: int = 0
    project: str = ""
    workload: str = ""
    workload_uid: str = ""
    holders: tuple[Holder, ...] = ()
    nodes: tuple[str, ...] = ()
    ahead: int = 0
    kept: bool = False
    detail: str = ""
    tasks: int = 0
    there: int = 0
    until: float = 0.0
    passed_by: int = 0
    user_gpus: int = 0
    divided: tuple[str, ...] = ()
    instead: str = ""
