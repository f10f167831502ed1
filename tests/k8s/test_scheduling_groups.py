"""Kubernetes' own PodGroups on its own API server: placed as gangs, with conditions that say so."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.kube.resources import Resource
from k8s.cluster.control_plane import ControlPlane
from k8s.scheduling import Site, running, site
from k8s.test_scheduling import comes_to_be

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")


@pytest.fixture
async def here(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    """One node with four GPUs."""
    async with site(plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as made:
        await made.add_nodes(1)
        await made.add_project("a", 4)
        yield made


async def test_a_group_says_why_it_waits_and_that_it_is_placed(here: Site) -> None:
    space = here.namespace("a")
    body = {
        "apiVersion": GROUPS.api_version,
        "kind": GROUPS.kind,
        "metadata": {"name": "pair"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    await here.client.create(GROUPS, body, space)

    async def condition() -> dict[str, Any]:
        found = await here.client.get(GROUPS, "pair", space)
        conditions = found.get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == "PodGroupScheduled"), {})

    async with running(here.scheduler()):
        group: dict[str, Any] = {"schedulingGroup": {"podGroupName": "pair"}}
        await here.add_pod("a", "p0", **group)

        async def waits() -> bool:
            said = "only 1 of them there"
            return said in (await condition()).get("message", "")

        await comes_to_be(waits)
        first = await condition()
        assert (first["status"], first["reason"]) == ("False", "Unschedulable")
        assert here.bound("a") == {}
        await here.add_pod("a", "p1", **group)
        await here.until(lambda: len(here.bound("a")) == 2, "both pods")

        async def placed() -> bool:
            return (await condition()).get("status") == "True"

        await comes_to_be(placed)
        assert (await condition())["message"] == "2 of its 2 pods have their places."
