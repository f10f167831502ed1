"""Pods that others made, placed on the real API server: quotas, reclaim, jobs, reasons."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.kubernetes.external_pods.workload_pods import (
    DisruptionAnnouncer,
    TaskPodIndex,
)
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.errors import NotFound
from carrel_scheduler.kube.resources import JOBS, NODES, PODS, REPLICA_SETS, Resource
from carrel_schema.objects import ReasonInfo
from k8s.cluster.control_plane import ControlPlane
from k8s.scheduling import Site, comes_to_be, running, site

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")


@pytest.fixture
async def here(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    async with site(kubeconfig, tmp_path) as made:
        await made.add_nodes(2)
        await made.add_project("a", 4)
        await made.add_project("b", 4)
        yield made


def job(here: Site, name: str, pods: int) -> dict[str, Any]:
    """A job that does not count it as a failure to have given way."""
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": here.template(1)},
            "podFailurePolicy": {"rules": [disrupted]},
        },
    }


def replicas(here: Site, name: str, pods: int) -> dict[str, Any]:
    """Pods that are made again at once, and that may be told to give way."""
    labels = {"set": name, "carrel.dev/priority": "train"}
    spec = here.template(1, restartPolicy="Always")
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


async def test_pods_of_two_projects_under_quota_with_reclaim(here: Site) -> None:
    async with running(here.scheduler()):
        await here.client.create(REPLICA_SETS, replicas(here, "borrows", 8), here.namespace("a"))
        await here.until(lambda: len(here.bound("a")) == 8, "eight bound pods of the set")
        await here.check_devices()
        for number in range(4):
            await here.add_pod("b", f"own-{number}")
        await here.until(lambda: len(here.bound("b")) == 4, "four bound pods of the other")
        await here.until(lambda: len(here.bound("a")) == 4, "four pods that go on")
        await here.check_devices()
        # the set's controller made them again: they wait, and come back when there is room
        await here.until(lambda: len(here.of("a")) == 8, "four pods that wait")
        for pod in here.bound("b").values():
            await here.finish(pod)
        await here.until(lambda: len(here.bound("a")) == 8, "all of the set at work again")
        await here.check_devices()
    rows = await here.ledger.transitions(projects=[here.project("a")])
    assert sum(1 for row in rows if row.to_phase == "running" and row.gpu_milli == 1000) >= 12


async def test_a_victim_is_told_why_and_a_waiting_pod_too(here: Site) -> None:
    here.silent |= set(here.nodes)  # what ends stays to be looked at
    async with running(here.scheduler()):
        for number in range(8):
            await here.add_pod("a", f"a-{number}")
        await here.until(lambda: len(here.bound("a")) == 8, "a full cluster")
        for number in range(5):
            await here.add_pod("b", f"b-{number}")

        def told() -> list[str]:
            return [
                condition.message
                for pod in here.of("a").values()
                for condition in pod.status.conditions
                if condition.type == "DisruptionTarget" and here.project("b") in condition.message
            ]

        await here.until(lambda: len(told()) == 4, "four victims that were told")

        def waits() -> list[str]:
            return [
                condition.message
                for pod in here.of("b").values()
                for condition in pod.status.conditions
                if condition.type == "PodScheduled" and condition.status == "False"
            ]

        await here.until(lambda: len(waits()) == 5, "five pods that know why they wait")
        path = f"/apis/events.k8s.io/v1/namespaces/{here.namespace('b')}/events"

        async def event() -> bool:
            return b"carrel.dev/scheduler" in await here.client.raw("GET", path)

        await comes_to_be(event)  # it is told after the condition
    here.silent.clear()


async def test_a_budget_protects_a_pod_of_others(here: Site) -> None:
    async with running(here.scheduler()):
        for number in range(8):
            await here.add_pod("a", f"a-{number}")
        await here.until(lambda: len(here.bound("a")) == 8, "a full cluster")
        budget = {
            "metadata": {"name": "all"},
            "spec": {"minAvailable": 8, "selector": {}},
        }
        await here.client.create(BUDGETS, budget, here.namespace("a"))

        async def protected() -> bool:
            told = await here.client.get(BUDGETS, "all", here.namespace("a"))
            return bool(told.get("status", {}).get("currentHealthy") == 8)

        await comes_to_be(protected)
        await here.add_pod("b", "b-0")

        def promised() -> bool:
            return any(pod.status.nominated_node_name for pod in here.of("b").values())

        await here.until(promised, "a node that was promised")
        assert len(here.bound("a")) == 8
        await here.client.delete(BUDGETS, "all", here.namespace("a"))
        await here.until(lambda: here.bound("b"), "the place that it waited for")


async def test_gangs_start_whole_and_gates_hold(here: Site) -> None:
    async with running(here.scheduler()):
        indexed = job(here, "gang", 6)
        indexed["spec"]["completionMode"] = "Indexed"
        for number in range(3):
            await here.add_pod("b", f"b-{number}")
        await here.until(lambda: len(here.bound("b")) == 3, "three bound pods")
        await here.add_pod("b", "gated", schedulingGates=[{"name": "carrel.test/hold"}])
        await here.client.create(JOBS, indexed, here.namespace("a"))
        await here.until(lambda: len(here.of("a")) == 6, "six pods of the gang")
        await here.add_pod("b", "after")
        await here.until(lambda: "after" in here.bound("b"), "a fourth pod")
        assert not here.bound("a")
        for pod in list(here.bound("b").values())[:2]:
            await here.finish(pod)
        await here.until(lambda: len(here.bound("a")) == 6, "the whole gang")
        assert "gated" not in here.bound("b")
        await here.check_devices()


async def test_a_restarted_scheduler_finds_what_runs(here: Site) -> None:
    async with running(here.scheduler()):
        for number in range(5):
            await here.add_pod("a", f"a-{number}")
        await here.until(lambda: len(here.bound("a")) == 5, "five bound pods")
    for number in range(5):
        await here.add_pod("b", f"b-{number}")
    async with running(here.scheduler("two")):
        await here.until(lambda: len(here.bound("b")) == 4, "four bound pods")
        await here.until(lambda: len(here.bound("a")) == 4, "one that gave way")
        await here.check_devices()


async def test_a_node_that_is_deleted_frees_its_pods_places_elsewhere(here: Site) -> None:
    async with running(here.scheduler()):
        # not of a job: its controller waits for long before it makes pods that failed again
        await here.client.create(REPLICA_SETS, replicas(here, "moves", 3), here.namespace("a"))
        await here.until(lambda: len(here.bound("a")) == 3, "three bound pods")
        node = next(iter(here.bound("a").values())).spec.node_name
        del here.nodes[node]
        await here.client.delete(NODES, node)
        for pod in here.bound("a").values():  # as the cluster's collector of pods does
            meta = pod.metadata
            if pod.spec.node_name == node:
                with suppress(NotFound):  # it may have come first
                    await here.client.delete(PODS, meta.name, meta.namespace, grace_seconds=0)

        def elsewhere() -> bool:
            places = [pod.spec.node_name for pod in here.bound("a").values()]
            return len(places) == 3 and node not in places

        await here.until(elsewhere, "three pods on the other node")
        await here.check_devices()


async def test_a_pod_of_ours_says_who_needs_its_room(here: Site) -> None:
    body = here.pod("mine")
    body["metadata"]["labels"] = {"carrel.dev/task": "uid-0-0"}
    namespace, told = here.namespace("a"), "Preempted by a member of `b`."
    pods = TaskPodIndex()
    pods.see(await here.client.create(PODS, body, namespace, type=Pod))
    why = ReasonInfo(
        token="Reclaimed",
        sentence="Preempted by `secret` of `b`.",
        data={"sentence_without_names": told},
    )
    announcing = DisruptionAnnouncer(here.client, pods, time.time, here.name)
    await announcing.announce(TaskId("uid", 0, 0), why)
    await announcing.announce(TaskId("another", 0, 0), why)  # has no pod: nothing to say it on
    pod = await here.client.get(PODS, "mine", namespace, type=Pod)
    (condition,) = [one for one in pod.status.conditions if one.type == "DisruptionTarget"]
    assert (condition.status, condition.reason, condition.message) == ("True", "Reclaimed", told)
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    events = json.loads(await here.client.raw("GET", path))["items"]
    assert [(one["reason"], one["note"]) for one in events] == [("Reclaimed", told)]
