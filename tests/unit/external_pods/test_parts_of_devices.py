"""Devices that are parts of others: given while counters are left, counted as the part they are."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.engines.kubernetes.pods.devices import counters
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import Inventory
from carrel_scheduler.engines.kubernetes.pods.devices.types import ResourceSlice
from unit.devices.making_devices import DRIVER, cel, claim, device, device_slice, request
from unit.external_pods.test_device_claims import Devices, gpu_milli

MEMORY = {"small": "10Gi", "half": "40Gi", "gpu": "80Gi"}


def counted(kind: str, gpu: int) -> list[dict[str, Any]]:
    """What a device takes of its GPU: memory, and places of which it has its own."""
    places = {"small": (0,), "half": (0, 1, 2, 3), "gpu": tuple(range(8))}[kind]
    amounts = {"memory": {"value": MEMORY[kind]}}
    amounts |= {f"place-{number}": {"value": "1"} for number in places}
    return [{"counterSet": f"gpu-{gpu}", "counters": amounts}]


def part(name: str, kind: str, gpu: int, place: int = 0) -> dict[str, Any]:
    made = device(f"{name}-{gpu}", consumesCounters=counted(kind, gpu))
    made["name"] = f"{name}-of-{gpu}-at-{place}"
    made["attributes"]["type"] = {"string": kind}
    if kind == "small":
        taken = made["consumesCounters"][0]["counters"]
        taken[f"place-{place}"] = taken.pop("place-0")
    return made


def counter_sets(node: str, *gpus: int) -> ResourceSlice:
    amounts = {"memory": {"value": "80Gi"}}
    amounts |= {f"place-{number}": {"value": "1"} for number in range(8)}
    told = {
        "metadata": {"name": f"{node}-counters"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 2},
            "sharedCounters": [{"name": f"gpu-{gpu}", "counters": amounts} for gpu in gpus],
        },
    }
    return msgspec.convert(told, ResourceSlice)


def divided(node: str, *gpus: int) -> tuple[ResourceSlice, ResourceSlice]:
    """Each GPU as a whole, as a half, and as three smallest parts, one of them in that half."""
    devices: list[dict[str, Any]] = []
    for gpu in gpus:
        devices += [part("gpu", "gpu", gpu), part("half", "half", gpu)]
        devices += [part("small", "small", gpu, place) for place in (0, 4, 5)]
    return counter_sets(node, *gpus), device_slice(node, *devices, of=2)


def of(kind: str, count: int = 1) -> dict[str, Any]:
    selectors = cel(f'device.attributes["{DRIVER}"].type == "{kind}"')
    return request(count=count, selectors=selectors)


def world(*gpus: int, quota: int = 8) -> Devices:
    made = Devices(nodes=1, slices=divided("n0", *(gpus or (0,))))
    made.project("a", quota)
    return made


def add(one: Devices, *names_and_kinds: tuple[str, str]) -> None:
    for name, kind in names_and_kinds:
        one.request(name, of(kind))
        one.settle()


def test_parts_count_as_what_they_are() -> None:
    one = world()
    add(one, ("h", "half"), ("s", "small"))
    assert set(one.bound()) == {"h", "s"}
    assert gpu_milli(one, "a") == 625
    assert one.given("s") == ["small-of-0-at-4"]  # that at 0 is in the half


def test_a_gpu_of_which_a_part_is_given_is_given_to_nobody_until_that_is_free() -> None:
    one = world()
    add(one, ("s", "small"), ("g", "gpu"))
    assert set(one.bound()) == {"s"}
    one.see("carrel-a/s", outcome=Outcome.SUCCEEDED)
    one.deallocate("s")
    one.settle()
    assert "g" in one.bound()
    assert gpu_milli(one, "a") == 1000


def test_the_core_does_not_count_on_a_gpu_of_which_a_part_is_given() -> None:
    one = world(0, 1)
    add(one, ("s", "small"))
    assert one.devices.used_by_others("n0", one.reconciler.current.holds) == 1
    add(one, ("g", "gpu"))
    assert one.devices.used_by_others("n0", one.reconciler.current.holds) == 1  # g is no other's


def test_nothing_of_a_gpu_is_given_that_is_given_whole() -> None:
    one = world()
    add(one, ("g", "gpu"), ("s", "small"), ("h", "half"))
    assert set(one.bound()) == {"g"}
    two = world(0, 1)
    add(two, ("g", "gpu"), ("s", "small"), ("t", "small"), ("w", "gpu"))
    assert set(two.bound()) == {"g", "s", "t"}
    assert gpu_milli(two, "a") == 1250


def test_parts_that_one_pod_asks_for_together_leave_each_other_what_they_take() -> None:
    one = world()
    one.request("three", of("small", 3))
    one.settle()
    assert len(set(one.given("three"))) == 3
    assert gpu_milli(one, "a") == 375
    other = world()
    other.request("both", of("small", 3), {**of("half"), "name": "half"})
    other.settle()
    assert other.bound() == {}


def test_a_quota_holds_for_parts() -> None:
    one = world(0, 1, quota=1)
    for number in range(3):
        one.request(f"h{number}", of("half"), preemptible=False)
        one.settle()
    assert len(one.bound()) == 2
    assert gpu_milli(one, "a") == 1000


def test_parts_of_pods_of_others_are_not_given() -> None:
    one = world()
    one.put(claim("theirs", given=("half-of-0-at-0",), users=("somebody",)))
    add(one, ("g", "gpu"), ("h", "half"), ("s", "small"))
    assert set(one.bound()) == {"s"}
    assert one.given("s") == ["small-of-0-at-4"]


def test_what_was_given_is_found_again_after_a_restart() -> None:
    one = world()
    add(one, ("h", "half"))
    one.restart()
    one.project("a", 8)
    one.settle()
    assert gpu_milli(one, "a") == 500
    add(one, ("g", "gpu"), ("s", "small"))
    assert set(one.bound()) == {"h", "s"}


def test_devices_with_counters_that_are_not_there_are_left_out() -> None:
    inventory = Inventory()
    inventory.set_slice(device_slice("n0", part("gpu", "gpu", 0), device("gpu-1")))
    assert [one.id[2] for one in inventory.of_node("n0")] == ["gpu-1"]
    sets, devices = divided("n1", 0)
    inventory.set_slice(devices)
    assert not inventory.of_node("n1")  # of two slices one is there
    inventory.set_slice(sets)
    assert len(inventory.gpus("n1")) == 1


@pytest.mark.parametrize(
    ("takes", "there", "milli"),
    [
        ({}, {}, 1000),
        ({"memory": 10}, {"memory": 80, "engines": 7}, 125),
        ({"memory": 1}, {"memory": 3, "engines": 7}, 334),
        ({"engines": 1}, {"engines": 2, "cores": 4}, 250),
        ({"engines": 2, "cores": 4}, {"engines": 2, "cores": 4}, 1000),
        ({"memory": 0}, {"memory": 80}, 1),
    ],
)
def test_a_part_is_known_by_its_memory_else_by_the_mean(
    takes: dict[str, int], there: dict[str, int], milli: int
) -> None:
    def keyed(amounts: dict[str, int]) -> dict[counters.Counter, int]:
        return {("d", "p", "s", name): amount for name, amount in amounts.items()}

    assert counters.part_milli(keyed(takes), keyed(there)) == milli
