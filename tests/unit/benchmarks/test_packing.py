"""The packing benchmark: FGD's tables are its formula, the bound is right on small clusters."""

import random

import numpy as np
import pytest

from benchmarks.openb import MODEL, Arrivals
from benchmarks.packing import run
from benchmarks.packing_bound import Bound
from benchmarks.packing_core import CorePolicy
from benchmarks.packing_fgd import FragmentationGradient
from benchmarks.packing_peers import BestFit, PodType
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI

ONLY_X = NodeConstraint(labels=((MODEL, frozenset({"x"})),))
PODS = [
    Request(gpus=1, cpu_milli=8_000),
    Request(gpus=2, cpu_milli=20_000),
    Request(share_milli=450, cpu_milli=3_000),
    Request(share_milli=300, cpu_milli=6_000, where=ONLY_X),
    Request(cpu_milli=4_000),
]


def nodes_of(*sizes: int, model: str = "x", cpu: int = 64_000) -> list[NodeSet]:
    return [
        NodeSet(f"n{place}", size, cpu, 1 << 18, labels=((MODEL, model),))
        for place, size in enumerate(sizes)
    ]


def plain_fragment(devices: list[int], cpu: int, model: str) -> float:
    """Expected free thousandths that a pod of ``PODS``, all equally likely, cannot use."""
    lost = 0.0
    for pod in PODS:
        usable = 0
        if cpu >= pod.cpu_milli and (not pod.where.labels or model == "x"):
            if pod.share_milli:
                usable = sum(free for free in devices if free >= pod.share_milli)
            elif pod.gpus and devices.count(MILLI) >= pod.gpus:
                usable = MILLI * devices.count(MILLI)
        lost += (sum(devices) - usable) / len(PODS)
    return lost


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_the_decrease_of_the_fragment(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [*nodes_of(4, 4), *nodes_of(4, 4, model="y")]
    peer = FragmentationGradient(nodes, [(pod, 1) for pod in PODS])
    for slot in range(4):
        peer.devices[slot] = [rng.choice([0, 300, 450, 700, MILLI]) for _ in range(4)]
        peer.cpu[slot] = rng.randrange(20_000, 40_000)
        peer.moved(slot)
    slots, pod = np.arange(4), PODS[2]
    gain = peer.share_gain(PodType(pod, peer.allowed(pod)), slots, peer.devices)
    for slot in range(4):
        devices, cpu = peer.devices[slot].tolist(), int(peer.cpu[slot])
        before = plain_fragment(devices, cpu, "xxyy"[slot])
        for device, free in enumerate(devices):
            if free >= pod.share_milli:
                after = [*devices]
                after[device] -= pod.share_milli
                left = plain_fragment(after, cpu - pod.cpu_milli, "xxyy"[slot])
                assert gain[slot, device] == pytest.approx(before - left)


def test_best_fit_takes_the_fullest() -> None:
    peer = BestFit(nodes_of(4, 2))
    (place,) = peer.place([PODS[0]])
    assert place == (1, (0,), PODS[0])
    peer.finish(place)
    assert peer.devices.tolist() == [[MILLI] * 4, [MILLI, MILLI, 0, 0]]
    assert peer.place([Request(gpus=4), Request(gpus=3)])[1] is None


@pytest.mark.parametrize(
    ("pod", "percent"),
    [
        (Request(share_milli=600), 60),
        (Request(gpus=3), 75),
        (Request(share_milli=250), 100),
        (Request(gpus=1, cpu_milli=32_000), 50),
        (Request(gpus=1, memory_mib=1 << 18), 25),
    ],
)
def test_the_bound_of_equal_pods(pod: Request, percent: float) -> None:
    most = Bound(nodes_of(4, 4)).first_rejection([pod] * 100)
    assert percent <= most <= percent + 100 * max(pod.gpus * MILLI, pod.share_milli) / 8000


def test_the_bound_sees_models_in_the_order_of_arrival() -> None:
    bound = Bound([*nodes_of(4, 4), *nodes_of(2, model="y")])
    only_y = Request(gpus=1, where=NodeConstraint(labels=((MODEL, frozenset({"y"})),)))
    free = Request(gpus=1)
    assert bound.first_rejection([free] * 3 + [only_y] * 3) == pytest.approx(60)
    assert bound.first_rejection([only_y] * 2 + [free] * 8) == pytest.approx(100)


def test_a_run_counts_what_is_rejected_lost_and_given_back() -> None:
    pods = (Request(gpus=4), Request(gpus=4), Request(gpus=3), Request(gpus=1))
    full = run(CorePolicy(nodes_of(4, 4)), Arrivals(pods), 8000)
    assert (full.allocated, full.first_rejected) == (100, 100)
    assert full.lost == pytest.approx(100 * 4 / 12)
    many = (Request(gpus=4),) * 129
    until = (64,) * 64 + (10_000,) * 65
    ends = run(CorePolicy(nodes_of(4, 4)), Arrivals(many, until, counted_from=64), 8000)
    assert ends.allocated == 100
    assert ends.lost == pytest.approx(100 * 63 / 65)
