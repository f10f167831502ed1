"""Claims are allocated and released as Kubernetes' scheduler does it, whoever writes meanwhile."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.device_claims import (
    NotAllocated,
    NotPrepared,
    allocate,
    await_preparation,
    release,
)
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.orders import AllocateClaim, ReleaseClaim
from carrel_scheduler.kube.errors import Conflict, NotFound
from unit.devices.making_devices import claim, claiming, device_class, gpus

FINALIZER = "resource.kubernetes.io/delete-protection"


class Server:
    """Holds one claim, and refuses what names another version of it."""

    def __init__(self) -> None:
        self.claim: dict[str, Any] | None = msgspec.to_builtins(claim())
        self.version = 1
        self.before_patch: Callable[[], None] = lambda: None
        self.loses_answers = 0

    def _shown(self) -> dict[str, Any]:
        if self.claim is None:
            raise NotFound(404, "NotFound", "no claim")
        meta = {**self.claim["metadata"], "resourceVersion": str(self.version)}
        return {**self.claim, "metadata": meta}

    async def get(self, _: Any, name: str, namespace: str, type: Any) -> Any:  # noqa: A002
        assert (namespace, name) == ("carrel-a", "c")
        return msgspec.convert(self._shown(), type)

    async def patch(self, *args: Any, sub: str = "", type: Any = dict) -> Any:  # noqa: A002
        body = args[2]
        before, self.before_patch = self.before_patch, lambda: None
        before()
        shown = self._shown()
        if body["metadata"]["resourceVersion"] != shown["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "changed")
        if sub == "status":
            status = {**shown.get("status", {}), **body["status"]}
            shown["status"] = {key: value for key, value in status.items() if value is not None}
        else:
            shown["metadata"] = {**shown["metadata"], **body["metadata"]}
        self.claim, self.version = shown, self.version + 1
        if sub == "status" and self.loses_answers:
            self.loses_answers -= 1
            raise Conflict(409, "Conflict", "sent again")
        return msgspec.convert(self._shown(), type)

    def change(self, **status: Any) -> None:
        """Somebody else writes."""
        assert self.claim is not None
        self.claim["status"] = status
        self.version += 1


def order(name: str = "p") -> AllocateClaim:
    devices = DeviceClaims()
    devices.set_class(device_class())
    devices.inventory.set_slice(gpus("n0", 1))
    devices.set_claim(claim())
    [found] = devices.decide(claiming(name, "c"), "n0", 1)
    return found


async def allocated(server: Server, what: AllocateClaim) -> None:
    client: Any = server
    await allocate(client, what)


async def test_finalizer_devices_and_pod_are_written() -> None:
    server = Server()
    await allocated(server, order())
    assert server.claim is not None
    assert server.claim["metadata"]["finalizers"] == [FINALIZER]
    assert server.claim["status"]["allocation"] == order().allocation
    users = server.claim["status"]["reservedFor"]
    assert users == [{"resource": "pods", "name": "p", "uid": "carrel-a/p"}]


async def test_a_claim_that_somebody_else_took_meanwhile_is_left_alone() -> None:
    server = Server()
    theirs = msgspec.to_builtins(claim(given=("gpu-0",), users=("other",)).status)
    server.before_patch = lambda: server.change(**theirs)
    with pytest.raises(NotAllocated, match="allocated by somebody else"):
        await allocated(server, order())
    assert server.claim is not None
    assert server.claim["status"] == theirs


async def test_harmless_writes_of_others_are_gone_along_with() -> None:
    server = Server()
    server.before_patch = server.change
    await allocated(server, order())
    assert server.version == 4


async def test_an_answer_that_was_lost_is_no_failure() -> None:
    server = Server()
    server.loses_answers = 1
    await allocated(server, order())
    with pytest.raises(NotAllocated):
        await allocated(server, order("q"))


@pytest.mark.parametrize(
    ("becomes", "said"),
    [
        (None, "was deleted"),
        (claim(deleted=True), "is being deleted"),
        (msgspec.json.decode(b'{"metadata":{"name":"c","uid":"2"}}'), "was made anew"),
    ],
)
async def test_a_claim_that_is_gone_or_another_one_is_not_allocated(
    becomes: Any, said: str
) -> None:
    server = Server()
    server.claim = msgspec.to_builtins(becomes)
    with pytest.raises(NotAllocated, match=said):
        await allocated(server, order())


async def test_a_claim_is_released_in_the_version_that_was_seen_only() -> None:
    server = Server()
    client: Any = server
    await allocated(server, order())
    await release(client, ReleaseClaim("carrel-a", "c", "1"))
    assert server.claim is not None
    assert "allocation" in server.claim["status"]
    await release(client, ReleaseClaim("carrel-a", "c", str(server.version)))
    assert server.claim["status"] == {}
    server.claim = None
    await release(client, ReleaseClaim("carrel-a", "c", "3"))


ATTACHED, FAILED = "example.com/attached", "example.com/attach-failed"


async def attaching(server: Server) -> AllocateClaim:
    """An allocation of which a device has to be attached to the node before the pod is bound."""
    conditions = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [FAILED]}
    devices = DeviceClaims()
    devices.set_class(device_class())
    devices.inventory.set_slice(gpus("n0", 1, **conditions))
    devices.set_claim(msgspec.convert(server.claim, type(claim())))
    [found] = devices.decide(claiming("p", "c"), "n0", 1)
    client: Any = server
    return await allocate(client, found)


def tell(server: Server, *conditions: str, device: str = "gpu-0") -> None:
    """Write conditions of a device that are true, as its driver does."""
    assert server.claim is not None
    true = [{"type": one, "status": "True", "message": "so it is"} for one in conditions]
    [result] = server.claim["status"]["allocation"]["devices"]["results"]
    about = {"driver": result["driver"], "pool": result["pool"], "device": device}
    server.change(**server.claim["status"] | {"devices": [{**about, "conditions": true}]})


async def test_conditions_of_a_device_are_allocated_with_it_and_awaited() -> None:
    server = Server()
    order = await attaching(server)
    assert server.claim is not None
    allocation = server.claim["status"]["allocation"]
    [result] = allocation["devices"]["results"]
    assert result["bindingConditions"] == [ATTACHED]
    assert result["bindingFailureConditions"] == [FAILED]
    assert allocation["allocationTimestamp"].endswith("Z")
    client: Any = server
    for others in ((), ("example.com/other",)):
        tell(server, *others)
        with pytest.raises(NotPrepared, match=f"gpu-0 lacks the condition {ATTACHED} after 0 s"):
            await await_preparation(client, order, seconds=0.0)
    tell(server, ATTACHED, device="gpu-7")
    with pytest.raises(NotPrepared):
        await await_preparation(client, order, seconds=0.0)
    tell(server, ATTACHED)
    await await_preparation(client, order, seconds=0.0)


async def test_a_device_that_cannot_be_prepared_is_not_waited_for() -> None:
    server = Server()
    order = await attaching(server)
    tell(server, ATTACHED, FAILED)
    client: Any = server
    with pytest.raises(NotPrepared, match=rf"cannot be prepared \({FAILED}\): so it is"):
        await await_preparation(client, order)


async def test_a_claim_that_is_freed_meanwhile_is_not_waited_for() -> None:
    server = Server()
    order = await attaching(server)
    server.change()
    client: Any = server
    with pytest.raises(NotAllocated, match="has no devices any more"):
        await await_preparation(client, order)


async def test_devices_that_need_no_preparation_are_bound_at_once() -> None:
    server = Server()
    client: Any = server
    made = await allocate(client, order())
    assert server.claim is not None
    assert "allocationTimestamp" not in server.claim["status"]["allocation"]
    server.claim = None
    await await_preparation(client, made)
