"""Pods with claims for devices in the loop: counted, bound, evicted, and after a restart."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from carrel_scheduler.core.events import Outcome, WorkloadQueued
from carrel_scheduler.core.requests import Request
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    Bind,
    BindingFailed,
    PodOrders,
)
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.orders import ReleaseClaim
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    ResourceClaim,
    ResourceClaimStatus,
)
from unit.devices.making_devices import (
    cel,
    claim,
    claiming,
    device,
    device_class,
    device_slice,
    request,
)
from unit.devices.making_devices import gpus as offered
from unit.external_pods.world import World, grouping, pod


@dataclass
class Devices(World):
    """A cluster whose GPUs are asked for by claims, and Kubernetes' controller of claims."""

    gpus: int = 0
    nodes: int = 2
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    released: list[ReleaseClaim] = field(default_factory=list)
    slices: tuple[Any, ...] = (offered("n0", 2), offered("n1", 2))

    @property
    def devices(self) -> DeviceClaims:
        return self.reconciler.current.places.devices

    @override
    def restart(self) -> None:
        super().restart()
        self.devices.set_class(device_class())
        for one in self.slices:
            self.devices.inventory.set_slice(one)
        for known in self.claims.values():
            self.devices.set_claim(known)

    def put(self, one: ResourceClaim) -> None:
        self.claims[one.metadata.name] = one
        self.devices.set_claim(one)

    def request(self, name: str, *requests: dict[str, Any], **more: Any) -> None:
        """A pod with a claim of its own."""
        self.put(claim(name, *requests))
        self.arrive_as(claiming(name, name, containers=[{"name": "main"}]), grouping(name, **more))

    @override
    def _take(self, orders: PodOrders) -> None:
        super()._take(orders)
        self.released += orders.releases

    @override
    def _bind(self, order: Bind, failure: str) -> None:
        for one in order.claims:
            if failure != "before":
                given = tuple(r["device"] for r in one.allocation["devices"]["results"])
                spec = self.claims[one.claim].spec
                made = claim(one.claim, given=given, node=order.node, users=(one.pod_uid,))
                status = msgspec.to_builtins(made.status) | {"allocation": one.allocation}
                told = msgspec.convert(status, ResourceClaimStatus)
                self.put(msgspec.structs.replace(made, spec=spec, status=told))
        super()._bind(order, failure)
        self.check_devices()

    def deallocate(self, name: str) -> None:
        """Kubernetes' controller frees the devices of a pod that has ended."""
        status = type(self.claims[name].status)()
        self.put(msgspec.structs.replace(self.claims[name], status=status))

    def given(self, name: str) -> list[str]:
        allocation = self.claims[name].status.allocation
        return [] if allocation is None else [one.device for one in allocation.devices.results]

    def check_devices(self) -> None:
        """No device is given to two claims."""
        found = [
            (one.pool, one.device)
            for known in self.claims.values()
            if known.status.allocation is not None
            for one in known.status.allocation.devices.results
        ]
        assert len(found) == len(set(found)), found


def gpu_milli(world: World, project: str) -> int:
    """What a project holds, in thousandths of GPUs."""
    queues = world.state.queues
    return int(queues.used[queues.slots[project], 0])


def test_pods_are_bound_with_their_devices_and_counted_for_them() -> None:
    world = Devices()
    world.project("a", 4)
    for name, count in (("two", 2), ("one", 1), ("other", 1), ("more", 1)):
        world.request(name, request(count=count))
        world.settle()
    assert set(world.bound()) == {"one", "two", "other"}
    assert [len(world.given(name)) for name in ("one", "two", "other", "more")] == [1, 2, 1, 0]
    assert gpu_milli(world, "a") == 4000


def test_a_quota_holds_for_claims() -> None:
    world = Devices()
    world.project("a", 1)
    world.project("b", 3)
    for name in ("a1", "a2"):
        world.request(name, preemptible=False)
    world.settle()
    assert len(world.bound()) == 1
    assert gpu_milli(world, "a") == 1000


def test_the_next_pod_gets_devices_once_they_are_freed() -> None:
    world = Devices(nodes=1, slices=(offered("n0", 1),))
    world.project("a", 1)
    world.request("first")
    world.settle()
    world.request("second")
    world.settle()
    world.see("carrel-a/first", outcome=Outcome.SUCCEEDED)
    world.settle()
    assert "second" not in world.bound()  # its device is not free before the claim is
    world.deallocate("first")
    world.settle()
    assert world.given("second") == ["gpu-0"]


def test_devices_of_pods_of_others_are_not_offered() -> None:
    world = Devices(nodes=1, slices=(offered("n0", 2),))
    world.project("a", 2)
    world.put(claim("theirs", given=("gpu-0",), users=("somebody",)))
    world.request("one")
    world.request("two")
    world.settle()
    assert len(world.bound()) == 1
    world.deallocate("theirs")
    world.settle()
    assert len(world.bound()) == 2


def test_a_claim_deleted_between_decision_and_binding_leaves_no_trace() -> None:
    world = Devices(nodes=1, slices=(offered("n0", 1),))
    world.project("a", 1)
    world.request("gone")
    world.turn()
    [order] = world.binds
    world.binds.clear()
    world.devices.drop_claim(world.claims.pop("gone"))
    world.news.append(BindingFailed(order.pod, "resource claim gone was deleted", final=False))
    world.settle()
    assert "its resource claim `gone` does not exist" in world.told["gone"]
    world.request("next")
    world.settle()
    assert world.given("next") == ["gpu-0"]


def test_an_allocation_whose_binding_failed_is_taken_back_and_made_anew() -> None:
    world = Devices(nodes=1, slices=(offered("n0", 1),))
    world.project("a", 1)
    world.request("one")
    world.turn()
    world.carry_out(lambda: "again")
    assert world.given("one") == ["gpu-0"]
    world.turn()
    assert [order.claim for order in world.released] == ["one"]
    assert "being released" in world.told["one"]
    world.deallocate("one")
    world.now += 10
    world.settle()
    assert world.bound() == {"one": "n0"}


def test_what_is_bound_is_counted_again_after_a_restart() -> None:
    world = Devices()
    world.project("a", 4)
    world.request("one", request(count=2))
    world.request("two")
    world.settle()
    assert len(world.bound()) == 2
    world.restart()
    world.project("a", 4)
    world.settle()
    assert gpu_milli(world, "a") == 3000
    world.request("three")
    world.request("four")
    world.settle()
    assert len(world.bound()) == 3


def test_a_claim_left_allocated_by_a_killed_scheduler_is_released_before_its_pod_is_placed() -> (
    None
):
    world = Devices(nodes=1, slices=(offered("n0", 1),))
    world.project("a", 1)
    world.request("one")
    world.put(claim("one", given=("gpu-0",), users=("carrel-a/one",)))
    world.settle()
    assert [order.claim for order in world.released] == ["one"]
    assert not world.bound()
    world.deallocate("one")
    world.settle()
    assert world.bound() == {"one": "n0"}


def test_choosy_pods_of_one_pass_get_the_right_devices_or_wait() -> None:
    mixed = device_slice("n0", device("gpu-0", "H100"), device("gpu-1", "A100"))
    world = Devices(nodes=1, slices=(mixed,))
    world.project("a", 2)
    h100 = cel('device.attributes["gpu.nvidia.com"].productName.endsWith("H100")')
    for name in ("one", "two"):
        world.request(name, request(selectors=h100))
    world.settle()
    assert len(world.bound()) == 1
    assert any(world.given(name) == ["gpu-0"] for name in ("one", "two"))
    world.request("any")
    world.settle()
    assert world.given("any") == ["gpu-1"]


def test_pods_by_resource_name_and_our_own_work_keep_off_gpus_of_claims() -> None:
    world = Devices()
    world.project("a", 4)
    world.arrive_as(pod("by-name"), grouping("by-name"))
    world.settle()
    assert not world.bound()
    event = WorkloadQueued(
        uid="w",
        name="w",
        project="a",
        user="u",
        priority=50,
        preemptible=grouping("x").preemptible,
        request=Request(gpus=1),
        tasks=1,
        created_at=0.0,
    )
    labels = dict(world.reconciler.constrained(event).request.where.labels)
    assert labels["carrel.dev/gpu-resource"] == {"nvidia.com/gpu", "amd.com/gpu"}


def test_a_pod_gives_way_for_one_with_a_claim() -> None:
    world = Devices(nodes=1, slices=(offered("n0", 1),))
    world.project("a", 0)
    world.project("b", 1)
    world.request("borrows")
    world.settle()
    assert world.bound() == {"borrows": "n0"}
    world.request("owns", project="b")
    world.settle()
    assert world.pods["carrel-a/borrows"].pod.ending
    world.see("carrel-a/borrows", outcome=Outcome.FAILED)
    world.deallocate("borrows")
    world.settle()
    assert world.bound()["owns"] == "n0"


@pytest.mark.parametrize("seed", range(3))
def test_no_device_is_given_twice_whatever_fails(seed: int) -> None:
    import random

    chance = random.Random(seed)
    world = Devices()
    world.project("a", 4)
    for number in range(30):
        world.request(f"p{number}", request(count=chance.randint(1, 2)))
        world.turn()
        while world.binds or world.evictions:
            world.carry_out(lambda: chance.choice(["", "", "again", "before"]))
            world.check_devices()
        for order in world.released:
            if world.claims[order.claim].status.reserved_for:
                world.deallocate(order.claim)
        world.released.clear()
        for real in list(world.pods.values()):
            name = real.pod.ref.name
            if real.alive and chance.random() < 0.5:
                world.see(real.pod.ref.uid, outcome=Outcome.SUCCEEDED)
                world.deallocate(name)
        world.now += 1
    assert len([real for real in world.pods.values() if real.pod.outcome]) > 5
