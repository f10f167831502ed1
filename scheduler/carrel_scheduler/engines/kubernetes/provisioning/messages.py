"""Events about requests for nodes, and orders to make and withdraw them."""

from dataclasses import dataclass

from carrel_scheduler.engines.kubernetes.provisioning.types import PodSet, ProvisioningRequest


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """A request of ours was made or changed."""

    request: ProvisioningRequest


@dataclass(frozen=True, slots=True)
class RequestGone:
    """A request of ours was deleted."""

    request: ProvisioningRequest


@dataclass(frozen=True, slots=True)
class RequestsKnown:
    """The requests that existed at the start have been delivered."""


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A request was not made.

    Attributes:
        uid: of the workload.
        name: of the request.
        text: the API server's message.
    """

    uid: str
    name: str
    text: str


RequestEvent = RequestSeen | RequestGone | RequestsKnown | RequestRefused


@dataclass(frozen=True, slots=True)
class RequestNodes:
    """Order: create a request with its templates; existing ones stay as they are.

    Attributes:
        namespace, name: of the request.
        uid, workload: of the work that waits for the nodes.
    """

    namespace: str
    name: str
    uid: str
    workload: str
    sets: tuple[PodSet, ...]


@dataclass(frozen=True, slots=True)
class EndRequest:
    """Order: delete the request of this uid; its templates are deleted with it."""

    namespace: str
    name: str
    request_uid: str


RequestOrder = RequestNodes | EndRequest
