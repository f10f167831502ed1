"""Kubernetes' own PodGroups on its own API server: placed as gangs, with conditions that say so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.kube.errors import Forbidden
from carrel_scheduler.kube.resources import PODS, Resource
from k8s.cluster.control_plane import ControlPlane
from k8s.scheduling import Site, comes_to_be, running, site

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
OF_PAIR: dict[str, Any] = {"schedulingGroup": {"podGroupName": "pair"}}
UNKNOWN_CLASS = "no PriorityClass with name"
"""As the server says for a moment after a class was made."""
GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")


@pytest.fixture
async def here(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    """One node with four GPUs."""
    async with site(plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as made:
        await made.add_nodes(1)
        await made.add_project("a", 8)
        yield made


async def make_pair(here: Site, **more: Any) -> None:
    """A group of two, with more in its specification."""
    body = {
        "apiVersion": GROUPS.api_version,
        "kind": GROUPS.kind,
        "metadata": {"name": "pair"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, **more},
    }

    async def made() -> bool:
        try:
            await here.client.create(GROUPS, body, here.namespace("a"))
        except Forbidden as refusal:
            if UNKNOWN_CLASS not in refusal.message:
                raise
            return False
        return True

    await comes_to_be(made)


async def says(here: Site, status: str, words: str) -> dict[str, Any]:
    """The condition of the pair, once it says so."""
    found: dict[str, Any] = {}

    async def said() -> bool:
        group = await here.client.get(GROUPS, "pair", here.namespace("a"))
        for one in group.get("status", {}).get("conditions", ()):
            if one["type"] == "PodGroupInitiallyScheduled":
                found.update(one)
        return found.get("status") == status and words in found["message"]

    await comes_to_be(said)
    return found


def told(here: Site, name: str) -> str:
    """What a pod is told, in all of its conditions; nothing as long as it is not seen."""
    pod = here.of("a").get(name)
    return " ".join(one.message for one in pod.status.conditions) if pod else ""


async def test_a_group_says_why_it_waits_and_that_it_is_placed(here: Site) -> None:
    await make_pair(here)
    async with running(here.scheduler()):
        await here.add_pod("a", "p0", **OF_PAIR)
        waits = await says(here, "False", "only 1 of them is there")
        assert waits["reason"] == "Unschedulable"
        assert here.bound("a") == {}
        missing = "It is one of PodGroup `pair`, which starts as a whole. It waits for 1 of 2 pods"
        await here.until(lambda: missing in told(here, "p0"), "what its pod is told")
        await here.add_pod("a", "p1", **OF_PAIR)
        await here.until(lambda: len(here.bound("a")) == 2, "both pods")
        await says(here, "True", "2 of its 2 pods have their places.")


async def test_a_group_that_lost_its_places_was_scheduled_all_the_same(here: Site) -> None:
    await make_pair(here)
    async with running(here.scheduler()):
        for name in ("p0", "p1"):
            await here.add_pod("a", name, **OF_PAIR)
        placed = await says(here, "True", "2 of its 2 pods")
        await here.client.delete(PODS, "p1", here.namespace("a"), grace_seconds=0)
        await here.until(lambda: "p1" not in here.of("a"), "its end")
        await here.add_pod("a", "large", gpus=4, **OF_PAIR)
        await here.until(lambda: told(here, "large"), "a pod that knows why it waits")
        assert await says(here, "True", "") == placed


async def test_a_group_keeps_to_one_value_of_its_topology(here: Site) -> None:
    constraints = {"topology": [{"key": "kubernetes.io/hostname"}]}
    await make_pair(here, schedulingConstraints=constraints)
    await here.add_node(f"{here.name}-another")
    async with running(here.scheduler()):
        for name in ("p0", "p1"):
            await here.add_pod("a", name, gpus=3, **OF_PAIR)
        await says(here, "False", "It wants 2 tasks in one domain")
        assert here.bound("a") == {}
        await here.add_node(f"{here.name}-large", gpus=8)
        await here.until(lambda: len(here.bound("a")) == 2, "both pods")
        places = {pod.spec.node_name for pod in here.bound("a").values()}
        assert places == {f"{here.name}-large"}


PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)


@asynccontextmanager
async def priority_class(here: Site, word: str, policy: str) -> AsyncIterator[str]:
    """A class of Kubernetes with priority 80 and this policy of preemption; its name."""
    name = f"{here.name}-{word}"
    body = {"metadata": {"name": name}, "value": 80, "preemptionPolicy": policy}
    await here.client.create(PRIORITY_CLASSES, body)
    try:
        yield name
    finally:
        await here.client.delete(PRIORITY_CLASSES, name)


async def meet_a_full_node(here: Site) -> dict[str, Any]:
    """Start a pod that takes all GPUs, then add both pods of the pair; its specification."""
    await here.add_pod("a", "low", gpus=4)
    await here.until(lambda: "low" in here.bound("a"), "the first pod")
    for word in ("p0", "p1"):
        await here.add_pod("a", word, gpus=2, **OF_PAIR)
    group = await here.client.get(GROUPS, "pair", here.namespace("a"))
    return dict(group["spec"])


@pytest.mark.parametrize(("mode", "left"), [("single", {"p0", "p1"}), ("all", set())])
async def test_a_group_is_preempted_in_its_mode_of_disruption(
    here: Site, mode: str, left: set[str]
) -> None:
    await make_pair(here, disruptionMode={mode: {}})
    for name in ("p0", "p1", "p2"):
        await here.add_pod("a", name, **OF_PAIR)
    await here.until(lambda: len(here.of("a")) == 3, "the pods of the group")
    async with running(here.scheduler()):
        await here.until(lambda: len(here.bound("a")) == 3, "all three at work")
        urgent = here.pod("urgent", gpus=2)
        urgent["metadata"]["labels"] = {"carrel.dev/priority": "80"}
        await here.client.create(PODS, urgent, here.namespace("a"))
        await here.until(lambda: "urgent" in here.bound("a"), "the urgent pod")
        await here.until(lambda: here.bound("a").keys() == {"urgent", *left}, "the others' end")


async def test_the_class_of_a_group_is_its_priority(here: Site) -> None:
    async with priority_class(here, "of-groups", "PreemptLowerPriority") as name:
        await make_pair(here, priorityClassName=name)
        async with running(here.scheduler()):
            spec = await meet_a_full_node(here)
            assert spec["priority"] == 80
            await here.until(lambda: len(here.bound("a")) == 2, "both pods of the group")
            assert here.bound("a").keys() == {"p0", "p1"}


async def test_a_group_whose_class_never_preempts_waits_for_the_end_of_others(here: Site) -> None:
    """The server takes a group with the policy of its class only, and fills in the other one."""
    async with priority_class(here, "patient", "Never") as name:
        with pytest.raises(Forbidden, match="computed Never from the given PriorityClass"):
            await make_pair(here, priorityClassName=name)
        await make_pair(here, priorityClassName=name, preemptionPolicy="Never")
        async with running(here.scheduler()):
            spec = await meet_a_full_node(here)
            assert (spec["priority"], spec["preemptionPolicy"]) == (80, "Never")
            await says(here, "False", "others would be preempted for it, but not yet")
            assert here.bound("a").keys() == {"low"}
            await here.client.delete(PODS, "low", here.namespace("a"), grace_seconds=0)
            await here.until(lambda: here.bound("a").keys() == {"p0", "p1"}, "the group")


async def test_a_group_of_a_group_is_refused_with_its_field(here: Site) -> None:
    template = {"workloadName": "whole", "templateName": "part"}
    await make_pair(here, parentCompositePodGroupName="whole", workloadRef=template)
    async with running(here.scheduler()):
        await here.add_pod("a", "p0", **OF_PAIR)

        def refused() -> bool:
            return "groups of groups are not placed" in told(here, "p0")

        await here.until(refused, "a refusal")
