"""Ends that are refused: because the pod is another one's by now, or for the moment only."""

from typing import Any, cast

import pytest

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import EngineError, TaskId
from carrel_scheduler.engines.kubernetes import eviction
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta, PodSpec, PodStatus
from carrel_scheduler.engines.kubernetes.tasks import termination as module
from carrel_scheduler.engines.kubernetes.tasks.records import Records
from carrel_scheduler.engines.kubernetes.tasks.settings import FINALIZER
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod
from carrel_scheduler.engines.kubernetes.tasks.termination import TaskTerminator
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict, NotFound
from carrel_scheduler.kube.metadata import Metadata, PartialObject
from carrel_schema import names

TASK = TaskId("u1", 0, 0)
META = ObjectMeta(
    name="u1-0-0",
    namespace="carrel-vision",
    uid="k1",
    finalizers=(FINALIZER,),
    labels={names.TASK: str(TASK)},
)
STORM = Conflict(409, "Conflict", "the object has been modified")
GRACE = 30
TRIES = 3


class Cluster:
    """One pod, of that uid; refuses the first writes."""

    def __init__(self, refusals: int, uid: str = "k1") -> None:
        self.refusals, self.uid = refusals, uid
        self.done: list[str] = []

    async def get(self, _resource: Any, name: str, namespace: str, _type: Any) -> PartialObject:
        if not self.uid:
            raise NotFound(404, "NotFound", "there is none")
        return PartialObject(Metadata(name=name, namespace=namespace, uid=self.uid))

    async def patch(self, _resource: Any, _name: str, body: Any, _space: str, **_: Any) -> None:
        self._write("deadline" if "spec" in body else "mark")

    async def delete(self, _resource: Any, _name: str, _space: str, **_: Any) -> None:
        self._write("delete")

    def _write(self, what: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise STORM
        self.done.append(what)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "PAUSES", Pauses(0.0, 0.0, TRIES))


def ender(cluster: Cluster, phase: str = "Running") -> TaskTerminator:
    client = cast("KubeClient", cluster)
    records = Records(client, float, 60.0, lambda _: None, lambda *_: None)
    spec = PodSpec(node_name="n1", termination_grace_period_seconds=GRACE)
    records.take(TaskPod(META, spec, PodStatus(phase)))
    return TaskTerminator(client, records)


@pytest.mark.parametrize(("grace", "way"), [(float(GRACE), "deadline"), (0.0, "delete")])
async def test_a_stop_is_told_although_others_write_to_the_pod(grace: float, way: str) -> None:
    cluster = Cluster(refusals=3)
    ending = ender(cluster)
    await ending.stop(TASK, grace)
    assert cluster.done == [way]
    await ending.close()


@pytest.mark.parametrize("there", ["", "k2"])
async def test_a_pod_that_is_gone_needs_no_end(there: str) -> None:
    cluster = Cluster(refusals=1, uid=there)
    await ender(cluster).stop(TASK, float(GRACE))
    assert not cluster.done


async def test_a_stop_that_is_refused_for_good_is_an_error() -> None:
    cluster = Cluster(refusals=1000)
    with pytest.raises(EngineError, match="could not be ended: 409"):
        await ender(cluster).stop(TASK, float(GRACE))


async def test_a_task_that_will_not_begin_is_given_up_once_somebody_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GIVE_UP_PAUSES", Pauses(0.0, 0.0, 3))
    cluster = Cluster(refusals=2 * (TRIES + 1))
    ending = ender(cluster)
    await ending.give_up(TASK, "its image is not there")
    assert cluster.done == ["deadline"]
    await ending.close()


async def test_what_is_forgotten_is_marked_although_others_write_to_the_pod() -> None:
    cluster = Cluster(refusals=2)
    await ender(cluster, phase="Succeeded").forget(TASK)
    assert cluster.done == ["mark"]
