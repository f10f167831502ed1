"""What the loop hears of pods and nodes that are not its own."""

from dataclasses import dataclass

from carrel_scheduler.engines.kubernetes.external_pods.members import Member, PodRef
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup, Pod


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A pod that we are to place appeared or changed."""

    member: Member


@dataclass(frozen=True, slots=True)
class StrangerSeen:
    """A pod that others place appeared or changed."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class OwnSeen:
    """A pod of a task of ours appeared or changed: others may want to be near to it, or far."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod is no more, or uses nothing any more."""

    uid: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node appeared or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """A node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group of nodes appeared or changed."""

    group: NodeGroup


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """A group of nodes was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything that was there at the start has been told, and own work has its places."""


@dataclass(frozen=True, slots=True)
class BindingFailed:
    """A pod was not bound.

    Attributes:
        text: what the API server said.
        final: asking again would be answered alike.
    """

    pod: PodRef
    text: str
    final: bool


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A pod did not give way for long: a disruption budget protects it, as ``text`` says."""

    pod: PodRef
    text: str


GuestNews = (
    MemberSeen
    | StrangerSeen
    | OwnSeen
    | PodGone
    | NodeSeen
    | NodeLeft
    | GroupSeen
    | GroupLeft
    | Ready
    | BindingFailed
    | EvictionRefused
)
