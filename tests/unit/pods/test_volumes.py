"""Pods go where their volumes are, or can be made."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import (
    BindVolume,
    SelectNode,
    Volumes,
)
from carrel_scheduler.engines.kubernetes.pods.storage_types import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from unit.pods.making import node, pod


def cluster() -> tuple[PlacementConstraints, Volumes]:
    volumes = Volumes()
    places = PlacementConstraints(volumes)
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        places.set_node(node(name, labels={"zone": zone}))
    return places, volumes


def uses(*claims: str) -> Pod:
    return pod(
        volumes=[{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims],
    )


def claim(name: str = "data", **spec: Any) -> PersistentVolumeClaim:
    annotations = spec.pop("annotations", {})
    said = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, **spec}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    return msgspec.convert({"metadata": meta, "spec": said}, type=PersistentVolumeClaim)


def volume(
    name: str, zone: str = "", size: str = "10Gi", phase: str = "Available", **spec: Any
) -> PersistentVolume:
    expressions = [{"key": "zone", "operator": "In", "values": [zone]}]
    said: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        **spec,
    }
    if zone:
        required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        said["nodeAffinity"] = {"required": required}
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": said, "status": {"phase": phase}},
        type=PersistentVolume,
    )


def storage(name: str, provisioner: str = "disks", *zones: str, late: bool = True) -> StorageClass:
    said: dict[str, Any] = {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if late else "Immediate",
    }
    if zones:
        values = {"key": "zone", "values": list(zones)}
        said["allowedTopologies"] = [{"matchLabelExpressions": [values]}]
    return msgspec.convert(said, type=StorageClass)


def open_to(places: PlacementConstraints, of: Pod) -> set[str] | None:
    found = places.ask(of).request.where.nodes
    return None if found is None else set(found)


def test_a_bound_claim_ties_to_the_nodes_of_its_volume() -> None:
    places, volumes = cluster()
    of = uses("data")
    assert places.ask(of).waits == "its volume claim `data` does not exist"
    volumes.set_claim(claim(volumeName="disk"))
    assert places.ask(of).waits == "the volume `disk` of its claim `data` does not exist"
    volumes.set_volume(volume("disk", "a", phase="Bound"))
    assert open_to(places, of) == {"a1", "a2"}
    volumes.set_volume(volume("disk", phase="Bound"))
    assert open_to(places, of) is None
    volumes.drop_claim("default", "data")
    assert places.ask(of).waits


def test_volumes_that_no_node_reaches_together() -> None:
    places, volumes = cluster()
    for name, zone in (("one", "a"), ("two", "b")):
        volumes.set_claim(claim(name, volumeName=name))
        volumes.set_volume(volume(name, zone, phase="Bound"))
    assert open_to(places, uses("one")) == {"a1", "a2"}
    assert open_to(places, uses("one", "two")) == set()
    assert places.ask(uses("one", "two")).waits == "no node reaches all its volumes"


@pytest.mark.parametrize("late", [None, False])
def test_a_claim_that_is_to_be_bound_before_is_waited_for(*, late: bool | None) -> None:
    places, volumes = cluster()
    if late is not None:
        volumes.set_class(storage("now", late=late))
    volumes.set_claim(claim(storageClassName="now"))
    found = places.ask(uses("data"))
    assert found.waits == "its volume claim `data` is not bound to a volume yet"
    assert found.follows


def test_a_volume_is_made_where_the_pod_goes() -> None:
    places, volumes = cluster()
    volumes.set_class(storage("disks"))
    volumes.set_class(storage("disks-of-b", "disks", "b"))
    volumes.set_claim(claim("any", storageClassName="disks"))
    volumes.set_claim(claim("b", storageClassName="disks-of-b"))
    assert open_to(places, uses("any")) is None
    assert open_to(places, uses("any", "b")) == {"b1"}
    decided = places.decide(uses("any", "b"), "b1")
    assert decided == (SelectNode("default", "any", "b1"), SelectNode("default", "b", "b1"))
    assert open_to(places, uses("any")) == {"b1"}
    assert places.decide(uses("any"), "b1") == ()


def test_a_claim_whose_volume_is_being_made_keeps_its_node() -> None:
    places, volumes = cluster()
    volumes.set_class(storage("disks"))
    selected = {"volume.kubernetes.io/selected-node": "a2"}
    volumes.set_claim(claim(storageClassName="disks", annotations=selected))
    assert open_to(places, uses("data")) == {"a2"}
    assert places.decide(uses("data"), "a2") == ()


def test_a_volume_that_is_there_is_taken_the_smallest_that_will_do() -> None:
    places, volumes = cluster()
    volumes.set_class(storage("local", "kubernetes.io/no-provisioner"))
    volumes.set_claim(claim(storageClassName="local"))
    of = uses("data")
    assert places.ask(of).waits == "no node reaches all its volumes"
    for one in (
        volume("small", "a", "1Gi"),
        volume("large", "a", "100Gi"),
        volume("right", "a", "6Gi"),
        volume("taken", "b", phase="Bound"),
        volume("other", "b", storageClassName="nfs"),
        volume("shared", "b", accessModes=["ReadOnlyMany"]),
        volume("reserved", "b", claimRef={"namespace": "default", "name": "else"}),
    ):
        volumes.set_volume(one)
    assert open_to(places, of) == {"a1", "a2"}
    assert places.decide(of, "a2") == (BindVolume("right", "default", "data", "uid-data"),)
    volumes.set_claim(claim("more", storageClassName="local"))
    assert places.decide(uses("more"), "a1") == (
        BindVolume("large", "default", "more", "uid-more"),
    )
    volumes.set_claim(claim("late", storageClassName="local"))
    assert places.ask(uses("late")).waits
    volumes.set_claim(claim(storageClassName="local", volumeName="right"))
    assert open_to(places, of) == {"a1", "a2"}


def test_what_was_decided_with_a_pod_that_is_not_bound_counts_no_more() -> None:
    places, volumes = cluster()
    volumes.set_class(storage("disks"))
    volumes.set_claim(claim(storageClassName="disks"))
    of = uses("data")
    assert places.decide(of, "a1")
    assert open_to(places, of) == {"a1"}
    places.drop_pod(of.metadata.uid)
    assert open_to(places, of) is None
    assert places.decide(of, "b1") == (SelectNode("default", "data", "b1"),)


def test_a_volume_kept_for_a_claim_is_its() -> None:
    places, volumes = cluster()
    volumes.set_class(storage("local", "kubernetes.io/no-provisioner"))
    volumes.set_claim(claim(storageClassName="local"))
    volumes.set_volume(volume("kept", "b", claimRef={"namespace": "default", "name": "data"}))
    assert open_to(places, uses("data")) == {"b1"}


def test_a_claim_of_the_pods_own_is_named_after_it() -> None:
    places, volumes = cluster()
    volumes.set_class(storage("disks", "disks", "b"))
    of = pod("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])
    assert places.ask(of).waits == "its volume claim `p-scratch` does not exist"
    volumes.set_claim(claim("p-scratch", storageClassName="disks"))
    assert open_to(places, of) == {"b1"}


def test_pods_of_one_template_have_claims_of_their_own() -> None:
    places, volumes = cluster()
    for number, zone in enumerate("ab"):
        volumes.set_claim(claim(f"p{number}-x", volumeName=f"v{number}"))
        volumes.set_volume(volume(f"v{number}", zone, phase="Bound"))
    found = [
        open_to(places, pod(f"p{number}", volumes=[{"name": "x", "ephemeral": {}}]))
        for number in range(2)
    ]
    assert found == [{"a1", "a2"}, {"b1"}]


def test_where_claims_are_not_followed_they_do_not_matter() -> None:
    places = PlacementConstraints()
    places.set_node(node("n"))
    assert not places.ask(uses("data")).follows
    assert places.decide(uses("data"), "n") == ()
