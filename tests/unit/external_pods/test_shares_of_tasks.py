"""Parts of GPUs that tasks of Carrel's own get by claims: where, of which device, counted once."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MIB
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    NodeSeen,
    TaskPodSeen,
)
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.place_claims import PlacedGpus, decide_places
from carrel_scheduler.engines.kubernetes.pods.devices.task_shares import request_of
from carrel_scheduler.engines.kubernetes.pods.devices.types import ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.shared_gpus import AMOUNT
from unit.devices.making_devices import (
    DRIVER,
    claim,
    claiming,
    device,
    device_class,
    device_slice,
    request,
)
from unit.external_pods.task_claims import TaskCluster, task_pod, written
from unit.external_pods.world import node

SHARED, PLUGGED = "shared", "plugged"
GIB = 1024 * MIB * NANO
HALF = Request(share_milli=500, devices=1)


def gpu(number: int, *, uuid: bool = True, **policy: Any) -> dict[str, Any]:
    made = device(f"gpu-{number}", allowMultipleAllocations=True)
    if uuid:
        made["attributes"]["uuid"] = {"string": f"GPU-{number}"}
    if policy:
        made["capacity"]["memory"]["requestPolicy"] = policy
    return made


@dataclass
class Cluster(TaskCluster):
    """A node whose GPUs claims share, and one with a device plugin.

    ``claims`` are as the cluster has them.
    """

    gpus: tuple[dict[str, Any], ...] = (gpu(0), gpu(1))
    plugged: int = 0
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A scheduler that knows what the cluster has."""
        super().__init__(DeviceClaims(task_class=DRIVER))
        self.devices.set_class(device_class())
        self.devices.inventory.set_slice(device_slice(SHARED, *self.gpus))
        for one in self.claims.values():
            self.devices.set_claim(one)
        offered = ((SHARED, 0), (PLUGGED, self.plugged))
        seen = [TaskPodSeen(one) for one in self.pods.values()]
        self.reconciler.handle(
            [*(NodeSeen(node(*one)) for one in offered), *seen, AllReconciled()], 1.0
        )
        self.pass_()

    def place(self, *uids: str, asked: Request = HALF) -> dict[str, tuple[str, list[int]]]:
        """Queue work; the nodes and places of what is placed."""
        placed = self.queue_and_place(uids, asked)
        return {one.uid: (one.node, list(one.devices)) for one in placed}

    def start(
        self, uid: str, places: list[int], milli: int = 500, memory_mib: int = 0
    ) -> list[str]:
        """Give a placed task its devices; their names, none where they are not free yet."""
        terms = self.devices.terms(SHARED)
        assert terms is not None
        asked = terms.amounts(milli, memory_mib)
        assert asked is not None
        found = decide_places(self.devices, share_pod(uid), SHARED, places, asked)
        if found is None:
            return []
        self.write(found)
        return [one["device"] for one in found.order.allocation["devices"]["results"]]

    def write(self, found: PlacedGpus) -> None:
        made = written(found.order)
        self.claims[made.metadata.name] = made
        self.devices.set_claim(made)
        bound = share_pod(found.order.pod, nodeName=SHARED)
        self.pods[found.order.pod] = bound
        self.reconciler.handle([TaskPodSeen(bound)], 2.0)
        self.pass_()

    def end(self, uid: str, *, freed: bool = True) -> None:
        """A task has ended, and its claim is freed."""
        self.release(uid)
        if freed:
            name = next(key for key in self.claims if key.startswith(f"{uid}-"))
            self.devices.drop_claim(self.claims.pop(name))
        self.pass_()

    def given_to_others(self, name: str, memory: str = "10Gi") -> tuple[str, ...]:
        """The devices that a pod of others gets, by a claim for so much memory."""
        asking = request(capacity={"requests": {"memory": memory}})
        self.devices.set_claim(claim(name, asking))
        orders = self.devices.decide(claiming(name, name), SHARED, 0)
        return tuple(
            one["device"] for order in orders for one in order.allocation["devices"]["results"]
        )

    @property
    def broken(self) -> int:
        return len(self.fact(SHARED).broken_devices)


def share_pod(uid: str, **spec: Any) -> Pod:
    return task_pod(uid, AMOUNT, **spec)


def test_parts_go_to_nodes_whose_gpus_claims_share_and_to_device_plugins() -> None:
    one = Cluster(plugged=1)
    found = one.place(*(f"w{number}" for number in range(9)))
    assert sorted(where for where, _ in found.values()) == [PLUGGED] * 2 + [SHARED] * 4
    assert (
        one.fact(SHARED).devices,
        one.fact(SHARED).counted_milli,
        one.fact(SHARED).gpu_memory_mib,
    ) == (2, 0, 80 * 1024)


def test_whole_gpus_and_parts_in_memory_are_given_there_too() -> None:
    one = Cluster()
    [(where, places)] = one.place("whole", asked=Request(gpus=1)).values()
    assert (where, one.start("whole", places, 1000)) == (SHARED, ["gpu-0"])
    [(_, [place])] = one.place("small", asked=Request(gpu_memory_mib=8192, devices=1)).values()
    assert place not in places
    assert one.start("small", [place], 110, 8192) == ["gpu-1"]
    [use] = [use for use in one.devices.uses(SHARED) if use.place == place]
    assert dict(use.consumed)["memory"] == 8 * GIB
    [(_, pair)] = one.place("pair", asked=Request(share_milli=250, devices=1)).values()
    assert pair == [place], "the whole one is nobody else's"


def test_a_task_may_have_parts_of_several_gpus() -> None:
    one = Cluster()
    [(_, places)] = one.place("pair", asked=Request(share_milli=250, devices=2)).values()
    assert sorted(one.start("pair", places, 250)) == ["gpu-0", "gpu-1"]


def test_a_place_stands_for_one_device_also_after_a_restart() -> None:
    one = Cluster()
    found = one.place("a", "b", "c")
    devices = {uid: one.start(uid, places) for uid, (_, places) in found.items()}
    for uid, (_, places) in found.items():
        for other, (_, theirs) in found.items():
            assert (devices[uid] == devices[other]) == (places == theirs)
    lonely = next(
        uid for uid, (_, at) in found.items() if [p for _, p in found.values()].count(at) == 1
    )
    one.begin()
    assert one.start("next", found[lonely][1]) == devices[lonely]
    assert one.start("more", found[lonely][1]) == [], "no more is left of it"


def test_what_an_ended_task_has_is_not_given_before_its_claim_is_free() -> None:
    one = Cluster(gpus=(gpu(0),))
    [(_, places)] = one.place("a", asked=Request(gpus=1)).values()
    assert one.start("a", places, 1000)
    one.end("a", freed=False)
    assert one.start("b", places) == []
    one.devices.drop_claim(one.claims.popitem()[1])
    assert one.start("b", places) == ["gpu-0"]


def test_devices_of_which_others_have_parts_are_at_no_place() -> None:
    one = Cluster()
    assert one.given_to_others("theirs") == ("gpu-0",)
    one.pass_()
    assert (one.broken, one.fact(SHARED).counted_milli) == (1, 1000)
    found = one.place("a", "b", "c")
    assert len(found) == 2
    assert {tuple(one.start(uid, places)) for uid, (_, places) in found.items()} == {("gpu-1",)}
    assert one.given_to_others("more") == ("gpu-0",)


def test_others_get_no_device_that_the_core_has_given_to_tasks() -> None:
    one = Cluster()
    [(_, places)] = one.place("a").values()  # its claim is not written yet
    assert one.given_to_others("first") == ("gpu-1",)
    assert one.given_to_others("all", "75Gi") == ()
    assert one.start("a", places) == ["gpu-0"]
    assert one.given_to_others("second") == ("gpu-1",)


def test_a_claim_of_somebody_that_calls_its_request_a_place_has_none() -> None:
    one = Cluster()
    forged = claim("forged", request(request_of(1), capacity={"requests": {"memory": "9Gi"}}))
    one.devices.set_claim(forged)
    [order] = one.devices.decide(claiming("forged", "forged"), SHARED, 0)
    told = msgspec.to_builtins(forged)
    told["status"] = {"allocation": order.allocation, "reservedFor": []}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "forged", "uid": order.pod_uid}
    told["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    one.devices.set_claim(msgspec.convert(told, ResourceClaim))
    assert [use.place for use in one.devices.uses(SHARED)] == [None]


@pytest.mark.parametrize(
    ("gpus", "milli", "where"),
    [
        ((gpu(0, validValues=["20Gi", "40Gi", "80Gi"], default="20Gi"),), 500, SHARED),
        ((gpu(0, validValues=["20Gi", "40Gi", "80Gi"], default="20Gi"),), 300, PLUGGED),
        ((gpu(0, validRange={"min": "1Gi", "step": "1Gi"}, default="1Gi"),), 330, SHARED),
        ((gpu(0, validRange={"min": "10Gi"}, default="10Gi"),), 100, PLUGGED),
        ((gpu(0, validRange={"min": "1Gi", "max": "40Gi"}, default="1Gi"),), 1000, PLUGGED),
        ((gpu(0, uuid=False),), 500, PLUGGED),
        ((gpu(0), gpu(1, default="1Gi")), 500, PLUGGED),
        ((gpu(0), device("gpu-1")), 500, PLUGGED),
        ((device("gpu-0"),), 500, PLUGGED),
    ],
)
def test_work_goes_where_the_driver_gives_such_a_part(
    gpus: tuple[dict[str, Any], ...], milli: int, where: str
) -> None:
    one = Cluster(gpus=gpus, plugged=1)
    asked = Request(gpus=1) if milli == 1000 else Request(share_milli=milli, devices=1)
    found = one.place(*(f"w{number}" for number in range(12)), asked=asked)
    assert {at for at, _ in found.values()} == {where, PLUGGED}


def test_a_part_is_rounded_down_to_what_the_device_gives() -> None:
    one = Cluster(gpus=(gpu(0, validRange={"min": "1Gi", "step": "1Gi"}, default="1Gi"),))
    terms = one.devices.terms(SHARED)
    assert terms is not None
    assert terms.amounts(330) == (("memory", 26 * GIB),)
    assert terms.amounts(1000) == (("memory", 80 * GIB),)
    assert terms.amounts(110, 8191) == (("memory", 8 * GIB),)
    assert terms.amounts(100, 8193) is None
