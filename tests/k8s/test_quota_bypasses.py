"""Ways past a quota on a real API server: what that takes, the scheduler counts, or refuses.

The same are simulated without a server, with more of them, in ``unit/external_pods`` and
``unit/pods``; what admission policies refuse, in ``test_attacks``.
"""

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.binding import BindTarget, NotBound, bind
from carrel_scheduler.kube.resources import PODS
from carrel_schema.objects import Project, Quota
from k8s.cluster.control_plane import ControlPlane
from k8s.scheduling import GPU, Site, running, site

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"


@pytest.fixture
async def here(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    """Two nodes of four GPUs; ``a`` has two of them and never more."""
    async with site(plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as made:
        await made.add_nodes(2)
        await made.add_project("b", 4)
        await made.add_project("a", 2)
        project = await made.ledger.get(Project, made.project("a"))
        project.spec = msgspec.structs.replace(project.spec, limit=Quota(gpu_milli=2000))
        await made.ledger.update(project)
        yield made


def waits(here: Site, name: str, words: str) -> bool:
    """Whether a pod is told so why it waits."""
    pod = here.of("a").get(name)
    said = [] if pod is None else [one.message for one in pod.status.conditions]
    return any(words in one for one in said)


async def make(here: Site, body: dict[str, Any], **meta: Any) -> None:
    made = copy.deepcopy(body)
    made["metadata"] |= meta
    await here.client.create(PODS, made, here.namespace("a"))


async def test_absurd_amounts_wait_with_words_and_others_go_on(here: Site) -> None:
    async with running(here.scheduler()):
        for number, asked in enumerate(
            (
                {"cpu": "9223372036854775807"},
                {"memory": "9223372036854775807"},
                {"example.com/thing": "9223372036854775807"},
                {GPU: "100000000000"},
            )
        ):
            body = here.pod(f"huge-{number}")
            container = body["spec"]["containers"][0]
            container["resources"]["requests"] |= asked
            container["resources"]["limits"] |= asked
            body["spec"]["containers"] = [container, {**container, "name": "again"}]
            await make(here, body)
        await here.add_pod("a", "usual")
        await here.until(lambda: "usual" in here.bound("a"), "the pod that asks for what there is")
        names = [f"huge-{number}" for number in range(4)]
        words = "or less over all containers"
        await here.until(lambda: all(waits(here, name, words) for name in names), "words about all")
        await here.add_pod("a", "later")
        await here.until(lambda: "later" in here.bound("a"), "another pod")


async def test_sidecars_and_init_containers_are_counted(here: Site) -> None:
    async with running(here.scheduler()):
        body = here.pod("sidecar", gpus=1)
        side = {**body["spec"]["containers"][0], "name": "side", "restartPolicy": "Always"}
        body["spec"]["initContainers"] = [side]
        await make(here, body)
        await here.until(lambda: "sidecar" in here.bound("a"), "the pod with a sidecar")
        await here.add_pod("a", "third")
        await here.until(lambda: waits(here, "third", "2"), "words about the limit")
        assert "third" not in here.bound("a")
        (devices,) = [
            one.metadata.annotations["carrel.dev/devices"] for one in here.bound("a").values()
        ]
        assert len(devices.split(",")) == 2


async def test_a_group_holds_pods_of_one_user(here: Site) -> None:
    """A pod of somebody else with its name neither completes it nor comes in its place."""
    group = {"labels": {GROUP: "g"}, "annotations": {TOTAL: "2"}}

    def of(user: str) -> dict[str, Any]:
        return {**group, "labels": {**group["labels"], "carrel.dev/user": user}}

    async with running(here.scheduler()):
        await make(here, here.pod("first"), **of("ada"))
        await make(here, here.pod("foreign"), **of("grace"))
        await here.add_pod("a", "alone")
        await here.until(lambda: "alone" in here.bound("a"), "a pod of no group")
        assert set(here.bound("a")) == {"alone"}
        await here.finish(here.bound("a")["alone"])
        await make(here, here.pod("second"), **of("ada"))
        await here.until(lambda: len(here.bound("a")) == 2, "the group")
        assert set(here.bound("a")) == {"first", "second"}


async def test_labels_that_change_while_it_runs_change_nothing_after_a_restart(here: Site) -> None:
    async with running(here.scheduler()):
        await here.add_pod("a", "runs", gpus=2)
        await here.until(lambda: "runs" in here.bound("a"), "a bound pod")
    other = {"carrel.dev/project": here.project("b"), "carrel.dev/preemptible": "perhaps"}
    body = {"metadata": {"labels": other}}
    await here.client.patch(PODS, "runs", body, here.namespace("a"))
    async with running(here.scheduler("two")):
        await here.add_pod("a", "next")
        await here.until(lambda: waits(here, "next", "2"), "words about the limit")
        assert set(here.bound("a")) == {"runs"}


async def test_a_pod_that_changed_is_not_bound_by_an_older_decision(here: Site) -> None:
    """The API server itself compares the version that a binding names."""
    await here.add_pod("a", "changes")
    await here.until(lambda: "changes" in here.of("a"), "the pod")
    decided = here.of("a")["changes"]
    namespace, uid = here.namespace("a"), decided.metadata.uid
    label = {"metadata": {"labels": {"carrel.dev/project": here.project("b")}}}
    await here.client.patch(PODS, "changes", label, namespace)
    target = BindTarget(namespace, "changes", uid, f"{here.name}-0", (0,), decided)
    with pytest.raises(NotBound, match="changed since it was decided on"):
        await bind(here.client, target, 1)
    of_another = msgspec.structs.replace(decided.metadata, uid="another")
    stranger = msgspec.structs.replace(decided, metadata=of_another)
    target = BindTarget(namespace, "changes", "another", f"{here.name}-0", (0,), stranger)
    with pytest.raises(NotBound):
        await bind(here.client, target, 1)
