"""The benchmark of listing a cluster takes in what it says it takes in."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.kubernetes_pods import pod, status
from benchmarks.kubernetes_replay import Replayer
from benchmarks.kubernetes_watch import take_in, with_changes
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.decoding import EventReader
from carrel_scheduler.kube.reflector import ChangeKind, Store


def pods(count: int) -> list[dict[str, Any]]:
    made = [{**pod(number), "status": status(number, restarts=0)} for number in range(count)]
    for number, one in enumerate(made):
        one["metadata"] |= {"uid": str(number), "resourceVersion": str(number + 1)}
    return made


def page(count: int) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": "99"}, "items": pods(count)})


def test_every_pod_is_new_at_first_and_then_a_tenth_is_changed() -> None:
    kept: Store[Pod] = Store(Pod)
    pages = [page(20)]
    assert [change.kind for change in take_in(pages, kept)] == [ChangeKind.ADDED] * 20
    changed = take_in(with_changes(pages), kept)
    assert [change.kind for change in changed] == [ChangeKind.MODIFIED] * 2
    assert changed[0].object.spec.containers[0].resources.requests["nvidia.com/gpu"] == "1"
    assert len(pages[0]) / 20 > 2_000


async def test_recorded_changes_are_replayed_again_and_again_each_in_a_version_of_its_own() -> None:
    events = [msgspec.json.encode({"type": "MODIFIED", "object": one}) + b"\n" for one in pods(2)]
    heard: list[bytes] = []

    class Wire:
        async def write(self, event: bytes) -> None:
            heard.append(event)
            if len(heard) == 5:
                raise ConnectionError

    wire: Any = Wire()
    with pytest.raises(ConnectionError):
        await Replayer(Path(), rate=1e9).replay(events, wire)
    reader = EventReader(Pod)
    read = [reader.read(event.rstrip()) for event in heard]
    assert [one.identity.uid for one in read] == ["0", "1", "0", "1", "0"]
    assert len({one.identity.version for one in read}) == 5
