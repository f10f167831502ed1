"""CPU and memory limits, and that no control group outlives its task."""

import os
import signal
from pathlib import Path

from carrel_scheduler.engines.contract import TaskPhase
from carrel_scheduler.engines.local.cgroups import base_name, find_limiter
from contract.engine.local_engines import LocalEngines, supervisors
from contract.engine_tasks import a_task, next_status, output, run, wait_for_output

EATER = "x = bytearray(400 << 20); print(len(x))"


def groups(engines: LocalEngines) -> list[str]:
    """Control groups that are left of the test's tasks."""
    return find_limiter(engines.root).find("w1-0-0").folders


async def test_more_memory_than_asked_for_ends_as_such(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "", command=("python", "-c", EATER), memory_mib=100)
    ended = await run(engine, task)
    if find_limiter(engines.root).enforces:
        assert (ended.signal, ended.exit_code) == (9, None)
        assert ended.message == "killed for memory: it used more than its 100 MiB"
    else:
        assert (ended.exit_code, ended.message) == (0, "")
    assert groups(engines) == []


async def test_enough_memory_is_no_matter(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "", command=("python", "-c", EATER), memory_mib=1000)
    ended = await run(engine, task)
    assert (ended.exit_code, ended.message) == (0, "")


async def test_cpu_is_held_to_its_share(engines: LocalEngines) -> None:
    engine = await engines.open()
    spin = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
    program = f"{spin}\nprint(time.process_time())"
    task = a_task(engines, "", command=("python", "-c", program), cpu_limit_milli=250)
    await run(engine, task)
    used = float(await output(engine, task))
    if find_limiter(engines.root).enforces:
        assert used < 1.0
    else:
        assert used > 0.1


async def test_a_terminal_lives_within_the_limits_of_its_task(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "echo ready; sleep 600", memory_mib=100)
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    session = await engine.exec(task.id, ("python", "-c", EATER))
    found = b""
    while piece := await session.read():
        found += piece
    limited = find_limiter(engines.root).enforces
    assert await session.close() == (128 + signal.SIGKILL if limited else 0)


async def test_groups_of_a_lost_task_go_too(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "setsid sleep 600 & echo ready; sleep 600", memory_mib=64, cpu_milli=500)
    stream = engine.watch()
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    limited = find_limiter(engines.root).enforces
    assert bool(groups(engines)) == limited
    await engine.close()
    for pid in supervisors(engines.root):
        os.kill(pid, signal.SIGKILL)

    await engines.no_supervisors()
    again = await engines.open()
    seen = again.watch()
    [status] = await again.list()
    while status.phase is not TaskPhase.ENDED:  # its orphans are being killed
        status = await next_status(seen, task)
    assert status.lost
    assert groups(engines) == []
    del stream


async def test_nothing_is_left_when_the_last_engine_closes(engines: LocalEngines) -> None:
    engine = await engines.open()
    stream = engine.watch()
    task = a_task(engines, "true", memory_mib=64, cpu_milli=500)
    await engine.start(task)
    while (await next_status(stream, task)).phase is not TaskPhase.ENDED:
        pass
    await engine.close()
    assert list(Path("/sys/fs/cgroup").glob(f"**/{base_name(engines.root)}")) == []
