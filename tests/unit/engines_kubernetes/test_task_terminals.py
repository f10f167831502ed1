"""Commands on a terminal beside a task, over an API server that drops what it can drop."""

import asyncio
import os
import pty
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest
from aiohttp import WSMessage, WSMsgType

from carrel_scheduler.engines.contract import EngineError, TaskId
from carrel_scheduler.engines.kubernetes.tasks import terminal
from carrel_scheduler.engines.kubernetes.tasks.settings import RUN
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod
from carrel_scheduler.engines.kubernetes.tasks.terminal import (
    HUNG_UP,
    KILLED,
    ExitCodeParser,
    PodTerminal,
    open_terminal,
)
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import NotFound
from carrel_scheduler.kube.resources import Resource

POD = msgspec.convert({"metadata": {"name": "u1-0-0", "namespace": "carrel-a"}}, TaskPod)
CLOSED = WSMessage(WSMsgType.CLOSED, None, None)
TIMEOUT_SECONDS = 30.0


class Connection:
    """A command on a real terminal; what is sent to it once it has ended breaks the connection.

    Then, as an API server does it, nothing more comes: neither output nor the command's end.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._master, slave = pty.openpty()
        heard = ["env", "--default-signal=HUP"]  # whoever tests may ignore it
        take = [*heard, "setsid", "--ctty", "--wait", *command]
        self.process = subprocess.Popen(take, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self._came: queue.Queue[bytes] = queue.Queue()
        self.text = b""
        self._told = self.broken = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while piece := self._piece():
            self.text += piece
            self._came.put(b"\x01" + piece)
        code = self.process.wait(TIMEOUT_SECONDS)
        cause = {"reason": "ExitCode", "message": str(code)}
        ending = {"status": "Failure", "details": {"causes": [cause]}}
        self._came.put(b"\x03" + msgspec.json.encode(ending))
        self._came.put(b"")

    def _piece(self) -> bytes:
        try:
            return os.read(self._master, 7)  # in small pieces
        except OSError:  # the last process of the terminal has ended
            return b""

    async def receive(self) -> WSMessage:
        data = b"" if self.broken else await asyncio.to_thread(self._came.get)
        return WSMessage(WSMsgType.BINARY, data, None) if data and not self.broken else CLOSED

    async def send_bytes(self, data: bytes) -> None:
        if self.process.poll() is not None:
            self.broken = True
        elif data[0] == 0:
            os.write(self._master, data[1:])

    async def close(self) -> bool:
        return True

    def end(self) -> None:
        self.process.kill()
        self._reader.join(TIMEOUT_SECONDS)
        os.close(self._master)


class Container:
    """Runs commands as a container would, with its notes in a folder.

    Args:
        gone: how many connections there are before its pod is gone.
    """

    def __init__(self, notes: Path, gone: int = 1000) -> None:
        self._notes, self._gone = notes, gone
        self.connections: list[Connection] = []

    async def open_websocket(
        self,
        resource: Resource,
        name: str,
        sub: str,
        namespace: str,
        query: Sequence[tuple[str, str]],
        protocol: str,
    ) -> Connection:
        assert (resource.plural, name, sub, namespace) == ("pods", "u1-0-0", "exec", "carrel-a")
        if len(self.connections) >= self._gone:
            raise NotFound(404, "NotFound", "no such pod")
        command = [part.replace(RUN, str(self._notes)) for key, part in query if key == "command"]
        made = Connection(command)
        self.connections.append(made)
        return made


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    yield made
    for one in made.connections:
        one.end()


async def opened(container: Container, script: str) -> tuple[PodTerminal, Connection]:
    client = cast("KubeClient", container)
    session = await open_terminal(client, POD, TaskId("u1", 0, 0), ["sh", "-c", script])
    return session, container.connections[0]


async def all_of(session: PodTerminal) -> bytes:
    said = b""
    while piece := await session.read():
        said += piece
    return said


async def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not happened():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("typed", [b"", b"\x04", b"more\n", b"half a line", b"\x04\x04one\n\x04"])
async def test_what_is_typed_as_the_command_ends_loses_nothing(
    container: Container, code: int, typed: bytes
) -> None:
    session, connection = await opened(container, f"echo here; stty -echo; exit {code}")
    await until(lambda: b"\a" in connection.text or connection.process.poll() is not None)
    if typed:
        await session.write(typed)
    assert await all_of(session) == b"here\r\n"
    assert await session.close() == code
    assert connection.process.wait(TIMEOUT_SECONDS) == code
    with pytest.raises(EngineError, match="has ended"):
        await session.write(b"more")


async def test_a_terminal_left_raw_ends_as_well(container: Container) -> None:
    session, connection = await opened(container, "stty raw -echo; printf here; exit 4")
    await until(lambda: b"\a" in connection.text)
    await session.write(b"\x04typed")
    assert await all_of(session) == b"here"
    assert await session.close() == 4
    assert connection.process.wait(TIMEOUT_SECONDS) == 4


async def test_a_command_reads_what_is_typed_and_its_end(container: Container) -> None:
    session, _ = await opened(container, "stty -echo; echo ready; cat; exit 5")
    assert await session.read() == b"ready\r\n"
    await session.write(b"typed\n\x04")
    assert (await all_of(session)).endswith(b"typed\r\n")
    assert await session.close() == 5


async def test_who_still_runs_is_hung_up_on_when_closed(container: Container) -> None:
    session, connection = await opened(container, "echo begun; sleep 600")
    assert (await session.read()).startswith(b"b")
    assert await session.close() != 0
    assert connection.process.wait(TIMEOUT_SECONDS) != 0


async def test_who_still_runs_is_hung_up_on_when_the_connection_breaks(
    container: Container, tmp_path: Path
) -> None:
    session, connection = await opened(container, "echo begun; sleep 600")
    await until(lambda: b"begun" in connection.text)
    connection.broken = True
    assert await all_of(session) == b""
    assert await session.close() == HUNG_UP
    assert connection.process.wait(TIMEOUT_SECONDS) != 0


async def test_who_went_away_with_the_pod_was_killed(tmp_path: Path) -> None:
    container = Container(tmp_path, gone=1)
    session, connection = await opened(container, "echo begun; sleep 600")
    connection.broken = True
    assert await all_of(session) == b""
    assert await session.close() == KILLED
    connection.end()


async def test_nobody_waits_long_for_an_answer(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "HANG_UP_SECONDS", 0.2)
    session, connection = await opened(container, "echo here; trap '' HUP TERM; exit 6")
    assert await all_of(session) == b"here\r\n"
    connection.broken = True
    assert await session.close() == 6


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_goodbye_is_found_however_it_is_cut(size: int) -> None:
    text = b"\x1b]0;title\x07 \x1b]carrel;other;1\x07 out\x1b\x1b]carrel;m;"
    goodbye, heard = ExitCodeParser("m"), b""
    sent = text + b"17\x07 late"
    for at in range(0, len(sent), size):
        if goodbye.code is None:
            heard += goodbye.feed(sent[at : at + size])
    assert heard == text.removesuffix(b"\x1b]carrel;m;")
    assert goodbye.code == 17
    assert goodbye.rest() == b""


def test_what_was_no_goodbye_is_output() -> None:
    goodbye = ExitCodeParser("m")
    assert goodbye.feed(b"out\x1b]carrel;m") == b"out"
    assert goodbye.feed(b"any") == b"\x1b]carrel;many"
    assert goodbye.feed(b"\x1b]carrel;m;1") == b""
    assert goodbye.rest() == b"\x1b]carrel;m;1"
    assert goodbye.code is None


@pytest.mark.parametrize(
    "wrong", [b"\x1b]carrel;m;x\x07", b"\x1b]carrel;m;\x07", b"\x1b]carrel;m;1234"]
)
def test_what_only_begins_like_a_goodbye_is_output(wrong: bytes) -> None:
    goodbye = ExitCodeParser("m")
    assert goodbye.feed(wrong) == wrong
    assert goodbye.feed(b"on\x1b]carrel;m;0\x07") == b"on"
    assert goodbye.code == 0
