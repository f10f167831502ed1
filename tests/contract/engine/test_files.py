"""Files of real tasks: commands with pipes beside them, and what they keep."""

import asyncio
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskPhase, UnknownTask
from carrel_scheduler.engines.files.contract import Area, StoredFolder, UnknownFile
from carrel_scheduler.engines.files.local import LocalFiles
from contract.engine.local_engines import LocalEngines
from contract.engine_tasks import a_task, run, wait_for, wait_for_output


async def test_a_command_beside_a_task_has_pipes_and_an_exit_code(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "echo ready; sleep 600")
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    files = LocalFiles(engine)
    session = await files.command(task.id, ["sh", "-c", "tr a-z A-Z; echo why >&2; exit 7"])

    async def give() -> None:
        await session.write(b"text\0\n" * 50_000)
        await session.end_input()

    # Both at once: what nobody reads would keep the command from reading on.
    giving = asyncio.create_task(give())
    said = b""
    while piece := await session.read():
        said += piece
    await giving
    assert said == b"TEXT\0\n" * 50_000
    assert (await session.close(), session.errors) == (7, b"why\n")
    several = [await files.command(task.id, ["sleep", "600"]) for _ in range(10)]
    codes = await asyncio.gather(*(endless.close() for endless in several))
    assert codes == [128 + 9] * 10
    with pytest.raises(UnknownTask):
        await files.command(TaskId("w9", 0, 0), ["true"])


async def test_what_a_task_keeps_is_read_after_its_end(
    engines: LocalEngines, tmp_path: Path
) -> None:
    engine = await engines.open()
    (tmp_path / "secret").write_text("secret")
    script = f'echo kept > "$CARREL_ARTIFACTS/a"; ln -s {tmp_path}/secret "$CARREL_ARTIFACTS/b"'
    task = a_task(engines, script, artifacts=True)
    await run(engine, task)
    files, folder = LocalFiles(engine), StoredFolder(Area.ARTIFACTS, "", task.id.workload_uid)
    assert [(one.path, one.size) for one in await files.list(folder)] == [("a", 5)]
    assert [piece async for piece in files.read(folder, "a")] == [b"kept\n"]
    for path in ("b", "../a", "nothing"):
        with pytest.raises(UnknownFile):
            _ = [piece async for piece in files.read(folder, path)]
    with pytest.raises(EngineError):
        await files.command(task.id, ["true"])
    copy = StoredFolder(Area.COPIES, "", "c1")
    assert await files.copy(folder, "a", copy) == 5
    reader = a_task(engines, 'cat "$CARREL_MODEL/a"; touch "$CARREL_MODEL/b"', uid="w2", model="c1")
    stream = engine.watch()
    await engine.start(reader)
    ended = await wait_for(engine, stream, reader, TaskPhase.ENDED)
    assert ended.exit_code == 1  # the model is to be read only
    assert [one.path for one in await files.list(copy)] == ["a"]
    await files.remove(folder)
    assert await files.list(folder) == []
