"""Pods that come before their group: refused in words, and taken in when it is there."""

from typing import Any

import pytest
from typing_extensions import override

from carrel_scheduler.engines.kubernetes.external_pods import watchers
from carrel_scheduler.engines.kubernetes.external_pods.messages import ExternalPodSeen
from carrel_scheduler.engines.kubernetes.external_pods.reading import OwnerLookup, PodReader
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole
from carrel_scheduler.engines.kubernetes.pods.types import Owner
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.reflector import SYNCED, ChangeKind, WatchChange
from unit.external_pods.test_watching import Heard, watched
from unit.external_pods.world import World, grouping, seen_as
from unit.kube.fake_transport import FakeTransport, NoCredentials, answer, refusal
from unit.pods.making import pod
from unit.pods.owners import World as Groups

GROUP = {"schedulingPolicy": {"gang": {"minCount": 2}}}


class Later(Groups):
    """A group that is there from the third question on."""

    @override
    async def get(self, owner: Owner, namespace: str) -> Any:
        self.now += 100
        if len(self.asked) == 2:
            self.add("scheduling.k8s.io/v1beta1/PodGroup", "g", GROUP)
        return await super().get(owner, namespace)


async def test_a_pod_is_read_again_until_its_group_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchers, "AGAIN_SECONDS", 0.001)
    waiting = pod(schedulerName="carrel", schedulingGroup={"podGroupName": "g"})
    heard = Heard([WatchChange(ChangeKind.ADDED, waiting), SYNCED])
    first, second = await watched(heard, PodReader(Later().grouper), 2)
    assert isinstance(first, ExternalPodSeen)
    assert "a PodGroup of `scheduling.k8s.io`" in first.pod.refusal
    assert (second.pod.refusal, second.pod.grouping.roles) == ("", (GangRole("", 2),))


@pytest.mark.parametrize("namespace_is_a_project", [True, False])
def test_a_refused_pod_is_told_why_and_joins_its_gang_later(
    *, namespace_is_a_project: bool
) -> None:
    world = World()
    world.project("a", 6)
    nameless = "a" if namespace_is_a_project else "carrel-a"
    whole = grouping("g", "a", roles=(GangRole("", 2),))
    for name in ("g0", "g1"):
        world.add(name, grouping(f"uid-{name}", nameless))
        uid = f"uid-{name}"
        world.pods[uid].pod = seen_as(world.pods[uid].pod, refusal="Its group is not there.")
        world.news[-1] = ExternalPodSeen(world.pods[uid].pod)
    world.settle()
    assert set(world.told.values()) == {"Its group is not there."}
    assert world.bound() == {}
    world.see("uid-g0", grouping=whole, refusal="")
    world.settle()
    assert world.bound() == {}
    world.see("uid-g1", grouping=whole, refusal="")
    world.settle()
    assert set(world.bound()) == {"g0", "g1"}


KINDS = [
    {"name": "podgroups", "kind": "PodGroup"},
    {"name": "podgroups/status", "kind": "PodGroup"},
]
VERSIONS = [{"groupVersion": f"scheduling.k8s.io/{name}"} for name in ("v1", "v1beta1", "v1alpha3")]
FOUND = answer({"kind": "PodGroup", "metadata": {"name": "g", "uid": "u"}, "spec": GROUP})
DISCOVERED = (
    answer({"versions": VERSIONS}),
    answer({"resources": [{"name": "priorityclasses", "kind": "PriorityClass"}]}),
    answer({"resources": KINDS}),
)
WANTED = Owner("scheduling.k8s.io/", "PodGroup", "g", "")


def paths(transport: FakeTransport) -> list[str]:
    return [request.path for request in transport.sent]


async def test_the_first_version_that_has_the_kind_is_found_once() -> None:
    transport = FakeTransport(*DISCOVERED, FOUND, FOUND)
    look_up = OwnerLookup(KubeClient(NoCredentials(), transport))
    for _ in range(2):
        found = await look_up(WANTED, "lab")
        assert found is not None
        assert found.metadata.uid == "u"
    where = "/apis/scheduling.k8s.io/v1beta1/namespaces/lab/podgroups/g"
    assert paths(transport) == [
        "/apis/scheduling.k8s.io",
        "/apis/scheduling.k8s.io/v1",
        "/apis/scheduling.k8s.io/v1beta1",
        where,
        where,
    ]


async def test_a_version_that_is_not_served_any_more_is_looked_up_again() -> None:
    newer = (
        answer({"versions": [{"groupVersion": "scheduling.k8s.io/v1"}]}),
        answer({"resources": KINDS}),
    )
    transport = FakeTransport(*DISCOVERED, refusal(404, "NotFound"), *newer, FOUND)
    look_up = OwnerLookup(KubeClient(NoCredentials(), transport))
    assert await look_up(WANTED, "lab") is None
    assert await look_up(WANTED, "lab") is not None
    assert paths(transport)[-1] == "/apis/scheduling.k8s.io/v1/namespaces/lab/podgroups/g"


@pytest.mark.parametrize(
    "answers",
    [
        (refusal(404, "NotFound"),),
        (answer({"versions": VERSIONS[:1]}), answer({"resources": []})),
        (*DISCOVERED, refusal(403, "Forbidden")),
    ],
)
async def test_an_api_that_is_not_there_is_no_error(answers: tuple[Any, ...]) -> None:
    look_up = OwnerLookup(KubeClient(NoCredentials(), FakeTransport(*answers)))
    assert await look_up(WANTED, "lab") is None
