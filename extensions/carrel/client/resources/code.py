"""The code of jobs: folders that are uploaded once, and afterwards only what changed."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from carrel.client.transport import Transport, segment
from carrel_schema.answers import UploadedCode

if TYPE_CHECKING:
    from carrel.client.working_folder import LocalFolder

AT_ONCE: Final = 8


class CodeMethods:
    """Upload the folders that jobs work in."""

    _transport: Transport

    async def upload_code(self, project: str, folder: str | Path) -> tuple[str, "LocalFolder"]:
        """Upload the parts of a folder that the service does not have yet.

        Returns:
            Its digest, for ``{"code": {"digest": ...}}`` of a workload, and what was sent.

        Raises:
            BadSetting: for a folder that is too large, or a file that cannot be read.
            CarrelError: when refused or unreachable.
        """
        from carrel.client.working_folder import pack  # heavy; few commands send a folder

        packed = await asyncio.to_thread(pack, Path(folder))
        return await self.send_folder(project, packed), packed

    async def send_folder(self, project: str, packed: "LocalFolder") -> str:
        """Upload what is not there yet of a listed folder; returns its digest."""
        listed = packed.listed.encode()
        while True:
            answer = await self.send_folder_list(project, listed)
            if not answer.missing:
                return answer.digest
            await self._send_chunks(project, packed, list(answer.missing))

    async def send_folder_list(self, project: str, listed: bytes) -> UploadedCode:
        """Upload a folder's list of files; answers which of their chunks have to be sent.

        The folder is there when none is missing.
        """
        return await self._transport.ask(
            "POST", _path(project), UploadedCode, body=listed, repeatable=True
        )

    async def send_chunk(self, project: str, digest: str, content: bytes) -> None:
        """Upload a chunk of a file."""
        path = f"{_path(project)}/chunks/{segment(digest)}"
        await self._transport.send("PUT", path, body=content)

    async def _send_chunks(self, project: str, packed: "LocalFolder", missing: list[str]) -> None:
        async def send() -> None:
            while missing:
                digest = missing.pop()
                content = await asyncio.to_thread(packed.read_chunk, digest)
                await self.send_chunk(project, digest, content)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE, len(missing))):
                    group.create_task(send())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors


def _path(project: str) -> str:
    return f"/projects/{segment(project)}/code"
