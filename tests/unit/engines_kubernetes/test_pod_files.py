"""Files of a pod: the program beside the task, its exit codes, and what is refused."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.contract import EngineError, TaskId
from carrel_scheduler.engines.files import pods
from carrel_scheduler.engines.files.contract import Area, StoredFolder, UnknownFile
from carrel_scheduler.engines.files.pods import PodFiles
from carrel_scheduler.kube.execution import Channel, OutputChunk

FOLDER = StoredFolder(Area.ARTIFACTS, "vision", "u1")


class Remote:
    """A finished command."""

    def __init__(self, out: bytes, errors: bytes, code: int) -> None:
        self._pieces = [OutputChunk(Channel.ERRORS, errors), OutputChunk(Channel.OUTPUT, out)]
        self._code = code

    async def read(self) -> OutputChunk | None:
        return self._pieces.pop(0) if self._pieces else None

    async def close(self) -> int:
        return self._code


class Pods:
    """Runs commands here; ``running`` is whether the work does."""

    running = True

    def running_task(self, uid: str) -> TaskId | None:
        return TaskId(uid, 0, 0) if self.running else None

    async def run(self, _task: TaskId, command: Sequence[str]) -> Remote:
        pipe = asyncio.subprocess.PIPE
        here = [sys.executable if word == "python3" else word for word in command]
        started = await asyncio.create_subprocess_exec(*here, stdout=pipe, stderr=pipe)
        out, errors = await started.communicate()
        return Remote(out, errors, started.returncode or 0)


async def test_running_work_shows_its_files_and_ended_work_says_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("one")
    monkeypatch.setitem(pods.PLACES, Area.ARTIFACTS, str(tmp_path))
    engine: Any = Pods()
    files = PodFiles(engine)
    assert [(one.path, one.size) for one in await files.list(FOLDER)] == [("a", 3)]
    assert b"".join([piece async for piece in files.read(FOLDER, "a")]) == b"one"
    with pytest.raises(UnknownFile):
        _ = [piece async for piece in files.read(FOLDER, "nothing")]
    for refused in (files.copy(FOLDER, "a", FOLDER), files.remove(FOLDER)):
        with pytest.raises(EngineError, match="folder artifacts/u1"):
            await refused
    engine.running = False
    with pytest.raises(EngineError, match="folder artifacts/u1"):
        await files.list(FOLDER)
