"""Which pods of a node have which part of a GPU's memory, as their bindings say."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.memory_parts import MemoryParts
from carrel_scheduler.node.contract import MemoryLimit
from carrel_schema.names import GPU_MEMORY_MIB, GPU_UUIDS
from unit.shared_gpus.pod_server import PodServer
from unit.shared_gpus.sharing import PROJECT, Scheduler
from unit.shared_gpus.virtual_loop import in_virtual_time


def bound(uid: str = "u1", *, node: str = "n1", **changes: Any) -> Pod:
    notes = {GPU_UUIDS: "GPU-a,GPU-b", GPU_MEMORY_MIB: "4096", **changes.pop("notes", {})}
    return msgspec.convert(
        {
            "metadata": {"name": uid, "namespace": "p", "uid": uid, "annotations": notes},
            "spec": {"nodeName": node, "schedulerName": "carrel", **changes.pop("spec", {})},
            "status": changes,
        },
        Pod,
    )


def test_each_gpu_of_a_pod_has_its_part_until_the_pod_ends() -> None:
    parts = MemoryParts()
    parts.take(bound(), gone=False)
    parts.take(bound("u2", node="n2"), gone=False)
    assert parts.of("n1") == tuple(
        MemoryLimit(pod="u1", device=gpu, memory_mib=4096) for gpu in ("GPU-a", "GPU-b")
    )
    assert [one.pod for one in parts.of("n2")] == ["u2", "u2"]
    parts.take(bound(phase="Succeeded"), gone=False)
    parts.take(bound("u2", node="n2"), gone=True)
    assert (parts.of("n1"), parts.of("n2")) == ((), ())


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"spec": {"schedulerName": "another"}}, id="placed by others"),
        pytest.param({"spec": {"nodeName": ""}}, id="not bound"),
        pytest.param({"notes": {GPU_MEMORY_MIB: ""}}, id="a MIG instance"),
        pytest.param({"notes": {GPU_MEMORY_MIB: "0"}}, id="nothing"),
        pytest.param({"notes": {GPU_MEMORY_MIB: "-4"}}, id="no amount"),
        pytest.param({"notes": {GPU_MEMORY_MIB: "9" * 40}}, id="too much"),
    ],
)
def test_other_pods_have_none(changes: dict[str, Any]) -> None:
    parts = MemoryParts()
    parts.take(bound(**changes), gone=False)
    assert parts.of("n1") == ()


def test_the_reservations_of_a_cluster_tell_what_a_binding_gave() -> None:
    async def play() -> None:
        server = PodServer({"n1": ["GPU-n1-0"]}, Random(0))
        scheduler = Scheduler(server, 1, 1)
        await scheduler.open()
        scheduler.start("share", "n1", (0,), 500)
        await asyncio.sleep(5.0)
        [pod] = [one for one in server.pods.values() if one["metadata"]["namespace"] == PROJECT]
        uid = pod["metadata"]["uid"]
        part = MemoryLimit(pod=uid, device="GPU-n1-0", memory_mib=1)
        assert scheduler.gpus.memory_limits("n1") == (part,)
        server.remove(pod)
        await asyncio.sleep(5.0)
        assert scheduler.gpus.memory_limits("n1") == ()
        await scheduler.close()
        server.close()

    in_virtual_time(play)
