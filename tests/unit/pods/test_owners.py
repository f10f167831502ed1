"""Owners of pods are looked up, believed for a while, and asked for again."""

import asyncio
from typing import Any

import pytest

from unit.pods.making import pod
from unit.pods.owners import PYTORCH, World, pytorch_pod, roles


def test_a_kind_that_nobody_knows_does_not_hide_what_it_made() -> None:
    world = World()
    study = world.add("example.org/v1/Study", "study")
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH, owner=study)
    assert world.group(pytorch_pod(job, "worker")).grouping.name == "ddp"
    assert world.group(pod("odd", owner=study)).grouping.kind == "Pod"


def test_an_owner_that_is_gone_leaves_its_pods_to_themselves() -> None:
    world = World()
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)
    world.objects.clear()
    found = world.group(pytorch_pod(job, "worker"))
    assert (found.grouping.is_gang, found.grouping.name) == (False, "ddp")
    world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)
    assert world.group(pytorch_pod(job, "worker")).grouping.is_gang


def test_an_object_of_the_same_name_is_not_the_owner() -> None:
    world = World()
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)
    assert not world.group(pytorch_pod({**job, "uid": "another"}, "worker")).grouping.is_gang


def test_an_owner_that_changed_is_read_again_when_told() -> None:
    world = World()
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)
    world.group(pytorch_pod(job, "worker"))
    more = {"pytorchReplicaSpecs": {"Worker": {"replicas": 7}}}
    world.add("kubeflow.org/v1/PyTorchJob", "ddp", more)
    assert roles(world.group(pytorch_pod(job, "worker"))) == {"master": 1, "worker": 3}
    world.grouper.forget("uid-ddp")
    assert roles(world.group(pytorch_pod(job, "worker"))) == {"worker": 7}


def test_an_owner_is_believed_for_a_minute() -> None:
    world = World()
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)
    for now, times in ((100.0, 1), (159.0, 1), (161.0, 2), (220.0, 2)):
        world.now = now
        world.group(pytorch_pod(job, "worker"))
        assert len(world.asked) == times


def test_owners_that_say_odd_things_say_nothing() -> None:
    odd: list[Any] = [None, 3, "x", [], {"Worker": None}, {"Worker": {"replicas": "many"}}]
    for number, specs in enumerate(odd):
        world = World()
        job = world.add("kubeflow.org/v1/TFJob", f"tf-{number}", {"tfReplicaSpecs": specs})
        assert not world.group(pytorch_pod(job, "worker")).grouping.is_gang


def test_what_cannot_be_looked_up_is_asked_for_again() -> None:
    world = World()
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)
    world.down = True
    for _ in range(2):
        with pytest.raises(ConnectionError):
            world.group(pytorch_pod(job, "worker"))
    assert len(world.asked) == 2


def test_what_was_true_a_minute_ago_is_better_than_nothing() -> None:
    world = World()
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)
    before = world.group(pytorch_pod(job, "worker"))
    world.now, world.down = 1000.0, True
    assert world.group(pytorch_pod(job, "worker")) == before
    with pytest.raises(ConnectionError):
        world.group(pytorch_pod({**job, "name": "other", "uid": "other"}, "worker"))


def test_equal_questions_at_the_same_time_are_asked_once() -> None:
    world = World()
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)

    async def all_at_once() -> None:
        await asyncio.gather(
            *(world.grouper.group(pytorch_pod(job, role)) for role in ("master", "worker"))
        )

    asyncio.run(all_at_once())
    assert world.asked == ["ddp"]
