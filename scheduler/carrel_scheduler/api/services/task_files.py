"""Files of a running task, in both directions, by commands that run beside it as its user.

Every path is resolved there, with the rights and the mounts of the task; this process opens none.
A folder leaves as a tar archive; a file comes in pieces that are put together under another name.
"""

import posixpath
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from carrel_scheduler.api import problems
from carrel_scheduler.api.problems import Code
from carrel_scheduler.engines.contract import EngineError, TaskId
from carrel_scheduler.engines.files.contract import Files
from carrel_schema.objects import Workload

MISSING: Final = 44
OTHER_PART: Final = 45
IS_FOLDER: Final = 46
NO_PROGRAM: Final = 127
CHANGED: Final = 1
"""The exit code of tar where a file changed while it was read."""
_READ: Final = f'[ -e "$1" ] || [ -L "$1" ] || exit {MISSING}; exec tar -cf - -C "$2" -- "$3"'
_WRITE: Final = f"""
set -e
[ ! -d "$1" ] || exit {IS_FOLDER}
part="$1.carrel-part"
if [ "$2" = 0 ]; then mkdir -p -- "$(dirname -- "$1")"; : > "$part"; fi
[ -e "$part" ] && [ "$(wc -c < "$part")" -eq "$2" ] || exit {OTHER_PART}
cat >> "$part"
[ "$3" = more ] || mv -f -- "$part" "$1"
"""


def running_task(workload: Workload, index: int) -> TaskId:
    """The task's running attempt. Raises ``Conflicting`` if it does not run."""
    if workload.status.phase == "running":
        for task in workload.status.tasks:
            if task.index == index and task.ended_at is None:
                return TaskId(workload.meta.uid, index, task.attempt)
    raise problems.Conflicting(
        Code.NOT_RUNNING, f"Task {index} does not run (it is {workload.status.phase})"
    )


async def read(files: Files, task: TaskId, path: str) -> AsyncGenerator[bytes, None]:
    """A file or folder as a tar archive whose only entry is its last name."""
    place = posixpath.normpath(path)
    above, name = posixpath.split(place)
    if name in ("", ".", ".."):
        above, name = place, "."
    try:
        session = await files.command(
            task, ["sh", "-c", _READ, "sh", _word(place), _word(above or "."), name]
        )
    except EngineError as error:
        raise problems.Conflicting(Code.ENGINE_REFUSED, str(error)) from error
    try:
        await session.end_input()
        held = b""  # what comes last waits for the exit code, which may still be a refusal
        while piece := await session.read():
            if held:
                yield held
            held = piece
    finally:
        code = await session.close()
    if code not in (0, CHANGED):
        raise _refusal(code, path, session.errors)
    yield held


async def write(
    files: Files, task: TaskId, path: str, content: bytes, *, offset: int, more: bool
) -> None:
    """Write a piece of a file; the last one puts the file in its place."""
    command = ["sh", "-c", _WRITE, "sh", _word(path), str(offset), "more" if more else "last"]
    try:
        session = await files.command(task, command)
        try:
            with suppress(EngineError):  # it ended before: its exit code says why
                await session.write(content)
            await session.end_input()
            while await session.read():
                pass
        finally:
            code = await session.close()
    except EngineError as error:
        raise problems.Conflicting(Code.ENGINE_REFUSED, str(error)) from error
    if code:
        raise _refusal(code, path, session.errors)


def _word(path: str) -> str:
    """A path in a form that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def _refusal(code: int, path: str, errors: bytes) -> problems.Problem:
    if code == MISSING:
        return problems.Missing(Code.NO_SUCH_FILE, f"The task has no file `{path}`")
    if code == OTHER_PART:
        return problems.Conflicting(
            Code.CONFLICT, f"Somebody else writes `{path}` meanwhile; send the file again"
        )
    if code == IS_FOLDER:
        return problems.Conflicting(
            Code.CONFLICT, f"`{path}` is a folder; name the file, or end the path with a slash"
        )
    said = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
    why = said or f"the command in the task ended with {code}"
    if code == NO_PROGRAM:
        why = f"the image of the task lacks a program that this takes ({why})"
    return problems.Conflicting(Code.ENGINE_REFUSED, f"`{path}`: {why}")
