"""Stores of definitions of node groups, for the API.

On one machine they lie in the ledger, and the reconciler is told of each change; on a cluster they
are custom resources, which it watches (``engines.kubernetes.node_group_store``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
from typing_extensions import override

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.node_groups import NodeGroupsKnown
from carrel_scheduler.ledger.scoped_records import ScopedRecord, ScopedRecords
from carrel_schema.groups import NodeGroupSpec
from carrel_schema.scopes import PLATFORM

KIND: Final = "node-group"


@dataclass(frozen=True, slots=True)
class StoredNodeGroup:
    """A stored node group; ``version`` changes with every write."""

    name: str
    spec: NodeGroupSpec
    version: str


class NodeGroupStore(Protocol):
    """Reads and writes node groups; raises errors of the ledger."""

    async def all(self) -> Sequence[StoredNodeGroup]:
        """All node groups, by name."""
        ...

    async def create(self, name: str, spec: NodeGroupSpec, actor: str) -> StoredNodeGroup:
        """Define one. Raises ``ObjectExists``."""
        ...

    async def replace(
        self, name: str, spec: NodeGroupSpec, actor: str, version: str | None = None
    ) -> StoredNodeGroup:
        """Replace a node group of this version. Raises ``ObjectNotFound``, ``VersionConflict``."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a node group. Raises ``ObjectNotFound``."""
        ...


class LedgerNodeGroups(NodeGroupStore):
    """The node groups of one machine.

    Args:
        records: of the ledger.
        deliver: takes what the reconciler is to know.
    """

    def __init__(self, records: ScopedRecords, deliver: Callable[[ExternalEvents], None]) -> None:
        self._records, self._deliver = records, deliver

    async def tell(self) -> None:
        """Send all node groups to the reconciler."""
        known = {one.name: one.spec for one in await self.all()}
        self._deliver(ExternalEvents((NodeGroupsKnown(known),)))

    @override
    async def all(self) -> Sequence[StoredNodeGroup]:
        return [_stored(one) for one in await self._records.list(KIND, scopes=[PLATFORM])]

    @override
    async def create(self, name: str, spec: NodeGroupSpec, actor: str) -> StoredNodeGroup:
        return await self._put(name, spec, actor, 0)

    @override
    async def replace(
        self, name: str, spec: NodeGroupSpec, actor: str, version: str | None = None
    ) -> StoredNodeGroup:
        found = await self._records.get(KIND, PLATFORM, name)
        asked = int(version) if version and version.isdecimal() else found.version
        return await self._put(name, spec, actor, asked)

    @override
    async def delete(self, name: str) -> None:
        await self._records.remove(KIND, PLATFORM, name)
        await self.tell()

    async def _put(
        self, name: str, spec: NodeGroupSpec, actor: str, version: int
    ) -> StoredNodeGroup:
        content = msgspec.Raw(msgspec.json.encode(spec))
        record = ScopedRecord(kind=KIND, scope=PLATFORM, name=name, content=content)
        made = await self._records.put(record, actor=actor, expected_version=version)
        await self.tell()
        return _stored(made)


def _stored(record: ScopedRecord) -> StoredNodeGroup:
    spec = msgspec.json.decode(record.content, type=NodeGroupSpec)
    return StoredNodeGroup(record.name, spec, str(record.version))
