"""Assets: environments, compute resources and data sources."""

from collections.abc import Mapping, Sequence
from typing import Any

from carrel.client.transport import Transport, segment
from carrel_schema.governance.assets import AssetList, AssetOut


class AssetMethods:
    """Read and write assets; ``kind`` is ``environment``, ``compute`` or ``data-source``."""

    _transport: Transport

    async def list_assets(self, scope: str | None = None) -> Sequence[AssetOut]:
        """Assets that the caller may use."""
        found = await self._transport.ask("GET", "/assets", AssetList, parameters={"scope": scope})
        return found.items

    async def get_asset(self, kind: str, name: str, scope: str) -> AssetOut:
        """Read an asset."""
        path = f"/assets/{segment(kind)}/{segment(name)}"
        return await self._transport.ask("GET", path, AssetOut, parameters={"scope": scope})

    async def put_asset(
        self, kind: str, name: str, scope: str, body: Mapping[str, Any]
    ) -> AssetOut:
        """Make an asset, or replace it: ``fields`` of a request, or ``data``."""
        path, parameters = f"/assets/{segment(kind)}/{segment(name)}", {"scope": scope}
        return await self._transport.ask("PUT", path, AssetOut, parameters=parameters, body=body)

    async def delete_asset(self, kind: str, name: str, scope: str) -> None:
        """Remove an asset."""
        path = f"/assets/{segment(kind)}/{segment(name)}"
        await self._transport.send("DELETE", path, parameters={"scope": scope})
