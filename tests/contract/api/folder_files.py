"""Files of work in a folder of the test; commands beside tasks are processes in another one."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.files import folder as on_disk
from carrel_scheduler.engines.files.contract import NoFiles, StoredFolder, UnknownFile, relative
from carrel_scheduler.engines.local.terminal import LocalPipedCommand
from carrel_schema.files import MOST_FILES, StoredFile


class FolderFiles(NoFiles):
    """The file operations of an engine, in this process and without sandboxes."""

    ROOM: Final = 10_000

    def __init__(self, root: Path) -> None:
        self._root, self.work = root / "kept", root / "work"
        self.work.mkdir(parents=True)

    def write(self, area: str, uid: str, path: str, content: bytes) -> None:
        """Put a file there."""
        place = self._root / area / uid / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def _path(self, folder: StoredFolder) -> str:
        return str(self._root / folder.area / folder.uid)

    @override
    async def list(self, folder: StoredFolder) -> Sequence[StoredFile]:
        found = on_disk.listing(self._path(folder), MOST_FILES)
        return [StoredFile(path=path, size=size, modified_at=at) for path, size, at in found]

    @override
    async def read(self, folder: StoredFolder, path: str) -> AsyncGenerator[bytes, None]:
        try:
            descriptor = on_disk.open_file(self._path(folder), str(relative(path)))
        except OSError as error:
            raise UnknownFile(path) from error
        for piece in on_disk.pieces(descriptor):
            yield piece

    @override
    async def copy(self, source: StoredFolder, path: str, target: StoredFolder) -> int:
        Path(self._path(target)).parent.mkdir(parents=True, exist_ok=True)
        return on_disk.copy(self._path(source), path, self._path(target))

    @override
    async def command(self, _task: TaskId, command: Sequence[str]) -> LocalPipedCommand:
        pipe = asyncio.subprocess.PIPE
        started = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.work
        )
        return LocalPipedCommand(started)
