"""Definitions of groups of nodes that REST writes, as custom resources of a real API server."""

import pytest

from carrel_scheduler.engines.kubernetes.node_group_store import ResourceNodeGroups
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.groups import NodeGroupSpec
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import MARKS, Kubectl, client, kubectl, ours

__all__ = ["client", "kubectl", "ours"]

pytestmark = MARKS
NAME = "rest-a100"


async def test_a_definition_is_made_changed_and_removed(
    ours: ControlPlane, client: KubeClient, kubectl: Kubectl
) -> None:
    assert ours is not None
    groups = ResourceNodeGroups(client)
    first = NodeGroupSpec(match_labels={"gpu": "a100", "zone": "b"}, projects=("vision",))
    made = await groups.create(NAME, first, "root")
    assert (made.name, made.spec) == (NAME, first)
    with pytest.raises(ObjectExists):
        await groups.create(NAME, first, "root")
    other = NodeGroupSpec(match_labels={"gpu": "h100"}, node_names=("n1",), departments=("arts",))
    changed = await groups.replace(NAME, other, "root", made.version)
    assert changed.spec == other
    with pytest.raises(VersionConflict):
        await groups.replace(NAME, first, "root", made.version)
    shown = kubectl("get", "nodegroup", NAME, "-o", "jsonpath={.spec.matchLabels}")
    assert shown == '{"gpu":"h100"}'
    assert [one.spec for one in await groups.all() if one.name == NAME] == [other]
    await groups.delete(NAME)
    with pytest.raises(ObjectNotFound):
        await groups.delete(NAME)
    with pytest.raises(ObjectNotFound):
        await groups.replace(NAME, first, "root")
