"""MIG instances that tasks of Carrel's own get by claims: made of GPUs that others have, too."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.messages.render import sentence
from carrel_scheduler.core.requests import Request
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    NodeSeen,
    TaskPodSeen,
)
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.types import ResourceClaim, ResourceSlice
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.mig_resources import milli_of
from carrel_schema.names import mig_resource
from unit.devices.making_devices import (
    DRIVER,
    cel,
    claim,
    claiming,
    device,
    device_class,
    device_slice,
    request,
)
from unit.external_pods.task_claims import TaskCluster, task_pod, written
from unit.external_pods.world import node

NODE, MIG = "n0", "mig.nvidia.com"
SLOTS: dict[str, tuple[int, tuple[int, ...]]] = {
    "1g.10gb": (1, tuple(range(7))),
    "3g.40gb": (4, (0, 4)),
    "7g.80gb": (8, (0,)),
    "1g.10gb+me": (1, (0,)),
}
BY_NAME = {name: mig_resource(name) for name in SLOTS}


def counters(first: int, size: int, gpu: int) -> list[dict[str, Any]]:
    slots = {f"memory-slice-{slot}": {"value": "1"} for slot in range(first, first + size)}
    return [{"counterSet": f"gpu-{gpu}", "counters": slots}]


def divided(*gpus: int) -> tuple[ResourceSlice, ResourceSlice]:
    """GPUs as a whole, and each instance that could be made of one."""
    offered: list[dict[str, Any]] = []
    for gpu in gpus:
        offered.append(device(f"gpu-{gpu}", consumesCounters=counters(0, 8, gpu)))
        for profile, (size, starts) in SLOTS.items():
            for start in starts:
                name = f"gpu-{gpu}-mig-{profile.replace('.', '').replace('+', '')}-{start}"
                made = device("gpu-0", consumesCounters=counters(start, size, gpu))
                kind = {"type": {"string": "mig"}, "profile": {"string": profile}}
                offered.append({**made, "name": name, "attributes": kind})
    sets = [{"name": f"gpu-{gpu}", "counters": counters(0, 8, gpu)[0]["counters"]} for gpu in gpus]
    told = {
        "metadata": {"name": "counters"},
        "spec": {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 2},
            "sharedCounters": sets,
        },
    }
    return msgspec.convert(told, ResourceSlice), device_slice(NODE, *offered, of=2)


def of_type(kind: str) -> list[dict[str, Any]]:
    return cel(f'device.attributes["{DRIVER}"].type == "{kind}"')


@dataclass
class Cluster(TaskCluster):
    """A node whose GPUs can be divided, and how its claims are."""

    gpus: int = 1
    mig_class: str = MIG
    claims: dict[str, ResourceClaim] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(DeviceClaims(task_class=DRIVER, mig_class=self.mig_class))
        for name, kind in ((DRIVER, "gpu"), (MIG, "mig")):
            self.devices.set_class(device_class(name, selectors=of_type(kind)))
        for one in divided(*range(self.gpus)):
            self.devices.inventory.set_slice(one)
        self.reconciler.handle([NodeSeen(node(NODE, 0)), AllReconciled()], 1.0)
        self.pass_()

    def place(self, uid: str, asked: Request) -> bool:
        """Queue work; whether it is placed."""
        return any(one.uid == uid for one in self.queue_and_place((uid,), asked))

    def start(self, uid: str, **amounts: str) -> str:
        """Give a placed task its device; its name, empty while there is none."""
        asking = instance_pod(uid, amounts)
        self.reconciler.handle([TaskPodSeen(asking)], 2.0)
        orders = self.devices.decide(asking, NODE, 1 if "gpu" in amounts else 0)
        if not orders:
            return ""
        made = written(orders[0])
        self.claims[uid] = made
        self.devices.set_claim(made)
        self.reconciler.handle([TaskPodSeen(instance_pod(uid, amounts, bound=True))], 2.0)
        self.pass_()
        return str(orders[0].allocation["devices"]["results"][0]["device"])

    def waits(self, uid: str) -> str:
        """Why work waits."""
        return sentence(decide(self.state, 3.0).reasons[uid], "a")

    def begin(self, uid: str, profile: str) -> str:
        placed = self.place(uid, instance(profile))
        return self.start(uid, **{BY_NAME[profile]: "1"}) if placed else ""

    def end(self, uid: str) -> None:
        self.release(uid)
        self.devices.drop_claim(self.claims.pop(uid))
        self.pass_()

    def offered(self, profile: str) -> int:
        return dict(self.fact(NODE).extended).get(BY_NAME[profile], 0)

    @property
    def pool(self) -> int:
        """What projects share out, in thousandths of GPUs."""
        fact = self.fact(NODE)
        return 1000 * (fact.devices - len(fact.broken_devices)) + fact.counted_milli


def instance(profile: str) -> Request:
    name = BY_NAME[profile]
    return Request(extended=((name, 1),), counted_milli=milli_of(name))


def instance_pod(uid: str, amounts: Mapping[str, str], *, bound: bool = False) -> Pod:
    asked = {("nvidia.com/gpu" if name == "gpu" else name): text for name, text in amounts.items()}
    return task_pod(uid, asked, nodeName=NODE if bound else "")


def test_instances_are_offered_as_many_as_there_may_be_at_once() -> None:
    one = Cluster(gpus=2)
    assert [one.offered(name) for name in SLOTS] == [14, 4, 2, 2]
    assert one.pool == 2000, "a GPU and what is made of it count once"
    fact = one.fact(NODE)
    assert fact.devices == 2, "an instance of all of a GPU is no second GPU"


def test_tasks_get_instances_until_the_counters_of_the_gpu_are_used_up() -> None:
    one = Cluster()
    assert one.begin("a", "3g.40gb").startswith("gpu-0-mig-3g40gb")
    assert (one.offered("3g.40gb"), one.offered("7g.80gb"), one.pool) == (2, 0, 1000)
    assert not one.place("w", Request(gpus=1)), "the GPU is divided"
    assert one.waits("w").endswith("ask for the MIG profile `3g.40gb` to get one.")
    assert one.begin("b", "1g.10gb+me") or one.begin("c", "1g.10gb")
    assert not one.place("d", instance("3g.40gb")), "no more is left of it"
    assert one.pool == 1000


def test_an_instance_with_media_engines_is_found_by_the_name_of_its_resource() -> None:
    assert Cluster().begin("a", "1g.10gb+me") == "gpu-0-mig-1g10gbme-0"


def test_a_whole_gpu_leaves_no_instance_and_comes_back() -> None:
    one = Cluster()
    assert one.place("w", Request(gpus=1))
    assert one.start("w", gpu="1") == "gpu-0"
    assert [one.offered(name) for name in SLOTS] == [0, 0, 0, 0]
    one.end("w")
    assert one.begin("a", "7g.80gb") == "gpu-0-mig-7g80gb-0"
    assert not one.place("x", Request(gpus=1))
    one.end("a")
    assert one.pool == 1000


def test_what_is_divided_is_told_to_who_asks_for_other_parts_of_gpus() -> None:
    one = Cluster()
    assert one.place("w", Request(gpus=1))
    one.start("w", gpu="1")
    assert not one.place("x", Request(gpus=1))
    assert "divided" not in one.waits("x"), "it is given as a whole"
    assert not one.place("s", Request(share_milli=250))
    told = f"GPUs of `{NODE}` are divided into MIG instances: ask for the MIG profile"
    assert one.waits("s") == (
        "No node satisfies what it asks of nodes: GPUs that are shared by parts. "
        f"{told} `3g.40gb` to get one."
    )


def test_what_others_claim_is_offered_to_nobody() -> None:
    one = Cluster()
    half = cel(f'device.attributes["{DRIVER}"].profile == "3g.40gb"')
    both = request(deviceClassName=MIG, count=2, selectors=half)
    one.devices.set_claim(claim("theirs", both))
    assert one.devices.decide(claiming("theirs", "theirs"), NODE, 0)
    one.pass_()
    assert [one.offered(name) for name in SLOTS] == [0, 0, 0, 0]
    assert not one.place("a", instance("1g.10gb"))
    assert one.pool == 1000


def test_two_instances_that_exclude_each_other_are_not_both_given() -> None:
    one = Cluster()
    assert one.place("a", instance("7g.80gb"))
    assert one.place("b", instance("3g.40gb")), "nothing is made of it yet"
    assert one.start("a", **{BY_NAME["7g.80gb"]: "1"})
    assert one.start("b", **{BY_NAME["3g.40gb"]: "1"}) == "", "its start waits, and goes elsewhere"


@pytest.mark.parametrize("mig_class", ["", "of.nobody"])
def test_without_such_a_class_none_are_offered(mig_class: str) -> None:
    one = Cluster(mig_class=mig_class)
    assert [one.offered(name) for name in SLOTS] == [0, 0, 0, 0]
    assert not one.devices.serves_instance(NODE, BY_NAME["1g.10gb"])
    assert one.place("w", Request(gpus=1))


def test_what_a_device_plugin_offers_by_that_name_is_its_own() -> None:
    one = Cluster()
    plugged = msgspec.to_builtins(node(NODE, 0))
    plugged["status"]["allocatable"][BY_NAME["1g.10gb"]] = "3"
    one.reconciler.handle([NodeSeen(msgspec.convert(plugged, type(node(NODE, 0))))], 2.0)
    one.pass_()
    assert one.offered("1g.10gb") == 3
    assert not one.devices.serves_instance(NODE, BY_NAME["1g.10gb"])
