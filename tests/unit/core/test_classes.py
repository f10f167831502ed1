"""Classes: equal requests share one, waiting tasks are counted, needs are told per node."""

import pytest

from carrel_scheduler.core.devices.classes import GpuForm, GpuKind, gpu_kind
from carrel_scheduler.core.requests import NodeConstraint, Request
from unit.core.clusters import cluster, node


def test_equal_requests_share_a_class_and_others_do_not() -> None:
    classes = cluster(node("a")).classes
    first = classes.intern(Request(gpus=1, cpu_milli=500))
    assert classes.intern(Request(gpus=1, cpu_milli=500)) == first
    assert classes.intern(Request(gpus=1, cpu_milli=501)) == first + 1
    assert classes.request(first) == Request(gpus=1, cpu_milli=500)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (Request(cpu_milli=1), GpuKind(GpuForm.NONE)),
        (Request(gpus=3), GpuKind(GpuForm.WHOLE, 3)),
        (Request(share_milli=250, devices=2), GpuKind(GpuForm.SHARE, 250, 2)),
        (Request(gpu_memory_mib=4096), GpuKind(GpuForm.MEMORY, 4096)),
        (Request(mig_profile="1g.10gb"), GpuKind(GpuForm.MIG, 1, 1, "1g.10gb")),
    ],
)
def test_the_form_of_a_request(request_: Request, kind: GpuKind) -> None:
    assert gpu_kind(request_) == kind


def test_the_form_does_not_depend_on_where() -> None:
    there = NodeConstraint(labels=(("zone", frozenset({"x"})),))
    assert gpu_kind(Request(gpus=2, where=there)) == gpu_kind(Request(gpus=2))


def test_waiting_counts_tell_who_came_and_who_left() -> None:
    classes = cluster(node("a")).classes
    one, other = classes.intern(Request(gpus=1)), classes.intern(Request(gpus=2))
    classes.retain(other, 2)
    classes.retain(one)
    classes.retain(one)
    assert classes.take_changed() == [other, one]
    assert classes.take_changed() == []
    classes.release(one)
    assert classes.take_changed() == []
    classes.release(one)
    assert classes.take_changed() == [one]
    assert classes.waiting == [0, 2]


def test_more_releases_than_tasks_are_refused() -> None:
    classes = cluster(node("a")).classes
    cls = classes.intern(Request(gpus=1))
    classes.retain(cls)
    with pytest.raises(ValueError, match="2 released, 1 waiting"):
        classes.release(cls, 2)
    assert classes.waiting == [1]


def test_what_a_task_takes_of_a_node() -> None:
    world = cluster(
        node("a", gpu_memory_mib=80_000),
        node("m", mig_model="A100-80GB", gpu_memory_mib=80_000),
        node("u"),
    )
    classes, nodes = world.classes, world.nodes

    def shares(request: Request) -> list[int]:
        cls = classes.intern(request)
        return [classes.share_on(cls, nodes, nodes.slot(name)) for name in "amu"]

    assert shares(Request(gpus=2)) == [1000, 1000, 1000]
    assert shares(Request(share_milli=300)) == [300, 0, 300]
    assert shares(Request(gpu_memory_mib=20_100)) == [260, 500, 0]
    assert shares(Request(mig_profile="1g.10gb")) == [0, 125, 0]
    assert shares(Request(cpu_milli=1)) == [0, 0, 0]
    assert classes.takes_gpu(classes.intern(Request(mig_profile="1g.10gb")))
    assert not classes.takes_gpu(classes.intern(Request(cpu_milli=1)))


def test_host_amounts_reach_to_the_last_row_asked_for() -> None:
    world = cluster(node("a", extended=(("licence", 4), ("nic", 2))))
    classes = world.classes
    assert classes.host(classes.intern(Request(cpu_milli=5, memory_mib=7))) == (5, 7)
    assert classes.host(classes.intern(Request(extended=(("nic", 1),)))) == (0, 0, 0, 1)


def test_what_counts_before_there_is_a_place() -> None:
    world = cluster(node("a", gpu_memory_mib=40_000), node("b", gpu_memory_mib=80_000))
    classes = world.classes

    def amounts(request: Request) -> tuple[int, int, int]:
        return classes.amounts(classes.intern(request))

    assert amounts(Request(gpus=2, cpu_milli=3, memory_mib=4)) == (2000, 3, 4)
    assert amounts(Request(share_milli=300, devices=2)) == (600, 0, 0)
    assert amounts(Request(gpu_memory_mib=20_000)) == (500, 0, 0)
    assert amounts(Request(gpu_memory_mib=90_000)) == (1000, 0, 0)
