"""Connects this terminal with a remote one: keys go there as typed, output comes back as is.

The local terminal is put into raw mode, so that Ctrl-C and friends reach the remote program, and is
always put back. Where input is no terminal it is sent as it is and followed by an end-of-file.
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
from typing import TYPE_CHECKING, Any

from carrel.errors import Unreachable

if TYPE_CHECKING:
    from carrel.client import Terminal
    from carrel.client.loop import BackgroundLoop

END_OF_FILE = "\x04"
CHUNK = 65_536


def attach(loop: "BackgroundLoop", terminal: "Terminal") -> int:
    """Until the remote side ends; returns its exit code.

    Raises ``Unreachable`` when the connection ends before the code was told.
    """
    descriptor = sys.stdin.fileno()
    with _raw(descriptor), _window(loop, terminal):
        reader = threading.Thread(target=_type, args=(loop, terminal, descriptor), daemon=True)
        reader.start()
        while text := loop.run(terminal.read()):
            sys.stdout.write(text)
            sys.stdout.flush()
    loop.run(terminal.close())
    if terminal.exit_code is None:
        raise Unreachable(
            f"The connection ended before the command's end was told ({terminal.cut}): it may "
            "still run, and some of its output may be missing."
        )
    return terminal.exit_code


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
