"""What is written about Kubernetes' own PodGroups: placed, why not, and that they give way."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.external_pods.scheduling_group_status import (
    SCHEDULED,
    SchedulingGroupStatuses,
    conditions_of,
    groups_of,
    outdated,
)
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole, Grouping
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.transport import KubeResponse
from unit.external_pods.world import World, grouping, pod
from unit.kube.fake_transport import FakeTransport, NoCredentials, answer, refusal

GANG = grouping("g", roles=(GangRole("", 2),))
KEY = ("carrel-a", "pair")


def world(quota: int = 4) -> World:
    made = World(nodes=1)
    made.project("a", quota)
    made.project("b", 4)
    return made


def add(one: World, *names: str, group: Grouping = GANG, gpus: int = 2) -> None:
    for name in names:
        manifest = pod(name, gpus, schedulingGroup={"podGroupName": "pair"})
        one.arrive_as(manifest, group)
    one.settle()


def said(one: World) -> dict[str, tuple[bool, str, str]]:
    return conditions_of(groups_of(one.reconciler.current)[KEY])


def test_a_group_is_scheduled_once_its_minimum_has_places() -> None:
    one = world()
    add(one, "p0")
    why = "It starts with 2 pods at once, and only 1 of them is there."
    assert said(one) == {SCHEDULED: (False, "Unschedulable", why)}
    add(one, "p1")
    done = "2 of its 2 pods have their places."
    assert said(one) == {SCHEDULED: (True, "Scheduled", done)}
    add(one, "late", gpus=1)
    assert said(one)[SCHEDULED][0]


def test_a_group_without_room_says_why() -> None:
    one = world()
    add(one, "p0", "p1", gpus=3)
    reasons = one.reconciler.current.index.workloads["g-gang"]
    reasons.why = "NoNodeFits", "No node has 3 GPUs free at once."
    assert said(one)[SCHEDULED] == (
        False,
        "Unschedulable",
        "No node has 3 GPUs free at once.",
    )


def test_a_group_of_single_pods_is_scheduled_when_all_are() -> None:
    one = world()
    add(one, "p0", group=grouping("p0"), gpus=4)
    assert said(one)[SCHEDULED][0]
    add(one, "p1", group=grouping("p1"), gpus=4)
    assert not said(one)[SCHEDULED][0]


def test_a_group_whose_project_is_not_there_says_so() -> None:
    one = world()
    add(one, "p0", group=grouping("g", "nobody", roles=(GangRole("", 2),)))
    holds, _, why = said(one)[SCHEDULED]
    assert (holds, why.partition(".")[0]) == (False, "There is no project `nobody`")


def test_a_group_that_gives_way_is_a_target_until_it_has_ended() -> None:
    one = world(quota=0)
    add(one, "p0", "p1")
    assert said(one)[SCHEDULED][0]
    one.add("q", grouping("q", "b"), gpus=4)
    one.turn()
    while one.evictions:
        one.carry_out()
    holds, reason, why = said(one)["DisruptionTarget"]
    assert (holds, reason) == (True, "PreemptionByScheduler")
    assert "`b`" in why
    for name in ("p0", "p1"):
        one.delete(f"uid-{name}")
    one.settle()
    assert KEY not in groups_of(one.reconciler.current)


def test_only_what_differs_is_written_and_a_disruption_ends() -> None:
    scheduled = {SCHEDULED: (True, "Scheduled", "all")}
    target = {"DisruptionTarget": (True, "PreemptionByScheduler", "for b")}
    assert outdated(scheduled, scheduled | target) == target
    over = {"DisruptionTarget": (False, "PreemptionByScheduler", "for b")}
    assert outdated(scheduled | target, scheduled) == over
    assert outdated(scheduled | over, scheduled) == {}


def test_a_group_that_was_scheduled_once_stays_so_where_the_api_says_it() -> None:
    placed = {SCHEDULED: (True, "Scheduled", "2 of its 2 pods have their places.")}
    waits = {SCHEDULED: (False, "Unschedulable", "It waits for quota.")}
    more = {SCHEDULED: (True, "Scheduled", "3 of its 3 pods have their places.")}
    assert outdated(placed, waits) == {}
    assert outdated(placed, more) == more
    assert outdated(waits, placed) == placed
    assert outdated(placed, waits, stays=False) == waits


def versions(*names: str) -> KubeResponse:
    return answer({"versions": [{"groupVersion": f"scheduling.k8s.io/{name}"} for name in names]})


VERSIONS = versions("v1beta1")
OF_1_36 = versions("v1alpha2")
KINDS = answer({"resources": [{"name": "podgroups", "kind": "PodGroup"}]})
PATH = "/apis/scheduling.k8s.io/v1beta1/namespaces/carrel-a/podgroups/pair"


def found(uid: str, *conditions: dict[str, str]) -> KubeResponse:
    meta = {"name": "pair", "namespace": "carrel-a", "uid": uid}
    return answer({"metadata": meta, "status": {"conditions": list(conditions)}})


class Writer:
    def __init__(self, one: World, *answers: KubeResponse) -> None:
        self.transport = FakeTransport(*answers)
        client = KubeClient(NoCredentials(), self.transport)
        self.statuses = SchedulingGroupStatuses(client, one.reconciler.current, lambda: 0.0)

    async def look(self) -> list[Any]:
        """What this look sends: the path, and what is patched."""
        before = len(self.transport.sent)
        await self.statuses.look()
        sent = self.transport.sent[before:]
        return [
            (one.path, msgspec.json.decode(one.body or b"")["status"]["conditions"])
            for one in sent
            if one.method == "PATCH"
        ]


async def test_it_is_written_once_and_the_time_is_that_of_the_change() -> None:
    one = world()
    add(one, "p0")
    writer = Writer(one, VERSIONS, KINDS, found("u"), answer({}), answer({}), answer({}))
    [(path, [first])] = await writer.look()
    assert path == f"{PATH}/status"
    assert (first["status"], first["lastTransitionTime"]) == ("False", "1970-01-01T00:00:00Z")
    assert await writer.look() == []
    one.reconciler.current.index.workloads["g-gang"].tasks[0].waits = "It waits: no claim."
    [(_, [again])] = await writer.look()
    assert "lastTransitionTime" not in again
    one.reconciler.current.index.workloads["g-gang"].tasks[0].waits = ""
    add(one, "p1")
    [(_, [last])] = await writer.look()
    assert (last["type"], last["status"], last["reason"]) == (
        "PodGroupInitiallyScheduled",
        "True",
        "Scheduled",
    )
    assert not writer.transport.answers


async def test_what_another_scheduler_wrote_before_is_not_written_again() -> None:
    one = world()
    add(one, "p0", "p1")
    message = "2 of its 2 pods have their places."
    before = {
        "type": "PodGroupInitiallyScheduled",
        "status": "True",
        "reason": "Scheduled",
        "message": message,
    }
    assert await Writer(one, VERSIONS, KINDS, found("u", before)).look() == []


async def test_kubernetes_1_36_is_told_what_holds_at_present() -> None:
    one = world()
    add(one, "p0", "p1")
    placed = {
        "type": "PodGroupScheduled",
        "status": "True",
        "reason": "Scheduled",
        "message": "2 of its 2 pods have their places.",
    }
    writer = Writer(one, OF_1_36, KINDS, found("u", placed), answer({}))
    assert await writer.look() == []
    one.delete("uid-p1")
    one.settle()
    [(_, [lost])] = await writer.look()
    assert (lost["type"], lost["status"]) == ("PodGroupScheduled", "False")


async def test_later_versions_are_told_what_has_been() -> None:
    one = world()
    add(one, "p0", "p1")
    writer = Writer(one, VERSIONS, KINDS, found("u"), answer({}))
    assert len(await writer.look()) == 1
    one.delete("uid-p1")
    one.settle()
    assert await writer.look() == []


@pytest.mark.parametrize(
    "gone", [(refusal(409, "Conflict"),), (refusal(404, "NotFound"), VERSIONS, KINDS)]
)
async def test_a_group_that_was_made_anew_is_read_anew(gone: tuple[KubeResponse, ...]) -> None:
    one = world()
    add(one, "p0")
    writer = Writer(one, VERSIONS, KINDS, found("u"), *gone, found("v"), answer({}))
    assert len(await writer.look()) == 1
    await writer.look()
    body = msgspec.json.decode(writer.transport.sent[-1].body or b"")
    assert body["metadata"] == {"uid": "v"}


async def test_a_cluster_that_was_upgraded_is_asked_for_its_versions_again() -> None:
    one = world()
    add(one, "p0")
    gone = refusal(404, "NotFound")
    writer = Writer(one, OF_1_36, KINDS, gone, VERSIONS, KINDS, found("u"), answer({}))
    assert await writer.look() == []
    [(path, [waits])] = await writer.look()
    assert (path, waits["type"]) == (f"{PATH}/status", "PodGroupInitiallyScheduled")
