"""Pods that ask for extended resources which devices serve: counted, bound with a claim, freed."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
from typing_extensions import override

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    Bind,
    BindingFailed,
    NodeDeleted,
    NodeSeen,
    PodOrders,
)
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.extended import manifest
from carrel_scheduler.engines.kubernetes.pods.devices.orders import ReleaseClaim
from carrel_scheduler.engines.kubernetes.pods.devices.types import ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from unit.devices.making_devices import claim, claiming, device_class, gpus
from unit.external_pods.world import GPU, World, grouping, node, pod


@dataclass
class Extended(World):
    """Two nodes with two GPUs each that claims ask for; a class stands for the resource."""

    gpus: int = 0
    nodes: int = 2
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    released: list[ReleaseClaim] = field(default_factory=list)

    @property
    def devices(self) -> DeviceClaims:
        return self.reconciler.current.places.devices

    @override
    def restart(self) -> None:
        super().restart()
        self.devices.set_class(device_class(extendedResourceName=GPU))
        for number in range(2):
            self.devices.inventory.set_slice(gpus(f"n{number}", 2))
        for known in self.claims.values():
            self.devices.set_claim(known)

    def put(self, one: ResourceClaim) -> None:
        self.claims[one.metadata.name] = one
        self.devices.set_claim(one)

    def drop(self, name: str) -> None:
        self.devices.drop_claim(self.claims.pop(name))

    @override
    def _take(self, orders: PodOrders) -> None:
        super()._take(orders)
        self.released += orders.releases

    @override
    def _bind(self, order: Bind, failure: str) -> None:
        for one in order.claims:
            if one.special is not None:
                told = manifest(one.special)
                told["metadata"] |= {"uid": f"uid-{one.claim}", "resourceVersion": "1"}
                users = [{"resource": "pods", "name": one.pod, "uid": one.pod_uid}]
                told["status"] = {"allocation": one.allocation, "reservedFor": users}
                self.put(msgspec.convert(told, ResourceClaim))
        super()._bind(order, failure)
        real = self.pods.get(order.pod.uid)
        if real is not None and real.pod.node and order.claims:
            status = {
                "resourceClaimName": order.claims[0].claim,
                "requestMappings": [{"resourceName": GPU}],
            }
            told = msgspec.to_builtins(real.pod.manifest)
            told["status"] = {"extendedResourceClaimStatus": status}
            self.see(order.pod.uid, manifest=msgspec.convert(told, Pod))

    def given(self) -> list[tuple[str, str]]:
        """All devices that claims have, each once."""
        found = [
            (one.pool, one.device)
            for known in self.claims.values()
            if known.status.allocation is not None
            for one in known.status.allocation.devices.results
        ]
        assert len(found) == len(set(found)), found
        return found


def gpu_milli(world: World, project: str) -> int:
    queues = world.state.queues
    return int(queues.used[queues.slots[project], 0])


def test_a_pod_is_given_devices_and_counted_for_them() -> None:
    world = Extended()
    world.project("a", 4)
    for number in range(3):
        world.add(f"p{number}", grouping(f"p{number}"), gpus=1)
        world.settle()
    world.add("large", grouping("large"), gpus=2)
    world.settle()
    assert set(world.bound()) == {"p0", "p1", "p2"}
    assert len(world.given()) == 3
    assert gpu_milli(world, "a") == 3000
    world.see("uid-p2", outcome=Outcome.SUCCEEDED)
    world.drop(next(one for one in world.claims if one.startswith("p2")))
    world.settle()
    places = [place for place in world.given() if place[0] == world.bound().get("large")]
    assert len(places) == 2


def test_claims_and_extended_resources_share_no_device() -> None:
    world = Extended()
    world.project("a", 8)
    for number in range(3):
        world.put(claim(f"c{number}"))
        world.arrive_as(claiming(f"c{number}", f"c{number}"), grouping(f"c{number}"))
        world.add(f"p{number}", grouping(f"p{number}"))
    for _ in range(10):
        world.turn()
        while world.binds:
            order = world.binds[0]
            if order.claims and order.claims[0].special is None:
                one = order.claims[0]
                results = one.allocation["devices"]["results"]
                given = tuple(result["device"] for result in results)
                world.put(claim(one.claim, given=given, node=order.node, users=(one.pod_uid,)))
            world.carry_out()
    assert len(world.bound()) == 4
    assert len(world.given()) == 4
    assert gpu_milli(world, "a") == 4000


def test_what_is_given_is_found_again_after_a_restart() -> None:
    world = Extended()
    world.project("a", 4)
    world.add("p", grouping("p"), gpus=2)
    world.settle()
    world.restart()
    world.project("a", 4)
    world.settle()
    assert gpu_milli(world, "a") == 2000
    world.add("q", grouping("q"), gpus=2)
    world.settle()
    assert len({node for node, _ in world.given()}) == 2


def test_a_claim_of_a_pod_that_was_not_bound_is_deleted_before_the_next_try() -> None:
    world = Extended()
    world.project("a", 4)
    world.add("p", grouping("p"))
    world.turn()
    [order] = world.binds
    world.binds.clear()
    [one] = order.claims
    assert one.special is not None
    told = manifest(one.special)
    told["metadata"] |= {"uid": "made", "resourceVersion": "1"}
    world.put(msgspec.convert(told, ResourceClaim))
    world.news.append(BindingFailed(order.pod, "refused", final=False))
    world.now += 1.0
    world.turn()
    world.turn()
    assert world.released[-1].special == "made"
    assert world.bound() == {}
    assert "are being released" in world.told["p"]
    world.drop(one.claim)
    world.now += 5.0
    world.settle()
    assert "p" in world.bound()


def test_where_a_device_plugin_offers_the_resource_it_is_asked_for_there() -> None:
    world = Extended()
    world.project("a", 8)
    world.news.append(NodeSeen(node("plugin", 2)))
    world.add("p", grouping("p"))
    world.settle()
    assert world.bound() == {"p": "plugin"}
    assert not world.given()
    world.delete("uid-p")
    world.news.append(NodeDeleted("plugin"))
    world.add("q", grouping("q"))
    world.settle()
    assert len(world.given()) == 1


def requests_of(world: Extended, manifest_of: Pod) -> tuple[dict[str, int], list[Any]]:
    world.arrive_as(manifest_of, grouping(manifest_of.metadata.name))
    world.turn()
    [order] = world.binds
    [one] = order.claims
    assert one.special is not None
    asked = {
        request.name: request.exactly.count
        for request in one.special.claim.spec.devices.requests
        if request.exactly is not None
    }
    mapped = [(one["containerName"], one["requestName"]) for one in one.special.mappings]
    return asked, mapped


def test_init_containers_use_the_devices_of_those_that_come_after() -> None:
    world = Extended()
    world.project("a", 8)

    def container(name: str, count: int, **more: Any) -> dict[str, Any]:
        amounts = {"cpu": "1", GPU: str(count)}
        return {"name": name, "resources": {"requests": amounts, "limits": amounts}, **more}

    told = msgspec.to_builtins(pod("p"))
    told["spec"]["initContainers"] = [container("small", 1), container("large", 2)]
    told["spec"]["containers"] = [container("main", 1)]
    asked, mapped = requests_of(world, msgspec.convert(told, Pod))
    assert asked == {"container-1-request-1": 1, "container-2-request-1": 1}
    assert mapped == [
        ("main", "container-2-request-1"),
        ("small", "container-2-request-1"),
        ("large", "container-2-request-1"),
        ("large", "container-1-request-1"),
    ]
