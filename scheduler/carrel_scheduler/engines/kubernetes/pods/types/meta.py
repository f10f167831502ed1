"""What every object of Kubernetes carries."""

from datetime import datetime

import msgspec

Quantities = dict[str, str]
"""Resource name -> quantity as Kubernetes writes it (``500m``, ``2Gi``)."""


class Kube(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an object; keys are written in camel case, fields without a say left out."""


class Owner(Kube, frozen=True):
    """A reference to the object that made this one."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class Meta(Kube, frozen=True):
    """The metadata of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> Owner | None:
        """The one owner that looks after this object."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Condition(Kube, frozen=True):
    """One condition of an object's status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0
