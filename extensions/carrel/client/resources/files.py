"""Files of work: artifacts and checkpoints, and those of running tasks in both directions."""

import asyncio
import posixpath
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from carrel.client import forwarding
from carrel.client.resources.workloads import workload_path
from carrel.client.transport import Transport, segment
from carrel.errors import ApiError, BadSetting
from carrel_schema.files import (
    PIECE_BYTES,
    Artifacts,
    CheckpointList,
    CopyList,
    StoredCopy,
    StoredFile,
)
from carrel_schema.wire import WorkloadOut

if TYPE_CHECKING:
    import aiohttp

NEW = ".carrel-new-"


class FileMethods:
    """List what work keeps, and copy files from and to it."""

    _transport: Transport

    async def artifacts(self, project: str, name: str) -> Artifacts:
        """The files that a workload keeps beyond its end."""
        path = workload_path(project, name, "artifacts")
        return await self._transport.ask("GET", path, Artifacts)

    async def checkpoints(self, project: str, name: str) -> CheckpointList:
        """The checkpoints of a workload, oldest first."""
        path = workload_path(project, name, "checkpoints")
        return await self._transport.ask("GET", path, CheckpointList)

    async def keep_checkpoint(
        self,
        project: str,
        name: str,
        checkpoint: str,
        *,
        as_name: str | None = None,
        description: str = "",
    ) -> StoredCopy:
        """Keep a copy of a checkpoint (its name or step) beyond its work."""
        path = workload_path(project, name, f"checkpoints/{segment(checkpoint)}/keep")
        body = {"name": as_name, "description": description}
        return await self._transport.ask("POST", path, StoredCopy, body=body)

    async def kept_checkpoints(self, project: str) -> Sequence[StoredCopy]:
        """The checkpoints that are kept in a project beyond their jobs."""
        path = f"/projects/{segment(project)}/checkpoints"
        return (await self._transport.ask("GET", path, CopyList)).items

    async def delete_kept_checkpoint(self, project: str, name: str) -> None:
        """Keep a checkpoint no longer."""
        path = f"/projects/{segment(project)}/checkpoints/{segment(name)}"
        await self._transport.send("DELETE", path)

    async def fetch(
        self, project: str, name: str, path: str = "", to: str | Path = ".", *, index: int = 0
    ) -> list[Path]:
        """Copy a file or folder of a workload to this machine.

        While it runs that is one of its task's, relative to the folder it works in; afterwards one
        of its artifacts (by default all of them).

        Args:
            project: the workload's project.
            name: the workload's name.
            path: of the file or folder.
            to: the new file or folder, or a folder that is there and takes it.
            index: of the task.

        Returns:
            The files that were written.

        Raises:
            ApiError: when there is no such file.
            BadSetting: when it cannot be written here.
        """
        job = await self._transport.ask("GET", workload_path(project, name), WorkloadOut)
        target = Path(to)
        try:
            if job.status.phase == "running" and path:
                return await self._fetch_running(project, name, path, target, index)
            files = (await self.artifacts(project, name)).items
            source = workload_path(project, name, "artifacts/content")
            return await download(self._transport, source, files, path, target)
        except (OSError, tarfile.TarError) as error:
            raise BadSetting(f"{target} cannot be written: {error}") from error

    async def _fetch_running(
        self, project: str, name: str, path: str, target: Path, index: int
    ) -> list[Path]:
        parameters = {"path": path, "index": index or None}
        place = workload_path(project, name, "files")
        with tempfile.TemporaryFile() as archive:
            async with self._transport.stream(place, parameters=parameters) as response:
                async for piece in response.content.iter_any():
                    archive.write(piece)
            archive.seek(0)
            return await asyncio.to_thread(_unpack, archive, target)

    async def put(
        self, project: str, name: str, source: str | Path, path: str = "", *, index: int = 0
    ) -> None:
        """Copy a file or folder into a running task.

        ``path`` is relative to the folder that the task works in; one that is empty or ends with a
        slash takes the source under its own name. A file is there wholly or as before.

        Raises ``BadSetting`` for a source that cannot be read.
        """
        place, local = workload_path(project, name, "files"), Path(source)
        target = posixpath.join(path, local.resolve().name) if path[-1:] in ("", "/") else path
        try:
            for file in sorted(local.rglob("*")) if local.is_dir() else [local]:
                if file.is_dir():
                    continue
                inside = file.relative_to(local).as_posix()
                whole = target if inside == "." else posixpath.join(target, inside)
                with file.open("rb") as content:
                    await self._put_file(place, content, {"path": whole, "index": index or None})
        except OSError as error:
            raise BadSetting(f"{source} cannot be read: {error.strerror}") from error

    async def forward(
        self,
        project: str,
        name: str,
        remote: int,
        local: int = 0,
        *,
        index: int = 0,
        opened: Callable[[int], object] = lambda _port: None,
    ) -> None:
        """Listen on a loopback port and pass its connections on to a port of a running task.

        Goes on until it is cancelled; ``opened`` is called with the port that is listened on.

        Raises ``ApiError`` when refused, ``BadSetting`` for a port that cannot be had.
        """
        path = workload_path(project, name, "forward")
        parameters = {"port": remote, "index": index or None}

        async def connect() -> "aiohttp.ClientWebSocketResponse":
            return await self._transport.websocket(path, parameters=parameters)

        await (await connect()).close()  # a refusal is told before anybody connects
        await forwarding.listen(local, connect, opened)

    async def _put_file(self, place: str, content: BinaryIO, where: Mapping[str, Any]) -> None:
        offset, piece = 0, await asyncio.to_thread(content.read, PIECE_BYTES)
        while True:
            following = await asyncio.to_thread(content.read, PIECE_BYTES)
            parameters = {**where, "offset": offset, "more": bool(following)}
            await self._transport.send(
                "PUT", place, parameters=parameters, body=piece, repeatable=offset == 0
            )
            if not following:
                return
            offset, piece = offset + len(piece), following


async def download(
    transport: Transport, source: str, files: Sequence[StoredFile], path: str, target: Path
) -> list[Path]:
    """Get a file or folder (empty: everything) of those that are kept.

    Args:
        transport: to the service.
        source: where the content of each file is read.
        files: all there are.
        path: of what is wanted.
        target: the new file or folder, or a folder that is there and takes it.

    Raises ``ApiError`` where there is nothing of that path.
    """
    wanted = path.strip("/")
    chosen = [one for one in files if not wanted or _lies_in(one.path, wanted)]
    if not chosen:
        known = f", such as `{files[0].path}`" if files else "; it keeps none"
        raise ApiError(404, "no_such_file", detail=f"There is no file `{path}` kept{known}.")
    written = []
    for one, place in _places(chosen, wanted, target):
        place.parent.mkdir(parents=True, exist_ok=True)
        async with _whole(place) as out:
            query = {"path": one.path}
            async with transport.stream(source, parameters=query) as response:
                async for piece in response.content.iter_any():
                    out.write(piece)
        written.append(place)
    return written


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _places(
    files: Sequence[StoredFile], wanted: str, target: Path
) -> Iterator[tuple[StoredFile, Path]]:
    """The target of each file. Raises ``BadSetting`` for a path that leads elsewhere."""
    base = target / PurePosixPath(wanted).name if wanted and target.is_dir() else target
    for one in files:
        path = PurePosixPath(one.path)
        if path.is_absolute() or ".." in path.parts:
            raise BadSetting(f"the server names a file {one.path!r}, which lies elsewhere")
        inside = path.relative_to(wanted) if wanted else path
        yield one, base / inside if inside.parts else base


@asynccontextmanager
async def _whole(place: Path) -> AsyncIterator[IO[bytes]]:
    """A file that appears under its name once it is complete."""
    with tempfile.NamedTemporaryFile(dir=place.parent, prefix=NEW, delete=False) as out:
        fresh = Path(out.name)
        try:
            yield out.file
            fresh.chmod(0o644)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    fresh.replace(place)


def _unpack(archive: Any, target: Path) -> list[Path]:
    """Put the one entry of an archive into its place; links out of it and devices are refused."""
    above = target if target.is_dir() else target.parent
    with tempfile.TemporaryDirectory(dir=above, prefix=NEW) as folder:
        with tarfile.open(fileobj=archive) as opened:
            opened.extractall(folder, filter="data")
        entries = list(Path(folder).iterdir())
        whole = len(entries) != 1
        place = target / entries[0].name if target.is_dir() and not whole else target
        for entry in [Path(folder)] if whole else entries:
            if entry.is_dir():
                shutil.copytree(entry, place, dirs_exist_ok=True, symlinks=True)
            else:
                entry.replace(place)
    return (
        sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
    )
