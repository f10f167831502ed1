"""A command beside a running task, on a terminal in its container.

The connection's end does not end the command, so hanging up is a command of its own: it finds the
terminal's processes by a note that lies in the container's memory for as long as they run.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Sequence
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskId
from carrel_scheduler.engines.kubernetes.tasks import program
from carrel_scheduler.engines.kubernetes.tasks.seen import TaskPod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.execution import RemoteCommand, execute
from carrel_scheduler.ledger.resources import names

log = logging.getLogger(__name__)

HANG_UP_SECONDS: Final = 5.0
HANG_UP_AGAIN_SECONDS: Final = 0.5
KILLED: Final = 128 + 9
HUNG_UP: Final = 128 + 1
# The name takes the place of the machine's in whatever prompt the shell's own files set up.
_PROMPT: Final = r"PS1=${PS1//\\[hH]/$CARREL_PROMPT_HOST}"


class PodTerminal:
    """One session; see ``engines.contract.ExecSession``."""

    def __init__(self, client: KubeClient, pod: TaskPod, remote: RemoteCommand, mark: str) -> None:
        self._client, self._pod, self._remote, self._mark = client, pod, remote, mark
        self._reading = asyncio.Lock()
        self._ended = False
        self._code: int | None = None

    async def read(self) -> bytes:
        """Next output; empty at the end."""
        async with self._reading:
            if self._ended:
                return b""
            try:
                piece = await self._remote.read()
            except KubeError as error:  # the task ended, or its node went away, and it with them
                log.info("the end of a terminal was not seen: %s", error)
                self._code = KILLED
                piece = None
            if piece is None:
                self._ended = True
                return b""
            return piece.data

    async def write(self, data: bytes) -> None:
        """Type. Raises ``EngineError`` after the end."""
        await self._send(self._remote.write(data))

    async def resize(self, rows: int, columns: int) -> None:
        """Tell the size."""
        if not (0 < rows < 10_000 and 0 < columns < 10_000):
            raise EngineError(f"rows={rows}, columns={columns}: numbers from 1 to 9999 are right")
        if not self._ended:
            await self._send(self._remote.resize(columns, rows))

    @staticmethod
    async def _send(sent: Awaitable[None]) -> None:
        try:
            await sent
        except KubeError as error:
            raise EngineError("the terminal session has ended") from error

    async def close(self) -> int:
        """Hang up if still running; returns the exit code."""
        if not self._ended:
            try:
                async with asyncio.timeout(HANG_UP_SECONDS):
                    await self._hang_up()
            except (TimeoutError, KubeError):
                self._code = HUNG_UP
        self._ended = True
        seen = await self._remote.close()
        return next((code for code in (seen, self._code) if code is not None), KILLED)

    async def _hang_up(self) -> None:
        """Again and again: what has just begun may not have left its note yet."""
        end = asyncio.create_task(self._to_the_end())
        try:
            while not end.done():
                command = program.hang_up(self._mark)
                meta = self._pod.metadata
                told = await execute(
                    self._client, meta.namespace, meta.name, command, self._pod.container
                )
                while await told.read() is not None:
                    pass
                await told.close()
                await asyncio.wait({end}, timeout=HANG_UP_AGAIN_SECONDS)
        finally:
            end.cancel()

    async def _to_the_end(self) -> None:
        while await self.read():
            pass


async def open_terminal(
    client: KubeClient, pod: TaskPod, task: TaskId, command: Sequence[str]
) -> PodTerminal:
    """Start a command beside a task (default: a shell). Raises ``EngineError``."""
    mark, name = secrets.token_hex(8), pod.metadata.labels.get(names.WORKLOAD, "task")
    surroundings = [
        "env",
        "TERM=xterm-256color",
        f"CARREL_PROMPT_HOST={name}-0-{task.index}",
        r"PS1=\u@\h:\w\$ ",
        f"PROMPT_COMMAND={_PROMPT}",
    ]
    full = program.terminal(mark, [*surroundings, *(command or ["bash"])])
    meta = pod.metadata
    try:
        remote = await execute(
            client, meta.namespace, meta.name, full, pod.container, stdin=True, tty=True
        )
    except KubeError as error:
        raise EngineError(f"no terminal beside task {task}: {error.message}") from error
    return PodTerminal(client, pod, remote, mark)
