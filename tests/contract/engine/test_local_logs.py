"""Output in segments: rotation, reading across segments, following a noisy task."""

import hashlib

from carrel_scheduler.engines.contract import LogRequest
from contract.engine.local_engines import LocalEngines
from contract.engine_tasks import a_task, output, run

SMALL = {"log_segment_bytes": 20_000, "log_segments": 3}


async def test_keeps_the_latest_segments_whole_lines_first(engines: LocalEngines) -> None:
    engine = await engines.open(**SMALL)
    task = a_task(engines, "seq 1 50000")
    await run(engine, task)
    lines = (await output(engine, task)).split()
    assert 3 * 20_000 / 6 >= len(lines) >= 2 * 20_000 / 6
    assert lines == [b"%d" % number for number in range(50_001 - len(lines), 50_001)]
    files = sorted(path.suffix for path in (engines.folder() / "log").iterdir())
    assert files == [".at"] * 3 + [".out"] * 3


async def test_a_line_may_end_as_elsewhere(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, r"printf 'a\r\n'")
    await run(engine, task)
    assert await output(engine, task) == b"a\r\n"


async def test_tail_reads_back_across_segments(engines: LocalEngines) -> None:
    engine = await engines.open(**SMALL)
    task = a_task(engines, "seq 1 9000")
    await run(engine, task)
    for lines in (1, 3000, 5000):
        found = (await output(engine, task, tail_lines=lines)).split()
        assert found == [b"%d" % number for number in range(9001 - lines, 9001)]


async def test_follow_sees_all_of_a_noisy_task_across_segments(engines: LocalEngines) -> None:
    engine = await engines.open(log_segment_bytes=50_000, log_segments=1000)
    task = a_task(engines, "seq 1 300000")
    await engine.start(task)
    found = await output(engine, task, follow=True)
    wanted = b"".join(b"%d\n" % number for number in range(1, 300_001))
    assert hashlib.sha256(found).digest() == hashlib.sha256(wanted).digest()


async def test_a_line_longer_than_a_segment_is_kept(engines: LocalEngines) -> None:
    engine = await engines.open(**SMALL)
    task = a_task(engines, "head -c 70000 /dev/zero | tr '\\0' x; echo; echo end")
    await run(engine, task)
    assert await output(engine, task) == b"x" * 70_000 + b"\nend\n"


async def test_many_may_follow_at_once_and_leave_early(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "echo one; sleep 0.4; echo two")
    await engine.start(task)
    early = engine.logs("w1", LogRequest(follow=True))
    assert (await anext(early)).startswith(b"one\n")
    await early.aclose()  # type: ignore[attr-defined]  # it is a generator here
    assert await output(engine, task, follow=True) == b"one\ntwo\n"


async def test_closing_the_engine_ends_those_who_follow(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "echo one; sleep 600")
    await engine.start(task)
    follower = engine.logs("w1", LogRequest(follow=True))
    assert await anext(follower) == b"one\n"
    await engine.close()
    assert [piece async for piece in follower] == []
    assert [status async for status in engine.watch()] == []
