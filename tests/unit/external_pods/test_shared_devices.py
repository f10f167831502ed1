"""Devices that several claims share: a part of each, never more than there is, counted as parts."""

import random
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.engines.kubernetes.pods.devices.types import ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.quantities import nanos
from unit.devices.making_devices import claim, device, device_slice, request
from unit.external_pods.test_device_claims import Devices, gpu_milli

GIB = 2**30


def gpu(name: str, memory: str = "80Gi", **policy: Any) -> dict[str, Any]:
    made = device(name, memory=memory, allowMultipleAllocations=True)
    if policy:
        made["capacity"]["memory"]["requestPolicy"] = policy
    return made


class Sharing(Devices):
    """What is left of devices is looked at after each binding, whoever counts how."""

    @override
    def check_devices(self) -> None:
        used: dict[tuple[str, str], int] = {}
        shares: list[str] = []
        for known in self.claims.values():
            for one in () if known.status.allocation is None else _results(known):
                place = (one.pool, one.device)
                used[place] = used.get(place, 0) + nanos(one.consumed_capacity["memory"])
                shares.append(one.share_id)
        assert len(shares) == len(set(shares))
        for place, amount in used.items():
            assert amount <= nanos("80Gi"), place

    def memory(self, name: str) -> list[str]:
        """What a claim consumes, in GiB."""
        found = _results(self.claims[name])
        return [f"{int(one.consumed_capacity['memory']) / GIB:g}" for one in found]


def _results(known: ResourceClaim) -> Any:
    assert known.status.allocation is not None
    return known.status.allocation.devices.results


def of(memory: str, **more: Any) -> dict[str, Any]:
    return request(capacity={"requests": {"memory": memory}}, **more)


def world(*devices: dict[str, Any], quota: int = 8, nodes: int = 1) -> Sharing:
    offered = devices or (gpu("gpu-0"),)
    made = Sharing(nodes=nodes, slices=tuple(device_slice(f"n{n}", *offered) for n in range(nodes)))
    made.project("a", quota)
    return made


def add(one: Sharing, *names_and_memory: tuple[str, str]) -> None:
    for name, memory in names_and_memory:
        one.request(name, of(memory))
        one.settle()


def running(one: Sharing) -> set[str]:
    return {real.pod.ref.name for real in one.pods.values() if real.alive}


def end(one: Sharing, name: str) -> None:
    one.see(f"carrel-a/{name}", outcome=Outcome.SUCCEEDED)
    one.deallocate(name)
    one.settle()


def test_parts_of_a_device_are_given_until_no_more_is_left() -> None:
    one = world()
    add(one, ("a", "30Gi"), ("b", "40Gi"), ("c", "11Gi"))
    assert running(one) == {"a", "b"}
    assert (one.memory("a"), one.memory("b")) == (["30"], ["40"])
    assert gpu_milli(one, "a") == 375 + 500
    end(one, "a")
    assert running(one) == {"b", "c"}
    assert gpu_milli(one, "a") == 500 + 138


def test_who_asks_for_no_amount_gets_what_the_device_says() -> None:
    one = world(gpu("gpu-0", default="20Gi"))
    for number in range(5):
        one.request(f"p{number}")
        one.settle()
    assert len(running(one)) == 4
    whole = world()
    whole.request("all")
    whole.settle()
    add(whole, ("more", "1Gi"))
    assert (running(whole), gpu_milli(whole, "a")) == ({"all"}, 1000)


def test_a_quota_holds_for_parts_of_shared_devices() -> None:
    one = world(gpu("gpu-0"), gpu("gpu-1"), quota=1)
    for number in range(4):
        one.request(f"p{number}", of("40Gi"), preemptible=False)
        one.settle()
    assert (len(running(one)), gpu_milli(one, "a")) == (2, 1000)


def test_several_shares_of_one_pod_may_be_of_one_device_and_count_each() -> None:
    one = world()
    one.request("two", of("30Gi", count=2))
    one.settle()
    assert (one.memory("two"), one.given("two")) == (["30", "30"], ["gpu-0", "gpu-0"])
    assert gpu_milli(one, "a") == 750
    one.restart()
    one.project("a", 8)
    one.settle()
    assert gpu_milli(one, "a") == 750
    add(one, ("too-much", "21Gi"), ("fits", "20Gi"))
    assert running(one) == {"two", "fits"}


def test_of_two_devices_that_serve_the_one_is_taken_of_which_less_is_left() -> None:
    one = world(gpu("gpu-0"), gpu("gpu-1"))
    add(one, ("a", "50Gi"), ("b", "20Gi"), ("c", "80Gi"))
    assert running(one) == {"a", "b", "c"}
    assert one.given("a") == one.given("b") != one.given("c")


@pytest.mark.parametrize("told", [{"memory": "79Gi"}, {}])
def test_shares_of_pods_of_others_are_not_given(told: dict[str, str]) -> None:
    one = world()
    theirs = msgspec.to_builtins(claim("theirs", given=("gpu-0",), users=("somebody",)))
    [result] = theirs["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": "s", "consumedCapacity": told}
    one.devices.set_claim(msgspec.convert(theirs, ResourceClaim))
    add(one, ("p", "2Gi"))
    assert running(one) == set()


def test_a_device_that_is_given_whole_has_as_much_as_is_asked_for() -> None:
    one = Devices(nodes=1, slices=(device_slice("n0", device("gpu-0"), device("gpu-1")),))
    one.project("a", 8)
    for name, memory in (("p", "80Gi"), ("q", "81Gi")):
        one.request(name, of(memory))
        one.settle()
    assert (set(one.bound()), gpu_milli(one, "a")) == ({"p"}, 1000)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_nothing_is_given_beyond_what_is_there(seed: int) -> None:
    chance = random.Random(seed)
    one = world(gpu("gpu-0"), gpu("gpu-1", default="8Gi", validRange={"min": "8Gi"}), nodes=2)
    asked: dict[str, int] = {}
    for number in range(40):
        alive = sorted(running(one))
        if alive and chance.random() < 0.4:
            end(one, chance.choice(alive))
            continue
        name, memory = f"p{number}", chance.choice((4, 10, 25, 40, 80))
        asked[name] = memory
        add(one, (name, f"{memory}Gi"))
        if chance.random() < 0.1:
            one.restart()
            one.project("a", 8)
            one.settle()
        one.check_devices()
    for name in running(one):
        [consumed] = one.memory(name)
        assert float(consumed) >= asked[name]


def test_the_core_places_nothing_on_a_shared_gpu_and_shares_it_out_as_one() -> None:
    one = world(gpu("gpu-0"), gpu("gpu-1"))
    add(one, ("a", "40Gi"))
    fact = one.state.nodes.fact(one.state.nodes.slots["n0"])
    assert (fact.devices, fact.counted_milli) == (0, 2000)
    assert not one.devices.has_gpus
    assert not one.devices.serves_tasks("n0")
