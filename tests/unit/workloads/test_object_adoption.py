"""Objects that others made are taken on side by side, each in one place at a time."""

import asyncio
from typing import Any

from typing_extensions import override

from carrel_scheduler.kube.metadata import Metadata
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.ledger.resources.codec import StoredResource
from carrel_scheduler.workloads.namespaces.adoption import ObjectAdoption
from carrel_schema.objects import ObjectT, Workload

NOTHING: Any = None


class Slow(ObjectAdoption):
    """Notes what it begins; an object is done when its gate opens."""

    def __init__(self) -> None:
        super().__init__(NOTHING, NOTHING, NOTHING, lambda: 0.0)
        self.begun: list[str] = []
        self.gates: dict[str, asyncio.Event] = {"a": asyncio.Event(), "b": asyncio.Event()}

    @override
    async def take(self, kind: type[ObjectT], resource: Resource, stored: StoredResource) -> None:
        meta = stored.metadata
        self.begun.append(f"{meta.name}{meta.resource_version}")
        await self.gates[meta.name].wait()
        if meta.resource_version == "9":
            raise ValueError("it cannot be read")


def stored(name: str, version: str = "1") -> StoredResource:
    return StoredResource(metadata=Metadata(name=name, uid=name, resource_version=version))


async def passes() -> None:
    """Let everything happen that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_has_to_be_tried_for_long_holds_up_no_other() -> None:
    taking, resource = Slow(), next(iter(kinds.resources_of(Workload)))
    async with asyncio.TaskGroup() as group:
        taking.begin(group, Workload, resource, stored("a"))
        taking.begin(group, Workload, resource, stored("b"))
        await passes()
        assert taking.begun == ["a1", "b1"]
        for gate in taking.gates.values():
            gate.set()


async def test_what_is_heard_meanwhile_is_looked_at_behind_it_the_latest_only() -> None:
    taking, resource = Slow(), next(iter(kinds.resources_of(Workload)))
    async with asyncio.TaskGroup() as group:
        for version in ("1", "2", "3"):
            taking.begin(group, Workload, resource, stored("a", version))
            await passes()
        assert taking.begun == ["a1"]
        taking.gates["a"].set()
        await passes()
        assert taking.begun == ["a1", "a3"]
        taking.begin(group, Workload, resource, stored("a", "4"))
        await passes()
    assert taking.begun == ["a1", "a3", "a4"]


async def test_one_that_cannot_be_looked_at_is_set_aside_until_it_changes() -> None:
    taking, resource = Slow(), next(iter(kinds.resources_of(Workload)))
    taking.gates["a"].set()
    taking.gates["b"].set()
    async with asyncio.TaskGroup() as group:
        taking.begin(group, Workload, resource, stored("a", "9"))
        taking.begin(group, Workload, resource, stored("b"))
        await passes()
        assert [(one.source, one.key) for one in taking.quarantine.items] == [("namespace", "a")]
        taking.begin(group, Workload, resource, stored("a", "10"))
        await passes()
    assert taking.begun == ["a9", "b1", "a10"]
    assert not list(taking.quarantine.items)
