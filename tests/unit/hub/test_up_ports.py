"""`carrel up` keeps the listening sockets of its parts; one started again gets the same."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.ports import free_ports
from carrel_hub.front.traefik import Tls
from carrel_hub.settings import InstallationSettings, Ports
from carrel_hub.up.checks import StartupError
from carrel_hub.up.parts import ProcessPart
from carrel_hub.up.ports import Gate, listeners
from carrel_hub.up.probes import Watchdog
from carrel_hub.up.supervisor import Supervisor
from carrel_process import listening

pytestmark = pytest.mark.enable_socket

# Says to whoever connects which process it is, which socket it serves, whether a child has it.
PART = """
import os, subprocess
from carrel_process.listening import inherited
listener = inherited()
listener.setblocking(True)
child = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True)
inode = os.readlink("/proc/self/fd/3")
leaked = inode.encode() in child.stdout or any(one.startswith("LISTEN_") for one in os.environ)
while True:
    line, _ = listener.accept()
    line.sendall(f"{os.getpid()} {inode} {leaked}".encode())
    line.close()
"""


async def never(_: float) -> bool:
    await asyncio.Event().wait()
    return True


@contextmanager
def closing_task(work: Coroutine[None, None, None]) -> Iterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()


async def asked(port: int) -> list[str]:
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        said = await reader.read()
        writer.close()
    return said.decode().split()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


async def test_a_part_that_is_started_again_serves_the_same_socket(
    tmp_path: Path, listener: socket.socket
) -> None:
    command = [sys.executable, "-c", PART]
    log = tmp_path / "part.log"
    part = ProcessPart("part", "Part", command, log, dict(os.environ), {"http": listener})
    port = listener.getsockname()[1]
    supervisor = Supervisor()
    await supervisor.start(part)
    try:
        pid, inode, leaked = await asked(port)
        assert inode == f"socket:[{os.fstat(listener.fileno()).st_ino}]"
        assert leaked == "False", "children of a part get neither the socket nor word of it"
        supervisor.keep_running(part, Watchdog(never))
        os.kill(int(pid), signal.SIGKILL)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use") as refusal:
                other.bind(("127.0.0.1", port))
            assert refusal.value.errno == errno.EADDRINUSE
        # It waits for the new process instead of being refused; the one that is just being killed
        # may still have taken it.
        while not (answer := await asked(port)):
            pass
        again, same, _ = answer
        assert (again != pid, same) == (True, inode)
    finally:
        await supervisor.stop()


@pytest.fixture
def settings(tmp_path: Path) -> InstallationSettings:
    names = ("hub", "proxy_api", "scheduler", "console", "gateway")
    public, plain, *free = free_ports(2 + len(names))
    ports = Ports(**dict(zip(names, free, strict=True)))
    return InstallationSettings(
        state_dir=tmp_path, ports=ports, port=public, tls=Tls(plain_port=plain)
    )


def test_each_part_gets_its_own_ports(settings: InstallationSettings) -> None:
    ports, tls = settings.ports, settings.tls
    assert tls is not None
    with listeners(settings) as found:
        assert {
            part: {name: one.getsockname()[1] for name, one in named.items()}
            for part, named in found.items()
        } == {
            "proxy": {
                "public": settings.port, "internal": ports.proxy_api, "plain": tls.plain_port
            },
            "hub": {"http": ports.hub},
            "scheduler": {"http": ports.scheduler},
            "console": {"http": ports.console},
            "gateway": {"http": ports.gateway},
        }  # fmt: skip


async def test_nobody_comes_in_before_the_part_is_ready(listener: socket.socket) -> None:
    ready = asyncio.Event()

    async def is_ready() -> bool:
        return ready.is_set()

    gate = Gate([listener], is_ready)
    address = listener.getsockname()
    with socket.create_connection(address, 5) as waiting, closing_task(gate.open_when_ready()):
        gate.shut()
        assert await asyncio.to_thread(waiting.recv, 1) == b""
        late = asyncio.create_task(asyncio.to_thread(socket.create_connection, address, 20))
        await asyncio.wait({late}, timeout=0.5)
        assert not late.done()
        ready.set()
        with await late, listener.accept()[0]:
            pass


def test_a_port_that_was_taken_meanwhile_is_a_sentence(settings: InstallationSettings) -> None:
    ports = settings.ports
    with (
        socket.create_server(("127.0.0.1", ports.gateway)),
        pytest.raises(StartupError, match=f"Another program has just taken port {ports.gateway}"),
        listeners(settings),
    ):
        raise AssertionError("it opened a port that is taken")
    with socket.create_server(("127.0.0.1", ports.hub)):
        """What was opened before it is closed again."""


def test_sockets_for_another_process_are_left_alone() -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "OTHER": "x"}
    assert listening.inherited(environment) is None
    assert environment == {"OTHER": "x"}


def test_a_socket_of_another_port_is_refused(listener: socket.socket) -> None:
    program = (
        "import os, carrel_process.listening as module\n"
        f"os.dup2({listener.fileno()}, 3)\n"
        "listener = module.inherited({'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'})\n"
        "module.check(listener, '127.0.0.1', 1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        pass_fds=[listener.fileno()], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "the socket listens on ('127.0.0.1'," in done.stderr
    assert "not on ('127.0.0.1', 1)" in done.stderr
