"""Both clients' part for departments: rules that bind several projects together (admins)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from carrel.client.transport import Transport, segment
from carrel.models import Department

if TYPE_CHECKING:
    from carrel.client.aio import AsyncClient
    from carrel.client.loop import BackgroundLoop


class _Departments(msgspec.Struct):
    items: list[Department] = []


class Departments:
    """Of the asynchronous client."""

    _transport: Transport

    async def list_departments(self) -> list[Department]:
        """All departments by name; a project says which one it belongs to."""
        found = await self._transport.ask("GET", "/departments", _Departments)
        return sorted(found.items, key=lambda department: department.name)

    async def put_department(self, department: str, rules: Mapping[str, Any]) -> Department:
        """Make one, or give it exactly these rules: those of a project that it has, too."""
        return await self._transport.ask("PUT", _path(department), Department, body=rules)

    async def delete_department(self, department: str) -> None:
        """Remove one that no project belongs to."""
        await self._transport.send("DELETE", _path(department))


class PlainDepartments:
    """Of the synchronous client."""

    aio: "AsyncClient"
    loop: "BackgroundLoop"

    def list_departments(self) -> list[Department]:
        """All departments by name; a project says which one it belongs to."""
        return self.loop.run(self.aio.list_departments())

    def put_department(self, department: str, rules: Mapping[str, Any]) -> Department:
        """Make one, or give it exactly these rules: those of a project that it has, too."""
        return self.loop.run(self.aio.put_department(department, rules))

    def delete_department(self, department: str) -> None:
        """Remove one that no project belongs to."""
        self.loop.run(self.aio.delete_department(department))


def _path(department: str) -> str:
    return f"/departments/{segment(department)}"
