"""Several schedulers: one leads, and one that wrongly believes to lead binds nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from carrel_scheduler.engines.kubernetes import leadership
from carrel_scheduler.engines.kubernetes.binding import BindTarget, NotBound, bind
from carrel_scheduler.engines.kubernetes.external_pods.executor import BindingFenced
from carrel_scheduler.engines.kubernetes.leadership import LeadershipLost
from carrel_scheduler.kube.client import PatchKind
from carrel_scheduler.kube.resources import LEASES
from carrel_schema.names import LEASE
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import make_namespace
from k8s.scheduling import TIMEOUT_SECONDS, Site, running, site

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
MANIFEST: Final = Path(__file__).parents[2] / "deploy" / "kubernetes" / "fencing.yaml"
_GROUP: Final = "admissionregistration.k8s.io"
FENCED: Final = "carrel-fenced"
LONG_SECONDS: Final = 60.0
"""Of a lease that is to be let go, not to lapse."""


@pytest.fixture(scope="module")
def fence(plane: ControlPlane) -> None:
    """The manifest as it is deployed, for the namespaces of these tests only.

    Once for all of them: the API server needs a while to follow another policy's parameters.
    """
    make_namespace(plane, FENCED, **{FENCED: "yes"})
    policy, binding = yaml.safe_load_all(MANIFEST.read_text())
    policy["metadata"]["name"] = binding["metadata"]["name"] = FENCED
    binding["spec"]["policyName"] = FENCED
    binding["spec"]["paramRef"]["namespace"] = FENCED
    binding["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": {FENCED: "yes"}}}
    plane.ask("POST", f"/apis/{_GROUP}/v1/validatingadmissionpolicies", policy)
    plane.ask("POST", f"/apis/{_GROUP}/v1/validatingadmissionpolicybindings", binding)


@pytest.fixture(autouse=True)
def _bindings_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may be slow to follow the lease."""
    monkeypatch.setattr(leadership, "SEEN_SECONDS", TIMEOUT_SECONDS)


@pytest.fixture
async def here(plane: ControlPlane, fence: None, tmp_path: Path) -> AsyncIterator[Site]:
    async with site(plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as made:
        made.labels = {FENCED: "yes"}
        await made.add_nodes(2)
        await made.add_project("a", 8)
        yield made


async def test_one_leads_and_the_next_takes_over_with_a_new_epoch(here: Site) -> None:
    first, second = (
        here.leader(FENCED, name, duration=LONG_SECONDS) for name in ("first", "second")
    )
    epoch = await first.acquire()
    assert await first.fenced()
    waiting = asyncio.create_task(second.acquire())
    done, _ = await asyncio.wait([waiting], timeout=1.0)
    assert not done
    await first.release()
    assert await waiting == epoch + 1
    assert await second.fenced()
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(first.keep(), 60)
    await second.release()


async def test_a_lease_that_is_not_renewed_lapses_and_its_holder_ends(here: Site) -> None:
    first, second = here.leader(FENCED, "first"), here.leader(FENCED, "second")
    epoch = await first.acquire()
    assert await second.acquire() == epoch + 1  # nobody renewed
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(first.keep(), 60)
    await second.release()


async def test_a_binding_of_another_epoch_is_refused(here: Site) -> None:
    leader = here.leader(FENCED, "one")
    epoch = await leader.acquire()
    assert await leader.fenced()
    await here.add_pod("a", "p")
    pod = await here.until(lambda: here.of("a").get("p"), "the pod")
    node = next(iter(here.nodes))
    target = BindTarget(here.namespace("a"), "p", pod.metadata.uid, node, (0,), pod)
    with pytest.raises(NotBound) as refused:
        await bind(here.client, target, epoch - 1)
    assert refused.value.fenced
    await bind(here.client, target, epoch)
    await bind(here.client, target, epoch)  # asked again: it is as wanted
    with pytest.raises(NotBound) as taken:
        await bind(here.client, BindTarget(*_but_node(target, "elsewhere")), epoch)
    assert taken.value.final
    assert not taken.value.fenced
    await leader.release()


def _but_node(target: BindTarget, node: str) -> tuple[Any, ...]:
    return target.namespace, target.name, target.uid, node, target.devices


async def test_a_scheduler_that_wrongly_believes_to_lead_ends_and_gives_nothing_twice(
    here: Site,
) -> None:
    """The lease is taken away behind its back; it does not even get to renew."""
    first = here.scheduler("first", here.leader(FENCED, "first"))
    work = asyncio.create_task(first.run(asyncio.Event(), asyncio.Event()))
    for number in range(3):
        await here.add_pod("a", f"first-{number}")
    await here.until(lambda: len(here.bound("a")) == 3, "three bound pods")
    usurped = {"spec": {"holderIdentity": "usurper", "leaseTransitions": 1041}}
    await here.client.patch(LEASES, LEASE, usurped, FENCED, how=PatchKind.MERGE)
    for number in range(3):
        await here.add_pod("a", f"late-{number}")
    with pytest.raises(BaseExceptionGroup) as group:
        await asyncio.wait_for(work, TIMEOUT_SECONDS)
    assert group.value.subgroup((BindingFenced, LeadershipLost)) is not None
    second = here.leader(FENCED, "second")
    async with running(here.scheduler("second", second)):
        assert second.epoch == 1042
        for number in range(4):
            await here.add_pod("a", f"more-{number}")
        await here.until(lambda: len(here.bound("a")) == 8, "a full cluster")
        await here.check_devices()
