"""Changes of routes are written in groups; each waits until Traefik has read it."""

import asyncio

import pytest

from carrel_hub.front.group_writes import GroupWrites


class Reader:
    """Reads a version when it is told to."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.read = "f00-7"
        self.asked = 0

    def write(self, mark: str) -> None:
        self.marks.append(mark)

    async def ask(self) -> str:
        self.asked += 1
        return self.read


async def test_changes_made_while_a_version_is_read_share_the_next() -> None:
    reader = Reader()
    writes = GroupWrites(reader.write, reader.ask)
    await writes.write()
    group = asyncio.gather(*(writes.write() for _ in range(50)))
    await asyncio.sleep(0)
    assert len(reader.marks) == 1
    reader.read = reader.marks[0]
    await group
    assert len(reader.marks) == writes.written == 2


async def test_a_reader_that_is_away_keeps_nothing_from_being_written() -> None:
    reader = Reader()
    writes = GroupWrites(reader.write, reader.ask)
    for _ in range(3):
        await asyncio.wait_for(writes.write(), 5)
    assert len(set(reader.marks)) == 3


async def test_all_who_wait_share_the_questions_and_an_older_version_is_not_enough() -> None:
    reader = Reader()
    writes = GroupWrites(reader.write, reader.ask)
    await writes.write()
    first = writes.written
    await writes.write()
    waiting = [asyncio.create_task(writes.until_read(writes.written)) for _ in range(100)]
    reader.read = reader.marks[0]
    await asyncio.wait_for(writes.until_read(first), 5)
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    reader.read = reader.marks[1]
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert reader.asked < 30


async def test_what_cannot_be_written_is_told_to_everybody() -> None:
    def write(_: str) -> None:
        raise OSError(28, "No space left on device")

    writes = GroupWrites(write, Reader().ask)
    told = await asyncio.gather(*(writes.write() for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in told] == [OSError] * 3
    with pytest.raises(OSError, match="No space"):
        await writes.write()
