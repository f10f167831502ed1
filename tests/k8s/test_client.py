"""The client against a real API server: verbs, preconditions, refusals, many writes at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from carrel_scheduler.kube.metadata import PartialObject
from carrel_scheduler.kube.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from carrel_scheduler.kube.writes import Writer
from k8s.cluster.plane import ControlPlane

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
TIMEOUT_SECONDS = 120.0
SPACE = "kube-client"
PODS_AT_ONCE = 200


class ConfigMap(PartialObject, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


@pytest.fixture
async def client(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[KubeClient]:
    made = KubeClient(from_kubeconfig(plane.kubeconfig(tmp_path / "admin")))
    with suppress(AlreadyExists):
        await made.create(NAMESPACES, {"metadata": {"name": SPACE}})
    await until(partial(made.get, SERVICE_ACCOUNTS, "default", SPACE))
    yield made
    await made.close()


async def until(ask: Any, holds: Any = lambda _: True) -> Any:
    """What ``ask`` gives once it is as wanted."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                found = await ask()
                if holds(found):
                    return found
            except NotFound:
                pass  # a controller has still to make it
            await asyncio.sleep(0.05)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def pod(name: str, **labels: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"schedulerName": "carrel", "containers": containers},
    }


def binding(name: str, uid: str, node: str) -> bytes:
    metadata = {"name": name, "uid": uid, "annotations": {"carrel.dev/devices": "0,1"}}
    return msgspec.json.encode({"metadata": metadata, "target": {"kind": "Node", "name": node}})


async def bind(client: KubeClient, name: str, uid: str, target: str) -> None:
    """Have a pod bound there, also by a try whose answer was lost."""
    try:
        await client.post_sub(PODS, name, "binding", binding(name, uid, target), SPACE)
    except Conflict as error:
        if not error.retried:
            raise
        found = await client.get(PODS, name, SPACE)
        assert (found["metadata"]["uid"], found["spec"]["nodeName"]) == (uid, target)


async def node(client: KubeClient, name: str) -> str:
    capacity = {"pods": "10000", "cpu": "1000"}
    with suppress(AlreadyExists):
        await client.create(NODES, {"metadata": {"name": name}, "status": {"capacity": capacity}})
    return name


async def test_an_object_from_creation_to_deletion(client: KubeClient) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", x="1"), SPACE, ConfigMap)
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("a"), SPACE)
    found = await client.get(CONFIG_MAPS, "a", SPACE, ConfigMap)
    assert (found, found.data) == (made, {"x": "1"})
    newer = await client.patch(CONFIG_MAPS, "a", {"data": {"y": "2"}}, SPACE, type=ConfigMap)
    assert newer.data == {"x": "1", "y": "2"}
    with pytest.raises(Conflict):
        await client.replace(CONFIG_MAPS, "a", made, SPACE)
    replaced = await client.replace(
        CONFIG_MAPS, "a", msgspec.structs.replace(newer, data={"z": "3"}), SPACE, type=ConfigMap
    )
    assert replaced.data == {"z": "3"}
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", SPACE, uid="another")
    old = made.metadata.resource_version
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", SPACE, resource_version=old)
    await client.delete(CONFIG_MAPS, "a", SPACE, uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", SPACE)


async def test_each_kind_of_patch(client: KubeClient) -> None:
    await client.create(CONFIG_MAPS, config_map("patched", a="1", b="2"), SPACE)
    change = partial(client.patch, CONFIG_MAPS, "patched", namespace=SPACE, type=ConfigMap)
    found = await change(body={"data": {"a": None}}, how=PatchKind.MERGE)
    assert found.data == {"b": "2"}
    step = [{"op": "test", "path": "/data/b", "value": "2"}]
    found = await change(
        body=[*step, {"op": "add", "path": "/data/c", "value": "3"}], how=PatchKind.JSON
    )
    assert found.data == {"b": "2", "c": "3"}
    found = await change(body={"metadata": {"labels": {"l": "m"}}}, how=PatchKind.STRATEGIC)
    assert found.metadata.labels == {"l": "m"}
    applied = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("patched", b="9")}
    with pytest.raises(Conflict) as refused:
        await change(body=applied, how=PatchKind.APPLY, field_manager="carrel")
    assert [cause.field for cause in refused.value.details.causes or ()] == [".data.b"]
    found = await change(body=applied, how=PatchKind.APPLY, field_manager="carrel", force=True)
    assert found.data["b"] == "9"


async def test_lists_in_pages_with_selectors(client: KubeClient) -> None:
    for number in range(5):
        made = {"metadata": {"name": f"listed-{number}", "labels": {"listed": str(number % 2)}}}
        await client.create(CONFIG_MAPS, made, SPACE)
    listing = await client.list(CONFIG_MAPS, PartialObject, SPACE, "listed", limit=2)
    assert [one.metadata.name for one in listing.items] == [f"listed-{n}" for n in range(5)]
    odd = await client.list(CONFIG_MAPS, PartialObject, SPACE, "listed=1")
    assert [one.metadata.name for one in odd.items] == ["listed-1", "listed-3"]
    one = await client.list(CONFIG_MAPS, namespace=SPACE, field_selector="metadata.name=listed-4")
    assert [found["metadata"]["name"] for found in one.items] == ["listed-4"]
    assert int(listing.version) > 0


async def test_refusals_name_the_field(client: KubeClient) -> None:
    with pytest.raises(Invalid) as refused:
        await client.create(PODS, pod("Not A Name"), SPACE)
    assert [cause.field for cause in refused.value.details.causes or ()] == ["metadata.name"]
    with pytest.raises(NotFound):
        await client.create(CONFIG_MAPS, config_map("a"), "no-such-namespace")


async def test_tokens_are_in_no_error(plane: ControlPlane, tmp_path: Path) -> None:
    stranger = KubeClient(from_kubeconfig(plane.kubeconfig(tmp_path / "a", "a-wrong-token")))
    worker = next(iter(plane.node_tokens.values()))
    limited = KubeClient(from_kubeconfig(plane.kubeconfig(tmp_path / "b", worker)))
    with pytest.raises(Unauthorized) as unknown:
        await stranger.get(NODES, "n")
    with pytest.raises(Forbidden) as forbidden:
        await limited.list(SECRETS)
    with pytest.raises(Unauthorized) as closed:
        await stranger.open_websocket(PODS, "p", "exec", SPACE)
    for error, token in ((unknown, "a-wrong-token"), (forbidden, worker), (closed, "a-wrong")):
        told: BaseException | None = error.value
        while told is not None:
            assert token not in f"{told} {told!r} {told.args!r} {vars(told)!r}"
            told = told.__cause__ or told.__context__
    await stranger.close()
    await limited.close()


async def test_nobody_there(plane: ControlPlane, tmp_path: Path) -> None:
    nowhere = ControlPlane("https://127.0.0.1:1", plane.authority, "t")

    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    client = KubeClient(from_kubeconfig(nowhere.kubeconfig(tmp_path / "c")), pause=no_pause)
    with pytest.raises(Unavailable, match="Cannot connect"):
        await client.get(NODES, "n")
    await client.close()


async def test_many_bindings_at_once(client: KubeClient) -> None:
    """Each pod once, to the node it was meant for, with what the binding says of its devices."""
    target = await node(client, "kube-client-node")
    uids: dict[str, str] = {}

    async def create(name: str) -> None:
        uids[name] = (await client.create(PODS, pod(name), SPACE, PartialObject)).metadata.uid

    def again(uid: str) -> Any:
        body = binding(names[0], uid, target)
        return partial(client.post_sub, PODS, names[0], "binding", body, SPACE)

    def bound(name: str) -> Any:
        return partial(bind, client, name, uids[name], target)

    names = [f"many-{number}" for number in range(PODS_AT_ONCE)]
    async with Writer() as writer:
        await asyncio.gather(*(writer.submit(partial(create, name)) for name in names))
        with pytest.raises(Conflict):
            await writer.submit(again("another-uid"))
        await asyncio.gather(*(writer.submit(bound(name)) for name in names))
        with pytest.raises(Conflict, match="already assigned"):
            await writer.submit(again(uids[names[0]]))
    listing = await client.list(PODS, namespace=SPACE, field_selector=f"spec.nodeName={target}")
    assert {one["metadata"]["name"] for one in listing.items} == set(names)
    assert {one["metadata"]["annotations"]["carrel.dev/devices"] for one in listing.items} == {
        "0,1"
    }
    async with Writer() as writer:
        delete = partial(client.delete, PODS, namespace=SPACE, grace_seconds=0)
        gone = [writer.submit(partial(delete, name=name, uid=uids[name])) for name in names]
        await asyncio.gather(*gone)


async def test_a_disruption_budget_is_told_at_once(client: KubeClient) -> None:
    target = await node(client, "kube-client-budget")
    selector = {"matchLabels": {"guarded": "yes"}}
    spec = {"minAvailable": 1, "selector": selector}
    budget = {"metadata": {"name": "guard"}, "spec": spec}
    await client.create(POD_DISRUPTION_BUDGETS, budget, SPACE)
    made = await client.create(PODS, pod("guarded", guarded="yes"), SPACE, PartialObject)
    await bind(client, "guarded", made.metadata.uid, target)
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
    await client.patch(PODS, "guarded", {"status": ready}, SPACE, "status")
    await until(
        partial(client.get, POD_DISRUPTION_BUDGETS, "guard", SPACE),
        lambda found: found.get("status", {}).get("currentHealthy") == 1,
    )
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "guarded"}}
    with pytest.raises(TooManyRequests, match="disruption budget"):
        await client.post_sub(PODS, "guarded", "eviction", eviction, SPACE)
    await client.delete(POD_DISRUPTION_BUDGETS, "guard", SPACE)
    await client.post_sub(PODS, "guarded", "eviction", eviction, SPACE)
    await client.delete(PODS, "guarded", SPACE, grace_seconds=0)
