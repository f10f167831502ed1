"""What is written about a pod's claims before it is bound: where its volumes are to be made.

Writing the same again changes nothing, so whoever was killed in between may do it once more. A
volume is given to a claim only as it was when that was decided.
"""

from typing import Any, Final

from carrel_scheduler.engines.kubernetes.pods.places import BindVolume, Decision
from carrel_scheduler.engines.kubernetes.pods.places.volumes import SELECTED_NODE
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"


async def prepare(client: KubeClient, decision: Decision) -> None:
    """Write one decision about a claim. Raises ``KubeError``."""
    if isinstance(decision, BindVolume):
        await client.patch(PERSISTENT_VOLUMES, decision.volume, _claimed(decision))
        return
    body = {"metadata": {"annotations": {SELECTED_NODE: decision.node}}}
    await client.patch(PERSISTENT_VOLUME_CLAIMS, decision.claim, body, decision.namespace)


def _claimed(decision: BindVolume) -> dict[str, Any]:
    return {
        "metadata": {
            "resourceVersion": decision.version,
            "annotations": {BY_CONTROLLER: "yes"},
        },
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": PERSISTENT_VOLUME_CLAIMS.kind,
                "namespace": decision.namespace,
                "name": decision.claim,
                "uid": decision.claim_uid,
            }
        },
    }
