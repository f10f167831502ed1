"""``ProvisioningRequest`` of ``autoscaling.x-k8s.io/v1``, as written and decoded.

A request names a class, which says what the autoscaler does about it, and sets of pods: a
PodTemplate and how many pods of it.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.pods.types import Kube, ObjectMeta
from carrel_scheduler.kube.resources import Resource
from carrel_schema import names

PROVISIONING_REQUESTS: Final = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest"
)
POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate")
OURS: Final = f"{names.MADE_BY}={names.MADE_BY_US},{names.WORKLOAD_UID}"
"""Selects what this scheduler made."""
MOST_SETS: Final = 32
"""The most sets of pods in a request."""
_NAME: Final = re.compile(r"carrel-[0-9a-f]{24}-([1-9][0-9]{0,8})")


class RequestCondition(Kube, frozen=True):
    """A condition of a request, with the time of its last change."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None

    @property
    def holds(self) -> bool:
        """Whether the condition is true."""
        return self.status == "True"


class RequestStatus(Kube, frozen=True):
    """The status that the autoscaler writes."""

    conditions: tuple[RequestCondition, ...] = ()


class ProvisioningRequest(Kube, frozen=True):
    """A request for nodes."""

    metadata: ObjectMeta = ObjectMeta()
    status: RequestStatus = RequestStatus()

    def condition(self, kind: str) -> RequestCondition | None:
        """The condition of a type; ``None`` if it is missing."""
        return next((one for one in self.status.conditions if one.type == kind), None)

    def holds(self, kind: str) -> RequestCondition | None:
        """The condition of a type, if it is true."""
        found = self.condition(kind)
        return found if found is not None and found.holds else None


@dataclass(frozen=True, slots=True)
class ProvisioningSettings:
    """Settings of requests for nodes.

    Attributes:
        class_name: class of the requests; empty: none are made.
        parameters: of the class.
        most: so many requests are open at a time.
        delay_s: so long work waits for room on the nodes there are before more are asked for.
    """

    class_name: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    most: int = 20
    delay_s: float = 60.0


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods that are alike: the specification of one, how many there are, and their labels."""

    spec: Mapping[str, Any]
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)


def request_name(uid: str, attempt: int) -> str:
    """The name of the request for a workload; each attempt has a request of its own."""
    return f"carrel-{hashlib.sha256(uid.encode()).hexdigest()[:24]}-{attempt}"


def attempt_of(name: str) -> int:
    """The attempt of a request, from its name; 0 for a name of another origin."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else 0


def template_name(request: str, number: int) -> str:
    """The name of the template of a set of pods."""
    return f"{request}-{number}"
