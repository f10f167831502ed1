"""Starts whose binding is refused: by an earlier binding, or for the moment only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    EngineError,
    NotOnThisNode,
    TaskId,
    TaskSpec,
)
from carrel_scheduler.engines.kubernetes import binding
from carrel_scheduler.engines.kubernetes.pods.storage_types import (
    ClaimStatus,
    PersistentVolumeClaim,
)
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta, Pod, PodSpec
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import HeldGpu
from carrel_scheduler.engines.kubernetes.shared_gpus.reservations import HeldGpus
from carrel_scheduler.engines.kubernetes.tasks import starting
from carrel_scheduler.engines.kubernetes.tasks.records import Records
from carrel_scheduler.engines.kubernetes.tasks.settings import FINALIZER, PodSettings
from carrel_scheduler.engines.kubernetes.tasks.starting import (
    Starter,
)
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    Unavailable,
)
from carrel_scheduler.kube.resources import PODS
from carrel_schema import names

TASK = TaskSpec(
    id=TaskId("u1", 0, 0),
    name="digits",
    project="vision",
    user="ada",
    node="n1",
    command=("true",),
    cpu_milli=500,
    memory_mib=64,
)
TRIES = 3
NO_ACCOUNT = Forbidden(
    403,
    "Forbidden",
    'pods "u1-0-0" is forbidden: error looking up service account carrel-vision/default: '
    'serviceaccount "default" not found',
)
CHANGED = Conflict(409, "Conflict", "the object has been modified")


class Cluster:
    """One pod; answers as the test says, one after the other, and then as told."""

    def __init__(self, *refusals: KubeError, bound_to: str = "") -> None:
        self.refusals, self.bound_to = list(refusals), bound_to
        self.there: list[KubeError] = []
        self.forbidden: list[KubeError] = []
        self.asked: list[str] = []

    def pod(self, kind: type[TaskPod] | type[Pod] = TaskPod) -> Any:
        meta = ObjectMeta(
            name="u1-0-0",
            namespace="carrel-vision",
            uid="k1",
            finalizers=(FINALIZER,),
            labels={names.TASK: "u1-0-0"},
        )
        return kind(meta, PodSpec(node_name=self.bound_to))

    async def create(self, resource: Any, *_: Any) -> Any:
        self.asked.append("create")
        if self.forbidden:
            raise self.forbidden.pop(0)
        if self.there:
            raise AlreadyExists(409, "AlreadyExists", "it is there")
        return self.pod() if resource is PODS else None

    async def get(self, resource: Any, *_: Any, type: Any = None) -> Any:  # noqa: A002 - its name
        if resource is not PODS:
            return PersistentVolumeClaim(status=ClaimStatus("Bound"))
        if len(self.there) > 1:
            raise self.there.pop()
        return self.pod(type or TaskPod)

    async def post_sub(self, *_: Any) -> None:
        self.asked.append("bind")
        if self.refusals:
            raise self.refusals.pop(0)

    async def patch(self, *_: Any, **__: Any) -> None:
        self.asked.append("patch")

    async def delete(self, *_: Any, **__: Any) -> None:
        self.asked.append("delete")


async def start(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the task there, without a pause."""
    monkeypatch.setattr(binding, "CONFLICT_PAUSES", Pauses(0.0, 0.0, TRIES))
    monkeypatch.setattr(starting, "ACCOUNT_PAUSES", Pauses(0.0, 0.0, TRIES))
    client = cast("KubeClient", cluster)
    records = Records(client, float, 60.0, lambda _: None, lambda *_: None)

    async def owner(_: TaskSpec) -> None:
        return None

    await Starter(client, PodSettings(image="trainer:1"), records, lambda: 1, owner).start(TASK)


async def test_a_refusal_for_the_moment_is_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(CHANGED, CHANGED)
    await start(cluster, monkeypatch)
    assert cluster.asked == ["create", "bind", "bind", "bind"]


async def test_a_pod_that_is_bound_was_started_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AlreadyStarted):
        await start(Cluster(CHANGED, bound_to="n1"), monkeypatch)


async def test_what_is_never_bound_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(*[CHANGED] * (TRIES + 1))
    with pytest.raises(EngineError, match="written by others"):
        await start(cluster, monkeypatch)
    assert cluster.asked[-2:] == ["delete", "patch"]


async def test_a_pod_that_may_run_is_asked_for_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = Unavailable(0, "Unreachable", "no answer")
    cluster = Cluster(bound_to="n1")
    cluster.there = [lost, lost, lost]
    with pytest.raises(AlreadyStarted):
        await start(cluster, monkeypatch)
    assert cluster.asked == ["create"]


async def test_the_account_of_a_new_namespace_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    cluster.forbidden = [NO_ACCOUNT, NO_ACCOUNT]
    await start(cluster, monkeypatch)
    assert cluster.asked == ["create", "create", "create", "bind"]


async def test_an_account_that_never_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.forbidden = [NO_ACCOUNT] * (TRIES + 1)
    with pytest.raises(EngineError, match="service account"):
        await start(cluster, monkeypatch)


async def test_what_a_policy_forbids_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    cluster.forbidden = [Forbidden(403, "Forbidden", "violates PodSecurity")]
    with pytest.raises(EngineError, match="PodSecurity"):
        await start(cluster, monkeypatch)
    assert cluster.asked == ["create"]


class Holding:
    """Holds one GPU for whoever starts, and makes an instance of it, or refuses."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.asked: list[tuple[Any, ...]] = []
        self.left: HeldGpus | None = None

    @asynccontextmanager
    async def hold(self, node: str, devices: tuple[int, ...]) -> AsyncIterator[HeldGpus]:
        self.asked.append((node, devices))
        held = HeldGpus((HeldGpu("r1", "GPU-a", 80_000),), ("GPU-a",))
        yield held
        self.left = held

    async def take(
        self, node: str, gpu: HeldGpu, profile: str, slots: int, _pod: ObjectMeta | None = None
    ) -> str:
        self.asked.append((node, gpu.uuid, profile, slots))
        if self.refusal:
            raise NotOnThisNode(self.refusal)
        return "MIG-1"


async def start_with_instance(cluster: Cluster, holding: Holding) -> None:
    client = cast("KubeClient", cluster)
    records = Records(client, float, 60.0, lambda _: None, lambda *_: None)

    async def owner(_: TaskSpec) -> None:
        return None

    both: Any = holding
    task = msgspec.structs.replace(TASK, mig_profile="1g.10gb", mig_slots=4, devices=(1,))
    settings = PodSettings(image="trainer:1")
    await Starter(client, settings, records, lambda: 1, owner, both, instances=both).start(task)


async def test_a_pod_is_bound_once_its_instance_is_made_and_is_told_which() -> None:
    cluster, holding = Cluster(), Holding()
    bodies: list[bytes] = []

    async def post_sub(*given: Any) -> None:
        bodies.append(given[3])

    cluster.post_sub = post_sub  # type: ignore[method-assign]
    await start_with_instance(cluster, holding)
    assert holding.asked == [("n1", (1,)), ("n1", "GPU-a", "1g.10gb", 4)]
    [body] = bodies
    notes = msgspec.json.decode(body)["metadata"]["annotations"]
    assert notes[names.GPU_UUIDS] == "MIG-1"
    assert notes[names.GPU_RESERVATIONS] == "r1"
    assert notes[names.DEVICES] == "1"
    assert names.GPU_MEMORY_MIB not in notes
    assert holding.left is not None
    assert (holding.left.visible, holding.left.pod is None) == (("MIG-1",), False)


async def test_a_pod_whose_instance_cannot_be_made_is_taken_back() -> None:
    cluster = Cluster()
    with pytest.raises(NotOnThisNode, match="in use"):
        await start_with_instance(cluster, Holding("it is in use"))
    assert "bind" not in cluster.asked
    assert cluster.asked[-2:] == ["delete", "patch"]
