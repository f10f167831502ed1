"""Results that jobs handed back: one file each, opaque bytes, kept as long as the job is.

The outputs of a map are files in a folder of its own, each named by the SHA-256 of what it holds.

Nothing here looks into them. A file appears whole or not at all; the latest one counts.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o700
HALF_WRITTEN: Final = ".new-"
OUTPUTS: Final = ".outputs"
MOST_OUTPUT_BYTES: Final = 2**32


class Results:
    """Results by the uid of their workload.

    Args:
        folder: made with mode 0700 when the first result comes.
        most_output_bytes: of all outputs of one map.
    """

    def __init__(self, folder: Path, most_output_bytes: int = MOST_OUTPUT_BYTES) -> None:
        self._folder, self._most_output_bytes = folder, most_output_bytes

    async def begin(self) -> None:
        """Remove what an interrupted service left incomplete; to be called before ``put``."""
        await asyncio.to_thread(self._clear)

    async def put(self, uid: str, content: bytes) -> None:
        """Store a result in place of an earlier one."""
        await asyncio.to_thread(self._write, uid, content)

    async def get(self, uid: str) -> bytes | None:
        """The stored result; ``None`` without one."""
        return await asyncio.to_thread(self._read, uid)

    async def put_output(self, uid: str, digest: str, content: bytes) -> bool:
        """Keep one of the outputs of a map; ``False``: it has as many bytes of them as it may."""
        return await asyncio.to_thread(self._write_output, uid, digest, content)

    async def outputs(self, uid: str) -> list[str]:
        """The names of a map's outputs."""
        return await asyncio.to_thread(self._outputs, uid)

    async def get_output(self, uid: str, digest: str) -> bytes | None:
        """Read an output; ``None`` if it is missing."""
        return await asyncio.to_thread(self._read, f"{uid}{OUTPUTS}/{digest}")

    async def remove(self, uid: str) -> None:
        """Remove the result, if there is one."""
        await asyncio.to_thread(self._remove, uid)

    async def sweep(self, exists: Callable[[str], Awaitable[bool]]) -> None:
        """Remove results of deleted workloads."""
        for name in await asyncio.to_thread(self._names):
            uid = name.removesuffix(OUTPUTS)
            if not await exists(uid):
                await self.remove(uid)

    def _write(self, name: str, content: bytes) -> None:
        (self._folder / name).parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        descriptor, fresh = tempfile.mkstemp(dir=self._folder, prefix=HALF_WRITTEN)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(fresh).replace(self._folder / name)
        except BaseException:
            Path(fresh).unlink(missing_ok=True)
            raise

    def _read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def _remove(self, uid: str) -> None:
        (self._folder / uid).unlink(missing_ok=True)
        shutil.rmtree(self._folder / f"{uid}{OUTPUTS}", ignore_errors=True)

    def _write_output(self, uid: str, digest: str, content: bytes) -> bool:
        kept = sum(file.stat().st_size for file in (self._folder / f"{uid}{OUTPUTS}").glob("*"))
        if kept + len(content) > self._most_output_bytes:
            return False
        self._write(f"{uid}{OUTPUTS}/{digest}", content)
        return True

    def _outputs(self, uid: str) -> list[str]:
        folder = self._folder / f"{uid}{OUTPUTS}"
        return sorted(path.name for path in folder.glob("*"))

    def _clear(self) -> None:
        for half_written in self._folder.glob(f"{HALF_WRITTEN}*"):
            half_written.unlink(missing_ok=True)

    def _names(self) -> list[str]:
        found = (path.name for path in self._folder.glob("*"))
        return sorted(name for name in found if not name.startswith(HALF_WRITTEN))
