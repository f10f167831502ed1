"""Claims as the scheduler has them written, and what they mean for where a pod may run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.pods.devices.extended import ExtendedClaim

Key = tuple[str, str]
"""Namespace and name of a claim."""
NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class AllocateClaim:
    """A claim is given devices, and reserved for a pod, before the pod is bound.

    Attributes:
        claim_uid: it is that very claim; empty for a special one, which is made now.
        allocation: what its status says from then on.
        special: it is for the pod's extended resources.
    """

    namespace: str
    claim: str
    claim_uid: str
    pod: str
    pod_uid: str
    allocation: Mapping[str, Any]
    special: ExtendedClaim | None = None

    @property
    def prepared_before(self) -> bool:
        """Whether drivers prepare some of its devices before the pod is bound."""
        return any(one.get("bindingConditions") for one in self.allocation["devices"]["results"])


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """A claim is taken back from a pod that was not bound; in this version only.

    ``special`` is the uid of one that was made for its extended resources: it is deleted.
    """

    namespace: str
    claim: str
    version: str
    special: str = ""


@dataclass(frozen=True, slots=True)
class ClaimAccess:
    """The requirements that a pod's claims add up to.

    Attributes:
        gpus: so many of the devices are whole GPUs.
        parts_milli: so much of GPUs the parts of such are, in thousandths.
        nodes: where they can be served; ``None`` without claims.
        waits: what has to happen before, in words; empty when nothing.
        instead: the extended resources that devices serve in place of a device plugin.
    """

    gpus: int = 0
    nodes: frozenset[str] | None = None
    waits: str = ""
    instead: frozenset[str] = NOTHING
    parts_milli: int = 0


NO_CLAIMS: Final = ClaimAccess()
