"""The code of jobs: chunks of files and lists of folders, by project and by SHA-256.

``<folder>/<project>/chunks/<sha256>`` and ``.../folders/<sha256>``. Each file appears whole or not
at all and is never changed. What work needs stays; the rest stays for a week, so that the next
submission need not send it again, or until the room of its project is used up.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from carrel_schema import code
from carrel_schema.code import CodeFolder

PRIVATE: Final = 0o700
KEPT_SECONDS: Final = 7 * 86_400.0
UPLOAD_SECONDS: Final = 3600.0
"""Seconds for which an uploaded chunk may wait for its folder's list."""
MOST_PROJECT_BYTES: Final = 10 * 2**30
NEW: Final = ".new-"


class QuotaUsed(Exception):  # noqa: N818 - an outcome to tell
    """A project's room for code is used up."""


class CodeStore:
    """Code by project.

    Args:
        folder: made with mode 0700 when the first chunk comes.
        most_bytes: of each project.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_PROJECT_BYTES) -> None:
        self._folder, self._most = folder, most_bytes
        self._used: dict[str, int] = {}

    async def missing(self, project: str, folder: CodeFolder) -> list[str]:
        """The chunks of a folder that have to be sent; the others are kept for longer."""
        return await asyncio.to_thread(self._missing, project, folder)

    async def put_chunk(self, project: str, content: bytes) -> None:
        """Keep a chunk. Raises ``QuotaUsed``."""
        await asyncio.to_thread(self._put, project, "chunks", content)

    async def put_folder(self, project: str, folder: CodeFolder) -> str:
        """Store a folder's list whose chunks all exist; returns its digest."""
        return await asyncio.to_thread(self._put, project, "folders", folder.encode())

    async def get_folder(self, project: str, digest: str) -> bytes | None:
        """A folder's list; ``None`` if it is missing."""
        return await asyncio.to_thread(self._read, self._path(project, "folders", digest))

    async def keep_folder(self, project: str, digest: str) -> bool:
        """Extend the retention of a folder's list; returns whether it exists."""
        return await asyncio.to_thread(_touch, self._path(project, "folders", digest))

    async def get_chunks(self, project: str, digests: Sequence[str]) -> bytes | None:
        """The concatenated chunks; ``None`` if one is missing."""
        return await asyncio.to_thread(self._read_all, project, digests)

    async def sweep(self, needed: Mapping[str, Collection[str]], now: float) -> None:
        """Remove content that no work needs and that was not requested for a week.

        Args:
            needed: digests of folders by project; of projects that are not among these, nothing is
                needed.
            now: epoch seconds, as the clock of the files.
        """
        await asyncio.to_thread(self._sweep, needed, now)

    def _path(self, project: str, part: str, digest: str) -> Path:
        """The path of content. Digests from unchecked specifications may be any text."""
        if not code.is_digest(digest):
            digest = "none"
        return self._folder / project / part / digest

    def _missing(self, project: str, folder: CodeFolder) -> list[str]:
        chunks = ((digest, self._path(project, "chunks", digest)) for digest in folder.chunks)
        return [digest for digest, path in chunks if not _touch(path)]

    def _put(self, project: str, part: str, content: bytes) -> str:
        digest = code.digest_of(content)
        path = self._path(project, part, digest)
        if _touch(path):
            return digest
        used = self._used.get(project)
        if used is None:
            used = sum(file.stat().st_size for file in _files(self._folder / project))
        if used + len(content) > self._most:
            raise QuotaUsed(project)
        for above in (self._folder, self._folder / project, path.parent):
            above.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=NEW)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(fresh).replace(path)
        except BaseException:
            Path(fresh).unlink(missing_ok=True)
            raise
        self._used[project] = used + len(content)
        return digest

    def _read_all(self, project: str, digests: Sequence[str]) -> bytes | None:
        found = [self._read(self._path(project, "chunks", digest)) for digest in digests]
        return None if None in found else b"".join(part for part in found if part is not None)

    @staticmethod
    def _read(path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def _sweep(self, needed: Mapping[str, Collection[str]], now: float) -> None:
        self._used.clear()
        for project in list(self._folder.glob("*")):
            self._sweep_project(project, needed.get(project.name, ()), now)
            if project.name not in needed and not any(_files(project)):
                shutil.rmtree(project, ignore_errors=True)

    def _sweep_project(self, project: Path, needed: Collection[str], now: float) -> None:
        kept: set[str] = set()
        for path in list(_files(project / "folders")):
            if path.name in needed or path.stat().st_mtime > now - KEPT_SECONDS:
                kept |= _chunks_of(self._read(path))
            else:
                path.unlink(missing_ok=True)
        for path in list(_files(project / "chunks")):
            if path.name not in kept and path.stat().st_mtime <= now - UPLOAD_SECONDS:
                path.unlink(missing_ok=True)


def _touch(path: Path) -> bool:
    """Set a file's time to now; returns whether it exists."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _chunks_of(content: bytes | None) -> set[str]:
    """The chunks of a list; none of one that is damaged, so that it can be sent again."""
    try:
        return set() if content is None else set(code.decode(content).chunks)
    except code.UnusableFolder:
        return set()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
