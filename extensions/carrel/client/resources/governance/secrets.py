"""Named secrets: written and listed; values are never read."""

from collections.abc import Mapping, Sequence

from carrel.client.transport import Transport, segment
from carrel_schema.governance.secrets import SecretList, SecretOut


class SecretMethods:
    """Write and list named secrets; ``scope`` is text as ``project/vision``."""

    _transport: Transport

    async def list_secrets(self, scope: str | None = None) -> Sequence[SecretOut]:
        """Secrets that the caller's work may use."""
        found = await self._transport.ask(
            "GET", "/secrets", SecretList, parameters={"scope": scope}
        )
        return found.items

    async def put_secret(
        self,
        name: str,
        scope: str,
        data: Mapping[str, str],
        *,
        type: str = "generic",  # noqa: A002 - the name that the API has
        description: str = "",
        keep_others: bool = False,
    ) -> SecretOut:
        """Create a secret, or replace its values."""
        body = {
            "data": dict(data),
            "type": type,
            "description": description,
            "keep_others": keep_others,
        }
        path = f"/secrets/{segment(name)}"
        return await self._transport.ask(
            "PUT", path, SecretOut, parameters={"scope": scope}, body=body
        )

    async def delete_secret(self, name: str, scope: str) -> None:
        """Remove a secret."""
        path = f"/secrets/{segment(name)}"
        await self._transport.send("DELETE", path, parameters={"scope": scope})
