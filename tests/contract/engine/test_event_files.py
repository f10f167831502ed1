"""Event files: written by a job's user, read by those who were shown them, and by nobody else."""

import os
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError, LogRequest
from contract.engine.local_engines import AS_ROOT, LocalEngines
from contract.engine_tasks import a_task, output, run

WRITE = "umask 077; mkdir $CARREL_EVENTS_DIR/more; echo curve > $CARREL_EVENTS_DIR/more/a; pwd"
OPEN = "chmod -R a+rX $CARREL_EVENTS_DIR"


async def test_a_colleague_reads_what_is_shown_and_nothing_else(engines: LocalEngines) -> None:
    engine = await engines.open()
    for uid in ("shown", "hidden"):
        task = a_task(engines, f"{WRITE}; {OPEN}", uid=uid, events=uid)
        assert (await run(engine, task)).exit_code == 0
    events = engines.root / "events"
    look = (
        f"cat {events}/shown/more/a; cat {events}/hidden/more/a; echo x > {events}/shown/mine;"
        f"ls {events}; echo $CARREL_EVENTS_DIR"
    )
    reader = a_task(
        engines, look, uid="board", user="grace", events="board", reads_events=("shown",)
    )
    await run(engine, reader)
    said = (await output(engine, reader)).decode()
    assert said.startswith("curve\n")
    assert said.endswith(f"{events}/board\n")
    if AS_ROOT:
        assert said.count("curve") == 1
        assert "\nboard\nshown\n" in said
        assert not (events / "shown" / "mine").exists()
        assert (events / "shown").stat().st_uid != os.getuid()


async def test_a_board_sees_the_parts_that_come_later(engines: LocalEngines) -> None:
    engine = await engines.open()
    events = engines.root / "events"
    wait = f"until cat {events}/sweep/1/a; do sleep 0.05; done"
    board = a_task(engines, wait, uid="board", user="grace", reads_events=("sweep/0",))
    await engine.start(board)
    part = a_task(engines, "echo late > $CARREL_EVENTS_DIR/a", uid="part", events="sweep/1")
    assert (await run(engine, part)).exit_code == 0
    async for piece in engine.logs("board", LogRequest(follow=True)):
        if b"late" in piece:
            break
    await engine.stop(board.id, 0.0)


@pytest.mark.root
async def test_a_link_among_event_files_leads_a_reader_nowhere(engines: LocalEngines) -> None:
    """Who shows event files could point their reader at a file that only the reader may read."""
    engine = await engines.open()
    diary = engines.root / "homes" / "grace" / "diary"
    await run(engine, a_task(engines, "echo private > ~/diary", uid="diary", user="grace"))
    links = f"mkdir $CARREL_EVENTS_DIR/run; ln -s {diary} $CARREL_EVENTS_DIR/run/events"
    links += "; ln -s /etc $CARREL_EVENTS_DIR/etc; echo curve > $CARREL_EVENTS_DIR/run/curve"
    await run(engine, a_task(engines, links, uid="shown", events="shown"))
    events = engines.root / "events" / "shown"
    look = (
        f"ln -s {events} runs; cat runs/run/curve runs/run/events; ls runs/etc/passwd; cat {diary};"
        f"ls {diary.parent}; echo end"
    )
    reader = a_task(
        engines, look, uid="board", user="grace", kind="tensorboard", reads_events=("shown",)
    )
    await run(engine, reader)
    said = (await output(engine, reader)).decode()
    if AS_ROOT:
        assert said.startswith("curve\n")
        assert said.endswith("end\n")
        assert "private" not in said
        assert "\nruns/etc/passwd\n" not in said
        assert "\ndiary\n" not in said


async def test_nobody_can_have_another_folder_shown_in_place_of_a_part(
    engines: LocalEngines, tmp_path: Path
) -> None:
    engine = await engines.open()
    script = "ln -s /etc $CARREL_EVENTS_DIR/../1 || echo refused; ls $CARREL_EVENTS_DIR/.."
    first = a_task(engines, script, uid="p0", events="sweep/0")
    await run(engine, first)
    if AS_ROOT:
        assert b"refused" in await output(engine, first)
    (engines.root / "events" / "sweep" / "2").symlink_to(tmp_path)
    with pytest.raises(EngineError, match="is no folder"):
        await engine.start(a_task(engines, "true", uid="p2", events="sweep/2"))


@pytest.mark.parametrize("where", ["../x", "a/b/c", "/etc", "a/../b", "."])
async def test_places_outside_are_refused(engines: LocalEngines, where: str) -> None:
    engine = await engines.open()
    with pytest.raises(EngineError, match="events="):
        await engine.start(a_task(engines, "true", events=where))
