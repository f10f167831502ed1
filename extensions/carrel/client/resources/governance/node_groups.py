"""Groups of nodes and whose work may go there (administrators)."""

from collections.abc import Mapping, Sequence
from typing import Any

from carrel.client.transport import Transport, segment
from carrel_schema.governance.node_groups import NodeGroupList, NodeGroupOut


class NodeGroupMethods:
    """Read and write definitions of groups of nodes."""

    _transport: Transport

    async def list_node_groups(self) -> Sequence[NodeGroupOut]:
        """All node groups by name, with the nodes of each."""
        return (await self._transport.ask("GET", "/node-groups", NodeGroupList)).items

    async def create_node_group(self, body: Mapping[str, Any]) -> NodeGroupOut:
        """Define a group; ``body`` says ``name`` and the fields of ``NodeGroupFields``."""
        return await self._transport.ask("POST", "/node-groups", NodeGroupOut, body=body)

    async def replace_node_group(self, name: str, body: Mapping[str, Any]) -> NodeGroupOut:
        """Define a group anew; with ``expected_version`` only if it is the stored one."""
        path = f"/node-groups/{segment(name)}"
        return await self._transport.ask("PUT", path, NodeGroupOut, body=body)

    async def delete_node_group(self, name: str) -> None:
        """Remove a definition that restricts nobody's work."""
        await self._transport.send("DELETE", f"/node-groups/{segment(name)}")
