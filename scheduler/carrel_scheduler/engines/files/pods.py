"""Files of work on a cluster: commands in the container of a task that runs.

What ended work left lies in the claim of its project, which no pod shows any more: an administrator
reads it there. So far that is said and not done: nothing is listed, copied or removed then.
"""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from carrel_scheduler.engines.contract import EngineError, Stream, TaskId
from carrel_scheduler.engines.files import folder as on_disk
from carrel_scheduler.engines.files.contract import (
    Area,
    StoredFolder,
    TooManyFiles,
    UnknownFile,
    relative,
)
from carrel_scheduler.engines.kubernetes.tasks import settings as at
from carrel_scheduler.engines.kubernetes.tasks.engine import KubernetesEngine
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.execution import Channel, RemoteCommand
from carrel_schema.files import MOST_FILES, StoredFile

PROGRAM: Final = Path(on_disk.__file__).read_text(encoding="utf-8")
PLACES: Final = {Area.ARTIFACTS: at.ARTIFACTS, Area.CHECKPOINTS: at.CHECKPOINTS}
MOST_ERRORS_BYTES: Final = 2048
WRITE_BYTES: Final = 2**16
UNSEEN: Final = 128 + 9


class PodCommand:
    """A command in a container; see ``contract.CommandSession``."""

    def __init__(self, remote: RemoteCommand) -> None:
        self._remote = remote
        self.errors = b""

    async def read(self) -> bytes:
        """The next output, without the error stream; empty at the end."""
        while True:
            stream, data = await self.read_piece()
            if stream is Stream.OUTPUT or not data:
                return data
            self.errors = (self.errors + data)[-MOST_ERRORS_BYTES:]

    async def read_piece(self) -> tuple[Stream, bytes]:
        """Next output of either stream; empty at the end. The kubelet also sends empty pieces."""
        while True:
            try:
                piece = await self._remote.read()
            except KubeError as error:
                self.errors = str(error).encode()[-MOST_ERRORS_BYTES:]
                return Stream.OUTPUT, b""
            if piece is None:
                return Stream.OUTPUT, b""
            if piece.data:
                is_output = piece.channel is Channel.OUTPUT
                return Stream.OUTPUT if is_output else Stream.ERRORS, piece.data

    async def write(self, data: bytes) -> None:
        """Write input. Raises ``EngineError`` after the end."""
        try:
            for start in range(0, len(data), WRITE_BYTES):
                await self._remote.write(data[start : start + WRITE_BYTES])
        except KubeError as error:
            raise EngineError("the command takes no more input") from error

    async def end_input(self) -> None:
        """Close the command's standard input; no effect once it has ended."""
        try:
            await self._remote.close_input()
        except KubeError as error:
            self.errors = self.errors or str(error).encode()

    async def close(self) -> int:
        """Hang up; the exit code, that of a killed one where its end was not seen."""
        code = await self._remote.close()
        return UNSEEN if code is None else code


class PodFiles:
    """See ``contract.Files``."""

    by_project = True

    def __init__(self, engine: KubernetesEngine) -> None:
        self._engine = engine

    async def list(self, folder: StoredFolder) -> Sequence[StoredFile]:
        """See ``Files``."""
        answer = b"".join([one async for one in self._run(folder, "list", str(MOST_FILES))])
        found = msgspec.json.decode(answer, type=list[tuple[str, int, float]])
        return [StoredFile(path=path, size=size, modified_at=time) for path, size, time in found]

    async def read(self, folder: StoredFolder, path: str) -> AsyncGenerator[bytes, None]:
        """See ``Files``."""
        async for piece in self._run(folder, "read", str(relative(path)), path=path):
            yield piece

    async def copy(self, source: StoredFolder, path: str, _target: StoredFolder) -> int:
        """Refuses: the claim's folder of copies is shown to no task for writing."""
        self._refuse(source, f"{path or 'all of it'} cannot be kept from here")

    async def remove(self, folder: StoredFolder) -> None:
        """Refuses."""
        self._refuse(folder, "it cannot be removed from here")

    async def folders(self, _project: str) -> Sequence[StoredFolder]:
        """See ``Files``: empty, nothing is removed in the namespaces."""
        return ()

    async def size(self, folder: StoredFolder) -> int:
        """See ``Files``."""
        return sum(file.size for file in await self.list(folder))

    async def command(self, task: TaskId, command: Sequence[str]) -> PodCommand:
        """See ``Files``."""
        return PodCommand(await self._engine.run(task, command))

    async def _run(
        self, folder: StoredFolder, verb: str, argument: str, *, path: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """The answer of the program to a verb, in the first running task of the work."""
        task = self._engine.running_task(folder.uid)
        if task is None or folder.area not in PLACES:
            self._refuse(folder, "they are shown while the work runs")
        command = ["python3", "-c", PROGRAM, verb, PLACES[folder.area], argument]
        session = await self.command(task, command)
        try:
            while piece := await session.read():
                yield piece
        finally:
            code = await session.close()
        if code == on_disk.MISSING:
            raise UnknownFile(f"there is no file {path!r}")
        if code == on_disk.TOO_MANY:
            raise TooManyFiles
        if code:
            said = session.errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise EngineError(f"the image of the task has to have python3: {said}")

    @staticmethod
    def _refuse(folder: StoredFolder, what: str) -> NoReturn:
        raise EngineError(
            f"on a cluster {what}; the files of ended work lie in the project's storage claim, "
            f"folder {folder.area}/{folder.uid}, where an administrator reads them"
        )
