"""Claims of pods for devices: what they wait for, where they can be served, and who gets which.

A claim serves one pod at a time. While the pod waits, its claims name the nodes that have what they
ask for; when it is placed, the devices are chosen (``decide``), written into the claims' status and
count as given away from then on. A claim that was left allocated to a pod that is not bound, as by
a scheduler that was killed, is released before the pod is placed anew.
"""

from dataclasses import dataclass, field
from itertools import islice, product

from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.kubernetes.pods.devices.allocation import (
    allocated_to,
    allocation_of,
    claim_name,
    is_made_for,
    key_of,
)
from carrel_scheduler.engines.kubernetes.pods.devices.extended import (
    ExtendedClaim,
    special_claim,
)
from carrel_scheduler.engines.kubernetes.pods.devices.known import KnownDevices
from carrel_scheduler.engines.kubernetes.pods.devices.matching import (
    MOST_CHOICES,
    MOST_DEVICES,
    Match,
    choices,
    match,
    taken_by,
)
from carrel_scheduler.engines.kubernetes.pods.devices.orders import (
    NO_CLAIMS,
    NOTHING,
    AllocateClaim,
    ClaimAccess,
    ReleaseClaim,
)
from carrel_scheduler.engines.kubernetes.pods.devices.serving import Asks, ServingNodes
from carrel_scheduler.engines.kubernetes.pods.devices.task_gpus import instance_selector
from carrel_scheduler.engines.kubernetes.pods.devices.types import ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import (
    GPU_RESOURCES,
)
from carrel_scheduler.engines.kubernetes.pods.types import Pod, PodResourceClaim
from carrel_schema.names import MIG_PREFIX, TASK


class _Waits(Exception):  # noqa: N818 - an outcome to handle
    """A claim cannot be served yet."""


@dataclass(slots=True)
class DeviceClaims(KnownDevices):
    """The device requests of pods with claims, and the nodes that can serve them."""

    _serving: ServingNodes = field(init=False)

    def __post_init__(self) -> None:
        self._serving = ServingNodes(self.inventory, self._uses, self.offered, self.free, self.left)

    def access(self, pod: Pod) -> ClaimAccess:
        """The present requirements of a pod's claims.

        Raises:
            PodRefused: they ask for what is not given out.
        """
        if pod.spec.node_name:
            return self._of_bound(pod)
        special = self._special_of(pod)
        if not pod.spec.resource_claims and special is None:
            return NO_CLAIMS
        instead = NOTHING if special is None else special.names
        try:
            options = self._options(pod)
        except _Waits as error:
            return ClaimAccess(nodes=NOTHING, waits=str(error), instead=instead)
        best = self._serving.of(options[0], self.version)
        for asks in options:
            found = self._serving.of(asks, self.version)
            if found.now:
                best = found
                break
            if not best.later:
                best = found
        return ClaimAccess(best.gpus, best.now | best.later, "", instead, best.parts_milli)

    def asks(self, pod: Pod) -> bool:
        """Whether a pod asks for devices, by claims or by extended resources."""
        if pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None:
            return True
        return self._special_of(pod) is not None

    def gpu_uuids(self, pod: str) -> frozenset[str]:
        """UUIDs of the GPUs in the claim that was made for a pod, by its uid.

        Empty where there is no such claim, or where the driver does not say one of them.
        """
        claim = self._claims.get(self._special.get(pod, ("", "")))
        given = () if claim is None else allocated_to(claim)
        found = {self.inventory.uuid_of(one.id) for one in given if self.inventory.is_gpu(one.id)}
        return frozenset() if "" in found else frozenset(found)

    def _special_of(self, pod: Pod) -> ExtendedClaim | None:
        """The claim for what a pod asks for by name; a task's GPUs are those of the task class."""
        if not (self.task_class or self.mig_class) or TASK not in pod.metadata.labels:
            return special_claim(pod, self.backed) if self.backed else None
        backed = dict.fromkeys(GPU_RESOURCES, self.task_class) if self.task_class else {}
        named = (name for one in pod.spec.containers for name in one.resources.requests)
        instances = (
            [name for name in named if name.startswith(MIG_PREFIX)] if self.mig_class else []
        )
        backed |= dict.fromkeys(instances, self.mig_class)
        selectors = {name: (instance_selector(name),) for name in instances}
        return special_claim(pod, backed, selectors) if backed else None

    def decide(
        self, pod: Pod, node: str, gpus: int, parts_milli: int = MILLI * MOST_DEVICES
    ) -> tuple[AllocateClaim, ...]:
        """The allocations to write before a pod is bound to a node; they count from now on."""
        found = self.fit(pod, node, gpus, parts_milli)
        if not found:
            return ()
        by_claim: dict[str, Match] = {}
        namespace = pod.metadata.namespace
        names = [claim_name(pod, use) for use in pod.spec.resource_claims]
        claims = {name: self._claims[namespace, name] for name in names if name}
        special = self._special_of(pod)
        if special is not None:
            names.append(special.claim.metadata.name)
            claims[special.claim.metadata.name] = special.claim
        for ask, device in found:
            by_claim.setdefault(names[ask.claim] or "", []).append((ask, device))
        given = {(namespace, name): taken_by(matched) for name, matched in by_claim.items()}
        self.note_decided(pod.metadata.uid, node, given)
        return tuple(
            AllocateClaim(
                namespace=namespace,
                claim=name,
                claim_uid=claims[name].metadata.uid,
                pod=pod.metadata.name,
                pod_uid=pod.metadata.uid,
                allocation=allocation_of(
                    claims[name], matched, node, self.classes, pod.metadata.uid
                ),
                special=special if special is not None and claims[name] is special.claim else None,
            )
            for name, matched in by_claim.items()
        )

    def fit(
        self,
        pod: Pod,
        node: str,
        gpus: int | None = None,
        parts_milli: int = MILLI * MOST_DEVICES,
    ) -> Match | None:
        """The devices that a node has free for all claims of a pod; ``None`` if too few.

        Args:
            pod: that is not bound.
            node: its name.
            gpus: so many of them are whole GPUs; ``None``: any number.
            parts_milli: the others are at most so much of GPUs.
        """
        try:
            options = self._options(pod)
        except (_Waits, PodRefused):
            return None
        for asks in options:
            found = match(asks, self.free(node), self.left(node), self.offered(node))
            if found is None or self._serving.parts(found) > parts_milli:
                continue
            if gpus in (None, self._serving.count(found)):
                return found
        return None

    def _options(self, pod: Pod) -> list[Asks]:
        """The requests of a pod's claims: each combination of alternatives, the best first."""
        uses = pod.spec.resource_claims
        names = [name for use in uses if (name := claim_name(pod, use))]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise PodRefused("claim", "spec.resourceClaims", twice, "each claim once")
        each = [self._choices(pod, use, number) for number, use in enumerate(uses)]
        if (special := self._special_of(pod)) is not None:
            if left := self.left_over(pod.metadata.uid):
                raise _Waits(f"the devices of its resource claim `{left}` are being released")
            each.append(choices(special.claim, len(uses), self.classes))
        found = [
            tuple(ask for asks in combined for ask in asks)
            for combined in islice(product(*each), MOST_CHOICES)
        ]
        for asks in found:
            wanted = sum(ask.count for ask in asks)
            if wanted > MOST_DEVICES:
                expected = f"of {MOST_DEVICES} devices together, or fewer"
                raise PodRefused("claim", "spec.resourceClaims", wanted, expected)
        return found

    def _choices(self, pod: Pod, use: PodResourceClaim, number: int) -> list[Asks]:
        claim = self._free_claim(pod, use)
        if claim is None:
            return [()]
        try:
            return choices(claim, number, self.classes)
        except KeyError as error:
            name, of = error.args[0], claim.metadata.name
            raise _Waits(
                f"the device class `{name}` of its resource claim `{of}` does not exist"
            ) from None

    def _free_claim(self, pod: Pod, use: PodResourceClaim) -> ResourceClaim | None:
        """The claim, if it can be given devices for the pod; ``None`` if none is needed."""
        name = claim_name(pod, use)
        if name is None:
            template = use.resource_claim_template_name
            raise _Waits(
                f"its resource claim `{use.name}` is not made from the template `{template}` yet"
            )
        if not name:
            return None
        key = (pod.metadata.namespace, name)
        claim = self._claims.get(key)
        if claim is None:
            raise _Waits(f"its resource claim `{name}` does not exist")
        if not use.resource_claim_name and not is_made_for(claim, pod):
            raise _Waits(f"its resource claim `{name}` was made for somebody else")
        if claim.metadata.deletion_timestamp is not None:
            raise _Waits(f"its resource claim `{name}` is being deleted")
        self._check_unused(claim, pod)
        return claim

    def _check_unused(self, claim: ResourceClaim, pod: Pod) -> None:
        key, uid = key_of(claim), pod.metadata.uid
        others = [one.name for one in claim.status.reserved_for if one.uid != uid]
        if others or any(key in keys for one, keys in self._decided.items() if one != uid):
            by = f"the pod `{others[0]}`" if others else "another pod"
            raise _Waits(
                f"its resource claim `{claim.metadata.name}` is in use by {by}; "
                "a claim serves one pod at a time"
            )
        if claim.status.allocation is not None and key not in self._decided.get(uid, {}):
            meta = claim.metadata
            self.releases[key] = ReleaseClaim(meta.namespace, meta.name, meta.resource_version)
            raise _Waits(f"the devices of its resource claim `{meta.name}` are being released")

    def _of_bound(self, pod: Pod) -> ClaimAccess:
        """The GPUs allocated to the claims of a bound pod."""
        special = pod.status.extended_resource_claim_status
        if not pod.spec.resource_claims and special is None:
            return NO_CLAIMS
        names = [claim_name(pod, use) for use in pod.spec.resource_claims]
        instead = NOTHING
        if special is not None:
            names.append(special.resource_claim_name)
            instead = frozenset(one.resource_name for one in special.request_mappings)
        found = [
            given
            for name in dict.fromkeys(names)
            if name and (claim := self._claims.get((pod.metadata.namespace, name))) is not None
            for given in allocated_to(claim)
        ]
        gpus, parts = self._serving.gpus(found), self._serving.parts_of(found)
        return ClaimAccess(gpus=gpus, instead=instead, parts_milli=parts)
