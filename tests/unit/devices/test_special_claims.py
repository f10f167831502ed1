"""Claims for extended resources as they are made, told to the pod, and deleted."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.device_claims import NotAllocated, allocate, release
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.extended import (
    classes_by_resource,
    manifest,
)
from carrel_scheduler.engines.kubernetes.pods.devices.orders import AllocateClaim, ReleaseClaim
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.transport import KubeResponse
from unit.devices.making_devices import device_class, gpus
from unit.kube.fake_transport import FakeTransport, NoCredentials, answer, refusal
from unit.pods.making import pod

NAME = "nvidia.com/gpu"
FINALIZER = "resource.kubernetes.io/delete-protection"


def order() -> AllocateClaim:
    devices = DeviceClaims()
    devices.set_class(device_class(extendedResourceName=NAME))
    devices.inventory.set_slice(gpus("n0", 2))
    amounts = {NAME: "1"}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    [found] = devices.decide(pod("p", namespace="carrel-a", containers=[container]), "n0", 1)
    return found


def made(uid: str = "made", **changes: Any) -> dict[str, Any]:
    """The claim as the server has it."""
    special = order().special
    assert special is not None
    told = manifest(special)
    told["metadata"] |= {"uid": uid, "resourceVersion": "1", **changes}
    return told


class Client:
    def __init__(self, *answers: KubeResponse | KubeError) -> None:
        self.transport = FakeTransport(*answers)
        self.client = KubeClient(NoCredentials(), self.transport)

    def bodies(self) -> list[tuple[str, str, Any]]:
        """What was sent: the verb, the last of the path, and the body."""
        return [
            (one.method, one.path.rpartition("/")[2], msgspec.json.decode(one.body or b"null"))
            for one in self.transport.sent
        ]


async def test_it_is_made_allocated_and_told_to_the_pod() -> None:
    what = order()
    one = answer(made())
    server = Client(one, one, one, answer({}), answer({}))
    await allocate(server.client, what)
    create, read, finalizer, allocated, told = server.bodies()
    assert create[2]["metadata"]["name"] == what.claim
    assert create[2]["metadata"]["ownerReferences"][0]["uid"] == what.pod_uid
    assert read[0] == "GET"
    assert finalizer[2]["metadata"]["finalizers"] == [FINALIZER]
    assert allocated[2]["status"]["reservedFor"][0]["uid"] == what.pod_uid
    assert told[1] == "status"
    assert told[2]["metadata"] == {"uid": what.pod_uid}
    assert told[2]["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": what.claim,
        "requestMappings": [
            {
                "containerName": "main",
                "resourceName": NAME,
                "requestName": "container-0-request-0",
            }
        ],
    }


async def test_a_claim_of_an_earlier_try_is_taken_and_one_of_somebody_else_is_not() -> None:
    there = refusal(409, "AlreadyExists")
    one = answer(made())
    await allocate(Client(there, one, one, one, answer({}), answer({})).client, order())
    theirs = answer(made(annotations={}))
    with pytest.raises(NotAllocated, match="somebody else's"):
        await allocate(Client(there, theirs).client, order())
    other = {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "q", "controller": True}
    with pytest.raises(NotAllocated, match="somebody else's"):
        await allocate(Client(there, answer(made(ownerReferences=[other]))).client, order())
    changed = made()
    changed["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    with pytest.raises(NotAllocated, match="asks for something else"):
        await allocate(Client(there, answer(changed)).client, order())


async def test_it_is_deleted_as_the_one_that_it_is() -> None:
    what = ReleaseClaim("carrel-a", "c", "1", special="made")
    one = answer(made(finalizers=[FINALIZER, "mine.dev/x"]))
    server = Client(one, answer({}), answer({}))
    await release(server.client, what)
    _, finalizers, deleted = server.bodies()
    assert finalizers[2]["metadata"]["finalizers"] == ["mine.dev/x"]
    assert deleted[0] == "DELETE"
    assert deleted[2]["preconditions"] == {"uid": "made"}
    await release(Client(answer(made("another"))).client, what)
    await release(Client(refusal(404, "NotFound")).client, what)


def test_of_several_classes_the_newest_stands_for_a_resource() -> None:
    def of(name: str, at: str) -> Any:
        told = msgspec.to_builtins(device_class(name, extendedResourceName=NAME))
        told["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{at}Z"
        return msgspec.convert(told, type(device_class()))

    old, new, alike = of("a", "00"), of("c", "10"), of("b", "10")
    for order_of in ((old, new, alike), (alike, new, old), (new, old, alike)):
        found = classes_by_resource(order_of)
        assert found[NAME] == "b"
        assert found["deviceclass.resource.kubernetes.io/a"] == "a"
