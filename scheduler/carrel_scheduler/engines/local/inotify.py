"""Changes of folders as the kernel tells them, on the event loop.

Python has no binding of its own. One descriptor serves all folders of an engine. A folder that the
kernel cannot watch any more (its limits are shared with everything that the account runs) is looked
at twice a second instead, and is watched again as soon as the kernel lets us. A listener that fails
is called again until it succeeds, and takes nothing from the others.
"""

import asyncio
import ctypes
import errno
import logging
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
POLL_SECONDS: Final = 0.5
"""Between looks at folders that cannot be watched, and between calls of a listener that fails."""
_OVERFLOW: Final = 0x4000
_GONE: Final = 0x8000
_HEADER: Final = struct.Struct("iIII")
_HINTS: Final = {
    errno.EMFILE: "raise fs.inotify.max_user_instances",
    errno.ENFILE: "raise fs.file-max",
    errno.ENOSPC: "raise fs.inotify.max_user_watches",
    errno.ENOMEM: "the kernel is short of memory",
}
"""What keeps the kernel from watching for a while, and what helps."""

log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)

Listener = Callable[[str], None]


class _Asked:
    """One call of ``watch``; ``number`` is the kernel's, ``None`` while the folder is looked at."""

    def __init__(self, folder: Path, mask: int, listener: Listener) -> None:
        self.folder, self.mask, self.listener = folder, mask, listener
        self.number: int | None = None
        self.over = False


class Inotify:
    """Watches folders; listeners are called with the name of what changed.

    The name is "" where anything may have changed. ``trouble`` says why folders are looked at
    instead of watched; it is empty while all are watched.

    Must be made, used and closed on a running event loop.
    """

    def __init__(self) -> None:
        self._open = True
        self._loop = asyncio.get_running_loop()
        self._descriptor = -1
        self._listeners: dict[int, tuple[Listener, ...]] = {}
        self._unwatched: list[_Asked] = []
        self._failed: dict[Listener, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.trouble = ""

    def watch(self, folder: Path, mask: int, listener: Listener) -> Callable[[], None]:
        """Call the listener on changes of ``folder``; returns how to stop that.

        All listeners of one folder must ask for the same mask. Raises ``FileNotFoundError``.
        """
        asked = _Asked(folder, mask, listener)
        if not self._begin(asked):
            self._unwatched.append(asked)
            self._look_later()
        return lambda: self._ignore(asked)

    def _begin(self, asked: _Asked) -> bool:
        """Have the kernel watch; false if it cannot now, as ``trouble`` says."""
        if self._descriptor < 0:
            self._descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            if self._descriptor < 0:
                return self._cannot(asked.folder, ctypes.get_errno())
            self._loop.add_reader(self._descriptor, self._read)
        folder = os.fsencode(asked.folder)
        number = int(_libc.inotify_add_watch(self._descriptor, folder, asked.mask))
        if number < 0:
            code = ctypes.get_errno()
            if code == errno.ENOENT:
                raise FileNotFoundError(code, os.strerror(code), str(asked.folder))
            return self._cannot(asked.folder, code)
        asked.number = number
        self._listeners[number] = (*self._listeners.get(number, ()), asked.listener)
        return True

    def _cannot(self, folder: Path, code: int) -> bool:
        if code not in _HINTS:
            raise EngineError(f"watching {folder}: {os.strerror(code)}")
        trouble = (
            f"folders of tasks cannot be watched ({os.strerror(code)}; {_HINTS[code]}):"
            f" they are looked at every {POLL_SECONDS:g} s instead"
        )
        if trouble != self.trouble:
            log.warning("%s", trouble)
        self.trouble = trouble
        return False

    def _ignore(self, asked: _Asked) -> None:
        asked.over = True
        if asked in self._unwatched:
            self._unwatched.remove(asked)
        number = asked.number
        if number is None:
            return
        rest = tuple(one for one in self._listeners.get(number, ()) if one is not asked.listener)
        if rest:
            self._listeners[number] = rest
        elif self._listeners.pop(number, None) is not None and not self.closed:
            _libc.inotify_rm_watch(self._descriptor, number)

    def _look_later(self) -> None:
        if self._timer is None and self._open:
            self._timer = self._loop.call_later(POLL_SECONDS, self._look)

    def _look(self) -> None:
        """Call who could not be told, and who failed; watch again what the kernel lets us."""
        self._timer = None
        for listener in tuple(self._failed):
            if listener in self._failed:
                self._call(listener, "")
        refused = False
        for asked in tuple(self._unwatched):
            if asked.over:
                continue
            try:
                refused = refused or not self._begin(asked)
            except (EngineError, FileNotFoundError) as error:
                log.warning("%s is no longer looked at: %s", asked.folder, error)
                asked.over = True
            self._call(asked.listener, "")
        self._unwatched = [
            asked for asked in self._unwatched if asked.number is None and not asked.over
        ]
        if self.trouble and not self._unwatched:
            self.trouble = ""
            log.warning("all folders of tasks are watched again")
        if self._unwatched or self._failed:
            self._look_later()

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
                    self._call(listener, "")
            elif mask & _GONE:
                self._listeners.pop(number, None)
            for listener in self._listeners.get(number, ()):
                self._call(listener, name)

    def look(self, listener: Listener) -> None:
        """Call a listener now with "", and again until it succeeds."""
        self._call(listener, "")

    def forget(self, listener: Listener) -> None:
        """Call a listener that failed no more."""
        self._failed.pop(listener, None)

    def _call(self, listener: Listener, name: str) -> None:
        try:
            listener(name)
        except Exception as error:
            if listener not in self._failed:
                trace = None if isinstance(error, OSError | EngineError) else error
                log.warning("a change is looked at again soon: %s", error, exc_info=trace)
            self._failed[listener] = None
            self._look_later()
        else:
            if not name:
                self._failed.pop(listener, None)

    @property
    def closed(self) -> bool:
        """Whether nobody is told anything any more."""
        return not self._open

    def close(self) -> None:
        """Stop watching everything; every listener is called a last time, with ""."""
        if self.closed:
            return
        self._open = False
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
        waiting = [one for group in self._listeners.values() for one in group]
        waiting += [asked.listener for asked in self._unwatched]
        self._listeners.clear()
        self._unwatched.clear()
        for listener in waiting:
            self._call(listener, "")
