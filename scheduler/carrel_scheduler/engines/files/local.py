"""Files of work on one machine: folders of the engine's state folder, read in this process.

``artifacts/<workload>/`` and ``checkpoints/<workload>/`` belong to the account of the work,
``copies/<uid>/`` to the engine.
"""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from carrel_scheduler.engines.contract import EngineError, TaskId
from carrel_scheduler.engines.files import folder as on_disk
from carrel_scheduler.engines.files.contract import (
    PIECE_BYTES,
    Area,
    CommandSession,
    StoredFolder,
    TooManyFiles,
    UnknownFile,
    relative,
)
from carrel_scheduler.engines.local.engine import LocalEngine
from carrel_schema.files import MOST_FILES, StoredFile

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES)


class LocalFiles:
    """See ``contract.Files``."""

    by_project = False

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    def _path(self, folder: StoredFolder) -> Path:
        return self._engine.layout.root / folder.area / folder.uid

    async def list(self, folder: StoredFolder) -> Sequence[StoredFile]:
        """See ``Files``."""
        try:
            found = await asyncio.to_thread(on_disk.listing, str(self._path(folder)), MOST_FILES)
        except OverflowError as error:
            raise TooManyFiles from error
        except OSError as error:
            raise EngineError(f"the {folder.area} cannot be listed: {error.strerror}") from error
        return [StoredFile(path=path, size=size, modified_at=at) for path, size, at in found]

    async def read(self, folder: StoredFolder, path: str) -> AsyncGenerator[bytes, None]:
        """See ``Files``."""
        root, name = str(self._path(folder)), str(relative(path))
        try:
            descriptor = await asyncio.to_thread(on_disk.open_file, root, name)
        except OSError as error:
            raise _refusal(error, path) from error
        with os.fdopen(descriptor, "rb") as file:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                yield piece

    async def copy(self, source: StoredFolder, path: str, target: StoredFolder) -> int:
        """See ``Files``."""
        name = str(relative(path)) if path else ""
        root, place = str(self._path(source)), str(self._path(target))
        try:
            return await asyncio.to_thread(on_disk.copy, root, name, place)
        except OSError as error:
            raise _refusal(error, path) from error

    async def remove(self, folder: StoredFolder) -> None:
        """See ``Files``."""
        await asyncio.to_thread(self._engine.layout.discard, self._path(folder))

    async def folders(self, _project: str) -> Sequence[StoredFolder]:
        """See ``Files``; the folders of all projects, because their names have no project."""
        return await asyncio.to_thread(self._folders)

    def _folders(self) -> Sequence[StoredFolder]:
        return [
            StoredFolder(area, "", path.name)
            for area in Area
            for path in (self._engine.layout.root / area).iterdir()
            if not path.name.startswith(on_disk.HIDDEN)
        ]

    async def size(self, folder: StoredFolder) -> int:
        """See ``Files``."""
        return await asyncio.to_thread(on_disk.size, str(self._path(folder)))

    async def command(self, task: TaskId, command: Sequence[str]) -> CommandSession:
        """See ``Files``."""
        return await self._engine.command(task, command)


def _refusal(error: OSError, path: str) -> EngineError:
    if error.errno in _NOT_THERE or isinstance(error, FileNotFoundError):
        return UnknownFile(f"there is no file {path!r}")
    return EngineError(f"{path!r} cannot be read: {error.strerror}")
