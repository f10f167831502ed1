"""The end of tasks whose supervisor was killed: nothing of them may live on when they are reported.

A sandbox dies with its supervisor by the kernel's doing, as does the main process. Where there is
no sandbox its children do not: they are found by control group, by session, and by the folder of
the task in the environment they inherited.
"""

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.cgroups import Groups
from carrel_scheduler.engines.local.shim import tree
from carrel_scheduler.engines.local.truth import Started

PATIENCE_ROUNDS: Final = 500
ROUND_SECONDS: Final = 0.01


def boot_id() -> str:
    """Which start of the machine this is; pids of another one mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


async def end_leftovers(folder: Path, started: Started | None, groups: Groups) -> None:
    """Kill what is left of a lost task and remove its groups.

    Raises ``EngineError`` when a process cannot be killed: then the task still runs.
    """
    for _ in range(PATIENCE_ROUNDS):
        left = _remaining(folder, started, groups)
        if not left:
            tree.remove_groups(groups.folders)
            return
        for process in left:
            tree.send(process, signal.SIGKILL)
        await asyncio.sleep(ROUND_SECONDS)
    pids = ", ".join(str(pid) for pid, _ in left)
    raise EngineError(f"{folder.parent.name}-{folder.name}: processes {pids} do not die")


def _remaining(folder: Path, started: Started | None, groups: Groups) -> list[tree.Process]:
    found = tree.members(groups.folders)
    if started is None or started.boot_id != boot_id():
        return found
    if started.init:
        named = ((started.init, started.init_start), (started.pid, started.start_time))
        return found + [process for process in named if tree.start_time(process[0]) == process[1]]
    # A session lives as long as a member; once its number has another leader it is another one.
    leader_born = tree.start_time(started.pid)
    session_is_ours = leader_born in (0, started.start_time)
    mark = f"CARREL_TASK_DIR={folder / 'work'}".encode()
    pids = {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}
    for pid in sorted(pids - {os.getpid()}):
        fields = tree.stat_fields(pid)
        if not fields or fields[0] in ("Z", "X"):
            continue
        born, session = int(fields[19]), int(fields[3])
        main = (pid, born) == (started.pid, started.start_time)
        in_session = session_is_ours and session == started.pid and born >= started.start_time
        if main or in_session or mark in _environment(pid):
            found.append((pid, born))
    return found


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # gone, or another account's: then none of ours
