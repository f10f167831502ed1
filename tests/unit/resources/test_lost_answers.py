"""Writes whose answer was lost: what is there tells what became of them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from carrel_scheduler.kube.errors import Conflict, Unavailable
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.errors import LedgerUnavailable
from carrel_scheduler.ledger.resources import codec
from carrel_scheduler.ledger.resources.codec import StoredResource
from carrel_scheduler.ledger.resources.store import LOST_TRIES, KubernetesStore
from carrel_scheduler.ledger.store import VersionConflict
from carrel_schema.objects import Meta, Workload, WorkloadSpec

LOST = Unavailable(0, "Unreachable", "no answer")


class OneObject:
    """An API server with one workload, whose answers are as the test says.

    ``story``: for each patch whether it is done, and whether it is answered.
    """

    def __init__(self, workload: Workload, story: list[tuple[bool, bool]]) -> None:
        manifest = codec.manifest(workload)
        metadata = manifest["metadata"]
        metadata |= {"uid": "k", "generation": 1, "creationTimestamp": "2026-11-21T23:22:59Z"}
        self.body: dict[str, Any] = manifest
        self.version, self._story = 1, iter(story)

    def stored(self) -> StoredResource:
        self.body["metadata"]["resourceVersion"] = str(self.version)
        return msgspec.json.decode(msgspec.json.encode(self.body), type=StoredResource)

    async def get(self, _resource: Resource, *_: object) -> StoredResource:
        return self.stored()

    async def patch(
        self, _resource: Resource, _name: str, body: bytes, *_: object, **__: object
    ) -> StoredResource:
        done, answered = next(self._story)
        version, change = msgspec.json.decode(body)[:2]
        if version["value"] != str(self.version):
            raise Conflict(409, "Conflict", "the object has been modified")
        if done:
            self.body["status"] = change["value"]
            self.version += 1
        if not answered:
            raise LOST
        return self.stored()


async def no_pause(_seconds: float) -> None:
    """Nobody waits here."""


@pytest.fixture
def written() -> Callable[[list[tuple[bool, bool]]], Any]:
    async def write(story: list[tuple[bool, bool]], change: bool = False) -> Workload:
        workload = Workload(
            meta=Meta(name="n", project="p", uid="u", created_at=1.0, resource_version=1),
            spec=WorkloadSpec(user="ada"),
        )
        server: Any = OneObject(workload, story)
        store = KubernetesStore(server, clock=float, ids=str, pause=no_pause)
        workload.status.phase = "running"
        if change:
            server.version = 5
        return await store.update_status(workload)

    return write


async def test_one_that_was_done_is_not_done_again(written: Any) -> None:
    made = await written([(True, False), (True, True)])
    assert (made.meta.resource_version, made.status.phase) == (2, "running")


async def test_one_that_was_not_done_is_done(written: Any) -> None:
    made = await written([(False, False), (False, False), (True, True)])
    assert made.meta.resource_version == 2


async def test_a_conflict_stays_one(written: Any) -> None:
    with pytest.raises(VersionConflict):
        await written([(True, True)], change=True)
    with pytest.raises(VersionConflict):
        await written([(False, False), (True, True)], change=True)


async def test_a_server_that_never_answers_is_given_up(written: Any) -> None:
    with pytest.raises(LedgerUnavailable):
        await written([(False, False)] * LOST_TRIES)


async def test_what_is_not_ours_yet_changed_rather_than_went() -> None:
    """Nothing of ours lies there, and that is as it should be: it is looked at once more."""
    workload = Workload(
        meta=Meta(name="n", project="p", uid="u", created_at=1.0, resource_version=1),
        spec=WorkloadSpec(user="ada"),
    )
    server: Any = OneObject(workload, [(False, True)])
    server.body["metadata"]["labels"] = {}
    server.version = 5
    store = KubernetesStore(server, clock=float, ids=str, pause=no_pause)
    with pytest.raises(VersionConflict):
        await store.mark(workload, {})
