"""What a binding's answers mean, and an eviction's, without a server."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.binding import (
    BindTarget,
    NotBound,
    bind,
    devices_text,
    read_devices,
    read_slots,
)
from carrel_scheduler.engines.kubernetes.eviction import Protected, evict
from carrel_scheduler.engines.kubernetes.notifications import PodNotice
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.errors import (
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    TooManyRequests,
    Unavailable,
)

TARGET = BindTarget("carrel-a", "p", "uid-p", "n1", (0, 3))
VICTIM = PodNotice("carrel-a", "p", "uid-p", "Reclaimed", "b wants its own")


class Scripted:
    """Answers as it was told, one after the other, and notes what it was asked."""

    def __init__(
        self, answers: Sequence[KubeError | None], node: str | None = "", **meta: Any
    ) -> None:
        self._answers = list(answers)
        self._node, self._meta = node, meta
        self.asked: list[Any] = []

    async def post_sub(self, _: Any, name: str, sub: str, body: Any, namespace: str) -> bytes:
        self.asked.append((sub, body if isinstance(body, dict) else msgspec.json.decode(body)))
        answer = self._answers.pop(0)
        if answer is not None:
            raise answer
        return f"{namespace}/{name}".encode()

    async def get(self, _: Any, name: str, namespace: str, type: Any = Pod) -> Any:  # noqa: A002
        if self._node is None:
            raise NotFound(404, "NotFound", "no such pod")
        meta = {"name": name, "namespace": namespace, "uid": "uid-p", **self._meta}
        return msgspec.convert({"metadata": meta, "spec": {"nodeName": self._node}}, type)

    async def patch(self, _: Any, name: str, body: Any, *__: Any, **___: Any) -> None:
        self.asked.append((name, body))


def scripted(answers: Sequence[KubeError | None], node: str | None = "", **meta: Any) -> Any:
    """The part of a client that is used here."""
    return Scripted(answers, node, **meta)


def decided(version: str) -> BindTarget:
    """The target with the pod as it was decided on."""
    meta = {"name": "p", "namespace": "carrel-a", "uid": "uid-p", "resourceVersion": version}
    pod = msgspec.convert({"metadata": meta}, Pod)
    return dataclasses.replace(TARGET, decided=pod)


def error(kind: type[KubeError], status: int, text: str = "no") -> KubeError:
    return kind(status, kind.__name__, text)


async def test_a_binding_names_the_pod_for_ever_its_devices_and_the_epoch() -> None:
    client = scripted([None])
    await bind(client, TARGET, 7)
    (_, body) = client.asked[0]
    assert body["metadata"]["uid"] == "uid-p"
    assert body["metadata"]["annotations"] == {"carrel.dev/devices": "0,3", "carrel.dev/epoch": "7"}
    assert body["target"]["name"] == "n1"


async def test_a_lost_answer_is_asked_for() -> None:
    lost = error(Unavailable, 0)
    bound = scripted([lost], node="n1")
    await bind(bound, TARGET, 1)
    unbound = scripted([lost, None])
    await bind(unbound, TARGET, 1)
    assert len(unbound.asked) == 2


async def test_it_names_the_version_and_goes_on_when_only_its_status_changed() -> None:
    told = scripted([error(Conflict, 409), None], resourceVersion="6")
    await bind(told, decided("5"), 1)
    versions = [body["metadata"]["resourceVersion"] for _, body in told.asked]
    assert versions == ["5", "6"]


@pytest.mark.parametrize(
    "meta",
    [
        {"resourceVersion": "6", "labels": {"carrel.dev/project": "another"}},
        {"resourceVersion": "6", "annotations": {"carrel.dev/gpu-share": "0.5"}},
        {"resourceVersion": "5"},
    ],
)
async def test_a_pod_that_asks_for_something_else_is_decided_on_again(meta: Any) -> None:
    changed = scripted([error(Conflict, 409)], **meta)
    with pytest.raises(NotBound) as refused:
        await bind(changed, decided("5"), 1)
    assert not refused.value.final
    assert len(changed.asked) == 1


@pytest.mark.parametrize(
    ("answer", "node", "final", "fenced"),
    [
        (error(Conflict, 409), "n2", True, False),
        (error(Conflict, 409), "", False, False),
        (error(Conflict, 409), None, True, False),
        (error(NotFound, 404), "", True, False),
        (error(TooManyRequests, 429), "", False, False),
        (error(Forbidden, 403), "", True, False),
        (error(Forbidden, 403, "carrel.dev/epoch is not that"), "", False, True),
        (error(Forbidden, 403, "no params found for policy"), "", False, False),
    ],
)
async def test_what_a_refusal_means(
    answer: KubeError, node: str | None, final: bool, fenced: bool
) -> None:
    with pytest.raises(NotBound) as refused:
        await bind(scripted([answer], node), decided(""), 1)
    assert (refused.value.final, refused.value.fenced) == (final, fenced)


async def test_what_an_eviction_s_answer_means() -> None:
    done = scripted([None])
    await evict(done, VICTIM, 5.0, now=lambda: 0.0)
    assert done.asked[-1][1]["status"]["conditions"][0]["message"] == VICTIM.message
    with pytest.raises(Protected):
        await evict(scripted([error(TooManyRequests, 429)]), VICTIM, 5.0, now=lambda: 0.0)
    changed = error(Conflict, 409)
    for victim in (
        scripted([error(NotFound, 404)]),
        scripted([changed], node=None),
        scripted([changed], uid="another"),
        scripted([changed], deletionTimestamp="2026-01-01T00:00:00Z"),  # told before
    ):
        await evict(victim, VICTIM, 5.0, now=lambda: 0.0)
        assert len(victim.asked) == 1
    with pytest.raises(Conflict):
        await evict(scripted([changed]), VICTIM, 5.0, now=lambda: 0.0)


def test_devices_are_read_as_they_are_written() -> None:
    for devices in ((), (0,), (1, 5, 7)):
        assert read_devices(devices_text(devices)) == devices
    assert [read_slots(text) for text in ("15", "", "-1", "0b11", "9" * 40)] == [15, 0, 0, 0, 0]
    assert read_devices(None) is None
    assert read_devices("one") is None
