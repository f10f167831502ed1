"""``carrel bash`` and ``carrel exec``: a terminal or pipes to a command in a running task.

The local terminal is put into raw mode, so that Ctrl-C reaches the remote program, and is always
restored. ``exec`` opens a terminal where input and output are one here; otherwise bytes travel as
they are, output apart from errors.
"""

import codecs
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from carrel.cli.common import Invocation, ProjectOption, connected, project_of
from carrel.errors import BadSetting, Unreachable

if TYPE_CHECKING:
    from carrel.client import Terminal
    from carrel.client.loop import BackgroundLoop
    from carrel.client.terminal import PipedCommand


END_OF_FILE = "\x04"
CHUNK = 65_536


def attach(loop: "BackgroundLoop", terminal: "Terminal") -> int:
    """Connect the terminal until the remote side ends; returns its exit code.

    Raises ``Unreachable`` when the connection ends before the exit code arrived.
    """
    descriptor = sys.stdin.fileno()
    with _raw(descriptor), _window(loop, terminal):
        reader = threading.Thread(target=_type, args=(loop, terminal, descriptor), daemon=True)
        reader.start()
        while text := loop.run(terminal.read()):
            sys.stdout.write(text)
            sys.stdout.flush()
    loop.run(terminal.close())
    return _code(terminal)


def _type(loop: "BackgroundLoop", terminal: "Terminal", descriptor: int) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with suppress(OSError):  # this terminal hung up, or the session ended while somebody typed
        while piece := os.read(descriptor, CHUNK):
            loop.run(terminal.write(decoder.decode(piece)))
        loop.run(terminal.write(END_OF_FILE))


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed ahead stays
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _window(loop: "BackgroundLoop", terminal: "Terminal") -> Iterator[None]:
    """Keep the remote terminal as large as this one."""

    def resize(*_: Any) -> None:
        size = shutil.get_terminal_size()
        loop.start(terminal.resize(size.lines, size.columns))

    resize()
    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


TaskOption = Annotated[
    int, typer.Option("--task", "--pod", min=0, help="Beside which task, from 0.")
]


def bash(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job.")],
    *,
    project: ProjectOption = None,
    task: TaskOption = 0,
) -> None:
    """Open a shell beside a running job."""
    _attach(project, name, ["bash"], task)


def pipe(loop: "BackgroundLoop", command: "PipedCommand") -> int:
    """Pass input and output on until the command ends; returns its exit code.

    Raises ``Unreachable`` when the connection ends before the exit code arrived.
    """
    descriptor = sys.stdin.fileno()
    threading.Thread(target=_feed, args=(loop, command, descriptor), daemon=True).start()
    streams = {1: sys.stdout.buffer, 2: sys.stderr.buffer}
    try:
        while True:
            stream, piece = loop.run(command.read())
            if not piece:
                break
            streams[stream].write(piece)
            streams[stream].flush()
    finally:
        loop.run(command.close())
    return _code(command)


def _feed(loop: "BackgroundLoop", command: "PipedCommand", descriptor: int) -> None:
    with suppress(OSError):  # the command ended before its input did
        while piece := os.read(descriptor, CHUNK):
            loop.run(command.write(piece))
        loop.run(command.end_input())


def _code(session: "Terminal | PipedCommand") -> int:
    if session.exit_code is None:
        raise Unreachable(
            f"The connection ended before the command's exit code arrived ({session.cut}): it may "
            "still run, and some of its output may be missing."
        )
    return session.exit_code


def exec_command(
    context: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="NAME -- COMMAND...", help="The job; then the command.")
    ],
    *,
    project: ProjectOption = None,
    task: TaskOption = 0,
    tty: Annotated[
        bool | None,
        typer.Option(
            "--tty/--no-tty",
            "-t",
            "-it",
            help="With a terminal; otherwise where input and output here are one.",
            show_default=False,
        ),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", hidden=True)] = False,
) -> None:
    """Run a command beside a running job: `carrel exec NAME -- nvidia-smi`.

    Pipes work as they do here: `carrel exec NAME -- cat log.txt | grep loss`.
    """
    del stdin  # input is always passed on
    invocation: Invocation = context.obj
    name, *command = words
    command += invocation.rest or []
    if not command:
        raise BadSetting(f"Which command? `carrel exec {name} -- nvidia-smi`.")
    if tty is None:
        tty = sys.stdin.isatty() and sys.stdout.isatty()
    if tty:
        _attach(project, name, command, task)
    with connected() as client:
        running = client.run_command(project_of(client, project), name, command, index=task)
        code = pipe(client.loop, running)
    raise typer.Exit(code)


def _attach(project: str | None, name: str, command: list[str], task: int) -> NoReturn:
    with connected() as client:
        terminal = client.exec(project_of(client, project), name, command, index=task)
        code = attach(client.loop, terminal)
    raise typer.Exit(code)
