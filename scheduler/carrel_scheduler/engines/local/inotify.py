"""Changes of folders as the kernel tells them, on the event loop; nothing polls.

Python has no binding of its own. One descriptor serves all folders of an engine.
"""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import EngineError

MODIFIED: Final = 0x002
WRITER_CLOSED: Final = 0x008
MOVED_IN: Final = 0x080
CREATED: Final = 0x100
_OVERFLOW: Final = 0x4000
_GONE: Final = 0x8000
_HEADER: Final = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)

Listener = Callable[[str], None]


class Inotify:
    """Watches folders; listeners are called with the name of what changed ("" after an overflow).

    Must be made, used and closed on a running event loop.
    """

    def __init__(self) -> None:
        self._open = True
        self._descriptor: int = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise _error("watching folders", ctypes.get_errno())
        self._listeners: dict[int, tuple[Listener, ...]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    def watch(self, folder: Path, mask: int, listener: Listener) -> Callable[[], None]:
        """Call the listener on changes of ``folder``; returns how to stop that.

        All listeners of one folder must ask for the same mask. Raises ``FileNotFoundError``.
        """
        number = _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)
        if number < 0:
            code = ctypes.get_errno()
            if code == errno.ENOENT:
                raise FileNotFoundError(code, os.strerror(code), str(folder))
            raise _error(f"watching {folder}", code)
        self._listeners[number] = (*self._listeners.get(number, ()), listener)
        return lambda: self._ignore(number, listener)

    def _ignore(self, number: int, listener: Listener) -> None:
        rest = tuple(one for one in self._listeners.get(number, ()) if one is not listener)
        if rest:
            self._listeners[number] = rest
        elif self._listeners.pop(number, None) is not None and not self.closed:
            _libc.inotify_rm_watch(self._descriptor, number)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            number, mask, _, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size + length
            name = data[position - length : position].rstrip(b"\0").decode(errors="replace")
            if mask & _OVERFLOW:
                for listener in [one for group in self._listeners.values() for one in group]:
                    listener("")
            elif mask & _GONE:
                self._listeners.pop(number, None)
            for listener in self._listeners.get(number, ()):
                listener(name)

    @property
    def closed(self) -> bool:
        """Whether nobody is told anything any more."""
        return not self._open

    def close(self) -> None:
        """Stop watching everything; every listener is called a last time, with ""."""
        if not self.closed:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._open = False
            waiting = [one for group in self._listeners.values() for one in group]
            self._listeners.clear()
            for listener in waiting:
                listener("")


def _error(what: str, code: int) -> EngineError:
    hint = {
        errno.EMFILE: " (raise fs.inotify.max_user_instances)",
        errno.ENOSPC: " (raise fs.inotify.max_user_watches)",
    }.get(code, "")
    return EngineError(f"{what}: {os.strerror(code)}{hint}")
