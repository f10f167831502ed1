"""A full disk loses output at most: tasks go on, and how they ended is known once there is room."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from benchmarks.small_disk import SmallDisk, small_disk
from carrel_scheduler.engines.contract import TaskPhase
from contract.engine.local_engines import LocalEngines, supervisors, until
from contract.engine_tasks import a_task, output, status_of, wait_for, wait_for_output

pytestmark = pytest.mark.root
CHATTY = "echo ready; until [ -e go ]; do echo line; sleep 0.01; done; echo last; exit 5"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "small", 8) as disk:
        yield disk


@pytest.fixture
async def engines(disk: SmallDisk) -> AsyncIterator[LocalEngines]:
    opener = LocalEngines(disk.folder / "state")
    yield opener
    await opener.clean()


async def filled(engines: LocalEngines, disk: SmallDisk) -> None:
    """Fill the disk until nothing of what the task says is written any more."""

    async def lost() -> bool:
        disk.fill()
        before = [file.stat().st_size for file in (engines.folder() / "log").iterdir()]
        await asyncio.sleep(0.1)  # ten lines
        return before == [file.stat().st_size for file in (engines.folder() / "log").iterdir()]

    await until(lost)


async def test_a_task_outlives_a_full_disk_and_its_end_is_known(
    engines: LocalEngines, disk: SmallDisk
) -> None:
    engine = await engines.open(log_segment_bytes=4096, log_segments=2000)
    stream, task = engine.watch(), a_task(engines, CHATTY)
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    await filled(engines, disk)
    (engines.folder() / "work" / "go").touch()

    async def over() -> bool:
        leading = Path(f"/proc/{(await status_of(engine, task)).pid}")
        return not leading.exists()

    await until(over)
    assert (await status_of(engine, task)).phase is TaskPhase.RUNNING
    assert len(supervisors(engines.root)) == 1
    disk.empty()
    ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
    assert (ended.exit_code, ended.lost) == (5, False)


async def test_output_goes_on_once_there_is_room(engines: LocalEngines, disk: SmallDisk) -> None:
    engine = await engines.open(log_segment_bytes=4096, log_segments=2000)
    stream, task = engine.watch(), a_task(engines, CHATTY)
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    await filled(engines, disk)
    disk.empty()
    (engines.folder() / "work" / "go").touch()
    await wait_for(engine, stream, task, TaskPhase.ENDED)
    assert (await output(engine, task)).endswith(b"last\n")
