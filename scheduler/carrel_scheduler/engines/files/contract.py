"""The interface to files of work: artifacts, checkpoints and copies of both; and running tasks.

Artifacts and checkpoints lie in a folder of each workload, which its tasks change as they like.
Copies are what somebody keeps beyond that: a registered model, a kept checkpoint. Nobody changes a
copy. Nothing follows a link, and what is read is a regular file of the folder's own account.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final, Protocol

import msgspec

from carrel_scheduler.engines.contract import EngineError, Stream, TaskId
from carrel_schema.files import MOST_FILES, StoredFile

PIECE_BYTES: Final = 2**18
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class Area(StrEnum):
    """Kinds of persistent folders."""

    ARTIFACTS = "artifacts"
    CHECKPOINTS = "checkpoints"
    COPIES = "copies"


class StoredFolder(msgspec.Struct, frozen=True):
    """A folder of files: ``uid`` is that of the workload, or the copy's. Raises ``ValueError``.

    ``project`` may be empty where folders of all projects lie together.
    """

    area: Area
    project: str
    uid: str

    def __post_init__(self) -> None:
        if not _UID.fullmatch(self.uid):
            raise ValueError(f"uid={self.uid!r}: letters, digits, '.', '_' and '-' are right")


class UnknownFile(EngineError):  # noqa: N818 - an outcome to tell
    """The file does not exist or may not be read."""


class TooManyFiles(EngineError):  # noqa: N818 - an outcome to tell
    """A folder has more files than are listed."""

    def __init__(self) -> None:
        super().__init__(f"the folder has more than {MOST_FILES:,} files")


def relative(path: str) -> PurePosixPath:
    """A path within a folder. Raises ``UnknownFile`` for any other."""
    found = PurePosixPath(path)
    if not found.parts or found.is_absolute() or ".." in found.parts or "\0" in path:
        raise UnknownFile(f"path={path!r}: a relative path without '..' is right")
    return found


class CommandSession(Protocol):
    """A command beside a running task, with pipes in place of a terminal.

    Its output ends when both streams are closed, or soon after the command itself has ended:
    processes that it left behind may hold them for long.

    Attributes:
        errors: the end of what it wrote to its error output and ``read`` passed over, 2 KiB.
    """

    errors: bytes

    async def read(self) -> bytes:
        """The next output, without the error stream; empty at the end."""
        ...

    async def read_piece(self) -> tuple[Stream, bytes]:
        """Next output of either stream, in the order it arrived; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write input; raises ``EngineError`` after the command's end."""
        ...

    async def end_input(self) -> None:
        """The command reads end of file."""
        ...

    async def close(self) -> int:
        """End the command if it still runs; returns its exit code."""
        ...


class Files(Protocol):
    """Reads and keeps files of work. Everything raises ``EngineError``.

    Attributes:
        by_project: folders are those of the project that was asked for, and asking takes seconds.
    """

    by_project: bool

    async def list(self, folder: StoredFolder) -> Sequence[StoredFile]:
        """List all files by path; none for a missing folder. Raises ``TooManyFiles``."""
        ...

    def read(self, folder: StoredFolder, path: str) -> AsyncGenerator[bytes, None]:
        """The content of a file. Raises ``UnknownFile`` at the first step."""
        ...

    async def copy(self, source: StoredFolder, path: str, target: StoredFolder) -> int:
        """Copy a file or a folder (empty: all) to a new folder; returns its bytes.

        The copy is there wholly or not at all. Raises ``UnknownFile``.
        """
        ...

    async def remove(self, folder: StoredFolder) -> None:
        """Remove the folder with everything in it; no error if it is missing."""
        ...

    async def folders(self, project: str) -> Sequence[StoredFolder]:
        """List the folders that may belong to the project."""
        ...

    async def size(self, folder: StoredFolder) -> int:
        """The size of all files in bytes."""
        ...

    async def command(self, task: TaskId, command: Sequence[str]) -> CommandSession:
        """Run a command as the task's user, in its folder and environment."""
        ...


class NoFiles:
    """``Files`` of an engine without tasks."""

    by_project = False

    async def list(self, _folder: StoredFolder) -> Sequence[StoredFile]:
        """None."""
        return ()

    async def read(self, folder: StoredFolder, path: str) -> AsyncGenerator[bytes, None]:
        """Refuses."""
        for piece in await self.list(folder):
            yield piece.path.encode()
        raise UnknownFile(f"there is no file {path!r}")

    async def copy(self, source: StoredFolder, path: str, _target: StoredFolder) -> int:
        """Refuses."""
        raise UnknownFile(f"there is no file {path!r} in {source.uid}")

    async def remove(self, folder: StoredFolder) -> None:
        """No effect: there are no files."""

    async def folders(self, _project: str) -> Sequence[StoredFolder]:
        """None."""
        return ()

    async def size(self, _folder: StoredFolder) -> int:
        """Return 0: nothing is stored."""
        return 0

    async def command(self, task: TaskId, _command: Sequence[str]) -> CommandSession:
        """Raises ``UnknownTask``: there are no tasks."""
        raise EngineError(f"task {task} is not running")
