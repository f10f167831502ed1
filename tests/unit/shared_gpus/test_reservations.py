"""Reservations of shared GPUs: what they say, what is refused, who waits for whom."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.shared_gpus import reservation
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import (
    HeldGpu,
    ReservationSettings,
    binding_annotations,
)
from carrel_schema.names import RESERVATIONS_NAMESPACE
from unit.shared_gpus.pod_server import PodServer
from unit.shared_gpus.sharing import Scheduler
from unit.shared_gpus.virtual_loop import in_virtual_time


def a_pod(**told: Any) -> Pod:
    meta = {"name": "gpu-0-x", "namespace": RESERVATIONS_NAMESPACE, "uid": "r1"}
    return msgspec.convert({"metadata": meta | told.pop("metadata", {}), **told}, Pod)


def found(message: str) -> Pod:
    ended = {"terminated": {"exitCode": 0, "message": message}}
    return a_pod(status={"initContainerStatuses": [{"name": "find-gpu", "state": ended}]})


@pytest.mark.parametrize(
    ("message", "uuid", "memory"),
    [
        ("GPU-4f1b-a, 81559\n", "GPU-4f1b-a", 81559),
        ("GPU-4f1b-a", "GPU-4f1b-a", 0),
        ("GPU-4f1b-a, [N/A]", "GPU-4f1b-a", 0),
    ],
)
def test_which_gpu_it_is(message: str, uuid: str, memory: int) -> None:
    assert reservation.gpu_of(found(message)) == HeldGpu("r1", uuid, memory)


@pytest.mark.parametrize(
    "message", ["", "all", "void", "0", "MIG-1", "GPU-a,GPU-b", "GPU-a\nGPU-b", "GPU-" + "x" * 99]
)
def test_what_is_no_whole_gpu_is_not_shared(message: str) -> None:
    assert "one whole GPU of NVIDIA" in str(reservation.gpu_of(found(message)))


def test_it_asks_for_one_gpu_and_nothing_else() -> None:
    made = reservation.manifest("n1", 3, ReservationSettings("holder", "Never", ("pull",)))
    spec = made["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        asked = container["resources"]["requests"]
        assert asked == {"cpu": "0", "memory": "0", reservation.GPU: "1"}
        assert container["imagePullPolicy"] == "Never"
    assert not spec["automountServiceAccountToken"]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert reservation.name_of("n1", 3) == made["metadata"]["name"]
    assert reservation.name_of("n2", 3) != made["metadata"]["name"]
    assert len(made["metadata"]["name"]) <= 63


def test_what_is_a_pods_own_is_asked_for_or_its_share_of_the_smallest() -> None:
    gpus = (HeldGpu("r1", "GPU-a", 16_384), HeldGpu("r2", "GPU-b", 8_192))
    which = {"carrel.dev/gpu-uuids": "GPU-a,GPU-b", "carrel.dev/gpu-reservations": "r1,r2"}
    memory = "carrel.dev/gpu-memory-mib"
    assert binding_annotations(gpus, 500, 0) == {**which, memory: "4096"}
    assert binding_annotations(gpus, 500, 1000) == {**which, memory: "1000"}
    unknown = binding_annotations((HeldGpu("r1", "GPU-a", 0),), 500, 0)
    assert memory not in unknown


def test_only_pods_that_carrel_placed_keep_a_reservation() -> None:
    notes = {"carrel.dev/gpu-reservations": "r1,r2"}
    placed = {"nodeName": "n1", "schedulerName": "carrel"}
    assert reservation.reservations_of(a_pod(metadata={"annotations": notes}, spec=placed)) == {
        "r1",
        "r2",
    }
    for spec in ({**placed, "schedulerName": "mine"}, {**placed, "nodeName": ""}):
        assert not reservation.reservations_of(a_pod(metadata={"annotations": notes}, spec=spec))


def refused(uuids: list[str], places: tuple[int, ...]) -> str:
    """Why these places of a node with such GPUs cannot be held."""
    said: list[str] = []

    async def play() -> None:
        server = PodServer({"n1": uuids}, Random(0))
        scheduler = Scheduler(server, 1, len(places))
        with pytest.raises(EngineError) as error:
            async with scheduler.gpus.hold("n1", places):
                pass
        said.append(str(error.value))
        await asyncio.sleep(60.0)
        assert not server.pods
        await scheduler.close()
        server.close()

    in_virtual_time(play)
    return said[0]


def test_a_node_without_a_gpu_left_says_so_and_nothing_stays() -> None:
    assert "UnexpectedAdmissionError: no GPU" in refused([], (0,))


def test_gpus_that_a_plugin_shares_by_itself_are_not_shared_again() -> None:
    assert "time slicing" in refused(["GPU-a::0", "GPU-a::1"], (0, 1))


def test_a_node_that_does_not_answer_is_not_waited_for_without_end() -> None:
    said: list[str] = []

    async def play() -> None:
        server = PodServer({"n1": ["GPU-a"]}, Random(0), silent=True)
        scheduler = Scheduler(server, 1, 1)
        with pytest.raises(EngineError) as error:
            async with scheduler.gpus.hold("n1", (0,)):
                pass
        said.append(str(error.value))
        await scheduler.close()
        server.close()

    in_virtual_time(play)
    assert "could not be held within 30 s" in said[0]
    assert "its node has not begun it" in said[0]


def test_the_next_share_waits_for_no_new_reservation() -> None:
    made: list[int] = []

    async def play() -> None:
        server = PodServer({"n1": ["GPU-a"]}, Random(0))
        scheduler = Scheduler(server, 1, 1)
        for number in range(3):
            scheduler.start(f"w{number}", "n1", (0,), 250)
            await asyncio.gather(*scheduler.starts)
        spaces = [space for space, _ in server.pods]
        made.append(spaces.count(RESERVATIONS_NAMESPACE))
        for pod in [one for key, one in server.pods.items() if key[0] != RESERVATIONS_NAMESPACE]:
            server.remove(pod)
        await asyncio.sleep(60.0)
        assert not server.pods
        await scheduler.close()
        server.close()

    in_virtual_time(play)
    assert made == [1]
