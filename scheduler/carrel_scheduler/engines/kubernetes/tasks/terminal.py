"""A terminal session in a running task's container.

The connection's end does not end the command, so hanging up is a command of its own: it finds the
terminal's processes by a note in the container's memory. The command's exit code comes behind its
last output as a control sequence that terminals ignore, with a mark that no other has
(``program.TERMINAL``).
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskId
from carrel_scheduler.engines.kubernetes.tasks import program
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.execution import RemoteCommand, execute
from carrel_schema import names

LONGEST_CODE: Final = len("255")


class ExitCodeParser:
    """Finds the exit code in the output, however the output is split into chunks.

    Attributes:
        code: the command's exit code, once known.
    """

    def __init__(self, mark: str) -> None:
        self._begins = program.GOODBYE % mark.encode()
        self._kept = b""
        self.code: int | None = None

    def feed(self, data: bytes) -> bytes:
        """The output that certainly belongs to the command and was not returned yet."""
        text = self._kept + data
        before, found, after = text.partition(self._begins)
        code, ends, _ = after.partition(program.GOODBYE_ENDS)
        if ends and code.isdigit():
            self._kept, self.code = b"", int(code)
            return before
        unfinished = found and not ends and len(code) <= LONGEST_CODE
        kept = len(text) - len(before) if unfinished else self._begun(text)
        self._kept = text[len(text) - kept :]
        return text[: len(text) - kept]

    def rest(self) -> bytes:
        """The rest of the output, once there is no more."""
        rest, self._kept = self._kept, b""
        return rest

    def _begun(self, text: bytes) -> int:
        """The number of bytes at the end that may be the beginning of the end mark."""
        most = min(len(text), len(self._begins) - 1)
        return next((n for n in range(most, 0, -1) if text.endswith(self._begins[:n])), 0)


log = logging.getLogger(__name__)

HANG_UP_SECONDS: Final = 5.0
HANG_UP_AGAIN_SECONDS: Final = 0.5
KILLED: Final = 128 + 9
HUNG_UP: Final = 128 + 1
# The name takes the place of the machine's in whatever prompt the shell's own files set up.
_PROMPT: Final = r"PS1=${PS1//\\[hH]/$CARREL_PROMPT_HOST}"


class PodTerminal:
    """A terminal in a pod; see ``engines.contract.ExecSession``."""

    def __init__(self, client: KubeClient, pod: TaskPod, remote: RemoteCommand, mark: str) -> None:
        self._client, self._pod, self._remote, self._mark = client, pod, remote, mark
        self._goodbye = ExitCodeParser(mark)
        self._reading = asyncio.Lock()
        self._ended = False
        self._code: int | None = None

    async def read(self) -> bytes:
        """Next output; empty at the end."""
        async with self._reading:
            while not self._ended:
                try:
                    piece = await self._remote.read()
                except KubeError as error:
                    self._code = await self._code_unseen()
                    log.info(
                        "the exit code of a terminal was not received: %s; assumed %d",
                        error,
                        self._code,
                    )
                    piece = None
                said = self._goodbye.rest() if piece is None else self._goodbye.feed(piece.data)
                self._ended = piece is None or self._goodbye.code is not None
                if said:
                    return said
            return b""

    async def write(self, data: bytes) -> None:
        """Type. Raises ``EngineError`` after the end."""
        if self._ended:
            raise EngineError("the terminal session has ended")
        await self._send(self._remote.write(data))

    async def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size."""
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
        with suppress(TimeoutError, KubeError):
            async with asyncio.timeout(HANG_UP_SECONDS):
                if not self._ended:
                    self._code = HUNG_UP
                    await self._hang_up()
                elif self._goodbye.code is not None:
                    await self._part()
        self._ended = True
        seen = await self._remote.close()
        codes = (self._goodbye.code, seen, self._code)
        return next((code for code in codes if code is not None), KILLED)

    async def _part(self) -> None:
        """End the terminal after it has announced its end."""
        async with self._reading:
            await self._remote.write(f"{self._mark}\n".encode())
            while await self._remote.read() is not None:
                pass

    async def _code_unseen(self) -> int:
        """The exit code of a command whose connection was lost.

        It was killed if it cannot be hung up on: its task ended, or its node went away, and it with
        them.
        """
        try:
            async with asyncio.timeout(HANG_UP_SECONDS):
                await self._tell_of_the_end()
        except (TimeoutError, KubeError):
            return KILLED
        return HUNG_UP

    async def _hang_up(self) -> None:
        """Signal the command until it ends: one that has just begun may not have its mark yet."""
        end = asyncio.create_task(self._to_the_end())
        try:
            while not end.done():
                await self._tell_of_the_end()
                await asyncio.wait({end}, timeout=HANG_UP_AGAIN_SECONDS)
        finally:
            end.cancel()

    async def _tell_of_the_end(self) -> None:
        """Send SIGHUP to all processes of the terminal."""
        meta, command = self._pod.metadata, program.hang_up(self._mark)
        killing = await execute(
            self._client, meta.namespace, meta.name, command, self._pod.container
        )
        try:
            while await killing.read() is not None:
                pass
        finally:
            await killing.close()

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
